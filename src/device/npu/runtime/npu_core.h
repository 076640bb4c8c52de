// What the executables of one NPU share: the opened device, contexts, and buffers in every form a
// kernel wants. Included only by files that are compiled once per provider of the XRT names.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include "base/error.h"
#include "device/npu/formats/air_binding.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_device.h"
#include "program/kernels.h"

namespace tyto::TYTO_XRT_PROVIDER {

// Runs, and what they are given.

// What an executable gives its kernel, by position.
class Arguments {
 public:
  enum class Kind : uint8_t { none, buffer, number };
  struct Value {
    Kind kind = Kind::none;
    xrt::bo buffer = {};
    uint32_t number = 0;
    bool operator==(const Value&) const = default;
  };
  void set(size_t index, xrt::bo buffer) { at(index) = {Kind::buffer, std::move(buffer), 0}; }
  void set(size_t index, uint32_t number) { at(index) = {Kind::number, {}, number}; }
  const std::vector<Value>& values() const { return values_; }

 private:
  Value& at(size_t index) {
    if (values_.size() <= index) values_.resize(index + 1);
    return values_[index];
  }
  std::vector<Value> values_;
};

// A run of an ELF has a copy of the image's control code in the device's heap, which is small:
// where it does not hold one run for each executable of an image (NpuCore::run_for), they take
// turns, and arguments are set where they differ from those before. XRT then patches every
// descriptor.
class KernelRun {
 public:
  explicit KernelRun(const xrt::kernel& kernel) : kernel_(kernel), run_(kernel) {}
  ~KernelRun() { drop(); }
  KernelRun(const KernelRun&) = delete;
  KernelRun& operator=(const KernelRun&) = delete;

  // Writes the length into the run's scratchpad for the next start, once for each: what cores get
  // may be a difference.
  void tell(const DecodeParameters& parameters, uint32_t length);

  // Must not be in flight: XRT refuses to patch control code that is being executed.
  void start(const Arguments& arguments);
  ert_cmd_state wait(std::chrono::milliseconds timeout);
  // Their executable is about to go, and the buffers with it. XRT knows no way to take an argument
  // back, so if they are the last that were given the run goes too; the next start makes another.
  void release(const Arguments& arguments);

 private:
  void drop();

  xrt::kernel kernel_;
  xrt::run run_;
  // As last set. Keeps the buffers for as long as the run knows their addresses.
  std::vector<Arguments::Value> given_;
  const Arguments* holder_ = nullptr;  // who was the last to start
  bool in_flight_ = false;
  xrt::bo scratchpad_;      // the run's
  uint32_t mask_word_ = 0;  // what the cores have of it, which outlives the run
  std::chrono::steady_clock::time_point started_ = {};
};

// What executables share.

// Whatever XRT throws leaves as our Error: where it happened, and XRT's own words. They do not say
// that an image is too new for the machine, which `version_faults` does.
template <typename Function>
decltype(auto) guarded(const std::string& where, const Function& function,
                       const std::function<std::vector<VersionFault>()>& version_faults = {}) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw refusal(where, error.what(),
                  version_faults ? version_faults() : std::vector<VersionFault>());
  }
}

// What set-up calls the time it takes to bring weights into the order of a kernel's arguments.
constexpr const char* kLayoutPhase = "weights laid out for the NPU";

// What images for `rows` rows are told apart by (NpuKernels::image).
inline uint32_t prefill_rows(uint64_t rows) {
  return rows > 1 ? static_cast<uint32_t>(rows) : 0;
}

// A context holds one image: two ELFs that MLIR-AIR built cannot share one, both being "main".
struct NpuContext {
  NpuImage image;
  xrt::hw_context context;
  xrt::kernel kernel;
  bool failed = false;     // a dispatch did not complete: the next load makes another
  bool is_proven = false;  // a dispatch was repeated, with the same result
  // Executables that dispatch an ELF with arguments of their own, each with a place.
  size_t executables = 0, next_place = 0;
  bool is_of_tokens = false;
  size_t most_runs = 1;  // that the heap has room for
  // By instance where the image has several, else by place among those in flight together.
  std::map<size_t, KernelRun> runs;
  xrt::bo instructions;  // an xclbin's whose words are the same for every call

  // Made when it is first asked for; the executables of all layers share it.
  KernelRun& run(size_t place = 0) { return runs.try_emplace(place, kernel).first->second; }
  void release(const Arguments& arguments) {
    for (auto& [place, run] : runs) run.release(arguments);
  }
  // XRT works on a copy of a buffer that lies in another memory group than the argument of an
  // xclbin is connected to, and says so in its log alone. Here it is an Error.
  void check_group(int argument, const xrt::bo& buffer) const;
};

// Bytes that count as pinned while their owner lives.
struct PinnedBytes {
  std::shared_ptr<uint64_t> total = nullptr;  // shared with the core
  uint64_t bytes = 0;

  PinnedBytes() = default;
  ~PinnedBytes() {
    if (total) *total -= bytes;
  }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
};

// A weight as int8 kernels take it: a matrix in eight bits, or a vector, which programs take as a
// norm's, in bf16.
struct Int8Weight {
  GemmExtent extent;
  xrt::bo codes;              // [extent.padded_n][extent.padded_k]; of a vector its values
  std::vector<float> scales;  // one per output
  xrt::bo device_scales;      // the same where a program takes them; none where the host does
  // [tiles][extent.padded_k], by the outputs of a tile: the sum of each tile's rows, by which
  // products of GEMM images are checked.
  std::map<uint32_t, std::vector<int32_t>> tile_sums;
  PinnedBytes pinned;  // given back with it: a program may load one model after the other
};

// Rows for int8 GEMMs. A tile is multiplied whole: rows that a call does not use are zero.
struct ActivationCodes {
  xrt::bo bo;
  int8_t* codes = nullptr;
  uint64_t rows_used = 0;  // by the last call
};

struct KvSlab;

// Behind a Buffer's handle.
struct NpuBuffer {
  xrt::bo bo;
  size_t offset = 0;  // the slot's first byte in `bo`
  std::byte* host = nullptr;
  uint64_t version = 0;  // counts uploads
  size_t written = 0;    // bytes from the front that may be other than zero on the device
  std::shared_ptr<KvSlab> slab = nullptr;  // for a cache that lies in one, shared by all that do
  PinnedBytes pinned;

  void sync(Sync direction, size_t first, size_t bytes);
};

// A table that a kernel wants repeated for every head, made from a slot whose rows the host writes.
struct Expansion {
  std::shared_ptr<NpuBuffer> source;  // shared with the Buffer it was bound from
  xrt::bo bo;
  std::byte* host = nullptr;
  size_t row_bytes = 0;
  size_t copies = 1;            // each row's, side by side
  std::vector<std::byte> rows;  // the source's, as last expanded
  uint64_t version = 0;         // the source's, as last looked at
  PinnedBytes pinned;

  void refresh(uint32_t tokens);  // writes and syncs what has changed
};

// Programs that MLIR-AIR has no counterpart of go into one ELF together, compiled when the first of
// them is submitted: a device has only 16 contexts.
struct ProgramSet {
  std::vector<Program> programs;  // distinct ones
  std::map<Hash128, size_t> by_hash;
  std::shared_ptr<NpuContext> context;  // shared with the executables; none until compiled
};

class NpuCore {
 public:
  NpuCore(const DeviceEnv& environment, NpuKernels npu_kernels);

  const std::string& name() const { return kernels.info.name; }
  xrt::bo allocate(size_t bytes, const std::string& what);

  std::shared_ptr<NpuContext> open(std::string_view program, uint32_t window);
  // Throws a device Error where the heap has no room for its run.
  std::shared_ptr<NpuContext> open_image(const std::string& key, NpuImage image);

  // The run for the executable with that place: one of its own where the heap has room. Images of
  // tokens come first, whose arguments change with every layer of every token, and of those the
  // largest, which have most descriptors to patch.
  size_t join(NpuContext& context, bool is_of_tokens);
  KernelRun& run_for(NpuContext& context, size_t place);

  // The words of an xclbin that takes them as they are, in the device's heap once for all.
  xrt::bo instructions(NpuContext& context);

  // Weights in the layout of an argument, uploaded once for all executables. `weights` by slot.
  xrt::bo weight(const AirArgument& argument, const std::vector<AirPart>& parts,
                 std::span<const TensorView> weights);
  // With at least `rows` rows: the table of a larger image begins like that of a smaller one.
  std::shared_ptr<Expansion> expansion(const std::shared_ptr<NpuBuffer>& source, uint64_t rows,
                                       size_t row_bytes, size_t copies);
  // Made once for all who hold it; none where no GEMM image takes rows of that length.
  std::shared_ptr<Int8Weight> int8_weight(const WeightSource& source);
  // Int8 weights inside programs that are compiled here, not in GEMM images.
  bool fuses_int8() const {
    return settings.weights == NpuWeights::int8 && env.fusion != Fusion::op;
  }
  // Weights that were just laid out; set-up time of their own.
  void upload(xrt::bo& weights, const std::string& what);

  // The model's images where those of prompts have `rows` rows; for one row any will do.
  const AirModel& model_for(uint64_t rows);

  // Memory that only the device uses; one dispatch runs at a time, so all images share it. The
  // smallest that holds `bytes` and is not among those that the image has `taken` for others of its
  // arguments. An image that asks for the largest first makes none that it could have shared.
  xrt::bo scratch(size_t bytes, std::set<size_t>& taken);
  // For arguments that a kernel never touches; whether XRT takes none at all is not known.
  xrt::bo dead_page();

  // Where int8 GEMMs over K take up to `rows` rows from, shared like scratch.
  std::shared_ptr<ActivationCodes> activation_codes(uint32_t k, uint64_t rows);

  // The sum of a weight's rows, for --guard; made once for all executables.
  const std::vector<float>& weight_sum(const TensorView& weight, uint64_t first_row, uint64_t rows);

  // The set that takes new programs, and what it is compiled to.
  std::shared_ptr<ProgramSet> program_set();
  std::shared_ptr<NpuContext> compiled(ProgramSet& set);

  uint64_t pinned_bytes() const { return *pinned_; }
  // From now on `bytes` more that were allocated count as the owner's.
  void count_as_pinned_by(PinnedBytes& owner, uint64_t bytes) {
    owner.total = pinned_;
    owner.bytes += bytes;
  }

  DeviceEnv env;
  const NpuSettings settings;
  NpuKernels kernels;
  const AirModel model;  // without programs where the device was opened for no model
  xrt::device device;

 private:
  void count_pinned(uint64_t bytes);
  void check_heap_for(const std::string& key, const NpuImage& image);
  void share_heap();
  bool place_codes(const WeightSource& source, Int8Weight& made);
  void add_up_tiles(Int8Weight& made);
  xrt::bo mapped(const TensorView& tensor, uint64_t first_row, uint64_t rows);

  std::map<std::string, std::shared_ptr<NpuContext>> contexts_;  // shared with executables
  bool heap_is_shared_ = false;  // among the executables that there are
  using Part = std::tuple<const std::byte*, uint64_t, uint64_t>;  // tensor, first row, place
  std::map<std::pair<AirLayout, std::vector<Part>>, xrt::bo> weights_;
  std::map<std::tuple<const NpuBuffer*, uint64_t, size_t>, std::shared_ptr<Expansion>> expansions_;
  std::map<std::pair<const std::byte*, uint64_t>, std::vector<float>> weight_sums_;
  std::map<uint32_t, AirModel> models_;  // by prompt rows
  std::vector<xrt::bo> scratch_;
  xrt::bo dead_page_;
  std::map<std::pair<uint32_t, uint64_t>, std::shared_ptr<ActivationCodes>> activation_codes_;
  std::shared_ptr<ProgramSet> open_set_;  // shared with its executables
  std::map<const std::byte*, std::weak_ptr<Int8Weight>> int8_weights_;  // by the tensor's address
  std::shared_ptr<uint64_t> pinned_ = std::make_shared<uint64_t>(0);    // shared with PinnedBytes
};

// The program with its weights in the type that the device holds them in, which is what it moves.
Program with_weights(Program program, DType type);

// The rows of a program's inputs and outputs, moved around each call.
class Transfers {
 public:
  explicit Transfers(const Program& program) : program_(program) {}
  void bind(uint16_t slot, const std::shared_ptr<NpuBuffer>& buffer);
  uint64_t upload(uint32_t rows) { return move(uploads_, Sync::to_device, rows); }  // bytes
  // For kernels that compute all the rows they were compiled for: those behind `rows` are zero. Not
  // what an earlier call left in them, which may be NaN, and a masked NaN times 0 is one still.
  uint64_t upload_padded(uint32_t rows);
  uint64_t download(uint32_t rows) { return move(downloads_, Sync::from_device, rows); }

 private:
  struct Part {
    std::shared_ptr<NpuBuffer> buffer;  // shared with the Buffer it was bound from
    uint64_t row_bytes;
    uint64_t bytes;  // all rows'
  };
  static uint64_t move(const std::vector<Part>& parts, Sync direction, uint32_t rows);

  const Program& program_;
  std::vector<Part> uploads_, downloads_;
  std::vector<Part> results_;  // that launches of the program write
};

// The dispatches of one program, with the counting and the errors that go with them. Several may be
// in flight; they are finished in the order they were started in.
class Dispatcher {
 public:
  // The program outlives this.
  Dispatcher(NpuCore& core, std::shared_ptr<NpuContext> context, const Program& program)
      : core_(core),
        context_(std::move(context)),
        program_(program),
        where_(core.name() + ": " + program.name),
        launch_names_(launch_names(core.env.trace, program, groups_of_one(program))) {}

  const std::string& where() const { return where_; }
  NpuContext& context() { return *context_; }
  // A call: begin, bytes moved, as many runs as it takes, bytes moved back.
  void begin();
  void uploaded(uint64_t bytes);
  void start(KernelRun& run, const Arguments& arguments);
  void finish(KernelRun& run, std::chrono::milliseconds timeout, const Call& call, const Cost& work,
              uint64_t launches);
  void downloading();  // the device is done
  void checked(uint64_t row_sums) { done_.row_sums += row_sums; }
  Completion end(uint64_t downloaded_bytes);
  void fail() const { context_->failed = true; }  // its result was wrong
  void use(std::shared_ptr<NpuContext> context) { context_ = std::move(context); }

 private:
  NpuCore& core_;
  std::shared_ptr<NpuContext> context_;  // shared with the core, which may have made another since
  const Program& program_;
  std::string where_;
  std::vector<uint16_t> launch_names_;
  void begin_of_next();

  // When the oldest in flight was started, or when the one before it ended.
  uint64_t begun_ns_ = 0;
  uint64_t modelled_before_ = 0;
  uint32_t in_flight_ = 0;
  Completion done_;
};

// Slots to be bound: all but weights.
size_t bound_slots(const Program& program);

std::unique_ptr<Executable> make_air_executable(NpuCore& core, const Program& program,
                                                std::span<const TensorView> weights);
std::unique_ptr<Executable> make_compiled_executable(NpuCore& core, const Program& program,
                                                     std::span<const TensorView> weights);
std::unique_ptr<Executable> make_int8_matmul(NpuCore& core, const Program& program,
                                             std::span<const TensorView> weights);

// The KV caches of all layers of one sequence in one buffer, as the single-dispatch decode has
// them. Included only by files that are compiled once per provider of the XRT names.

struct KvSlab {
  xrt::bo bo;
  PinnedBytes pinned;
  AirDims dims;
  uint32_t most = 0;    // positions the host's programs lay it out for: the largest window
  uint32_t window = 0;  // positions it is laid out for now
  uint32_t live = 0;    // positions the device has been given or has written
  // The rows of no position from here on hold anything but zeros. A decode takes eight positions of
  // values with one exponent: what an earlier sequence left behind L would change the result.
  uint32_t used = 0;

  // Re-lays the live positions for another window: from the device, to the device.
  void lay_out(uint32_t other_window);
  // The host has written bytes of its buffer, laid out for the most positions, to the device.
  void given(size_t offset, size_t bytes);
  // Rows from `position` on become zeros.
  void clear_from(uint32_t position);

 private:
  void sync_live(xclBOSyncDirection direction);
};

std::shared_ptr<KvSlab> make_kv_slab(NpuCore& core);

std::unique_ptr<Executable> make_fused_decode(NpuCore& core, const Program& program,
                                              std::span<const TensorView> weights);

// Arguments of an image that wants activations head by head: the host turns them around each call.

class TurnedHeads {
 public:
  explicit TurnedHeads(ThreadPool& pool) : pool_(pool) {}

  // `turned` is what the image is given in place of `rows`.
  void add(const AirArgument& argument, std::shared_ptr<NpuBuffer> rows, xrt::bo turned);
  // Around a call, for its rows. The bytes that were moved are returned: the projections leave
  // their results on the device, so what is turned passes the host both ways.
  uint64_t give(uint32_t rows);
  uint64_t take(uint32_t rows);

 private:
  struct Part {
    HeadsFirst form;
    std::shared_ptr<NpuBuffer> rows;  // shared with the Buffer it was bound from
    xrt::bo turned;                   // shared with the other layers
  };
  static uint64_t row_bytes(const Part& part) { return part.form.cols * sizeof(uint16_t); }

  ThreadPool& pool_;
  std::vector<Part> inputs_, outputs_;
};

// --guard on: the products of a dispatch, checked on the host by the sums of their rows.

// Rows of activations in a buffer of the device.
struct GuardedRows {
  xrt::bo bo;
  uint64_t offset = 0;  // the first row's, in bytes
  DType dtype = DType::bf16;
  uint64_t stride = 0;  // values from row to row
  uint64_t cols = 0;    // those that belong to the product
};

class ProductGuard {
 public:
  explicit ProductGuard(ThreadPool& pool) : pool_(pool) {}

  // The sum stays the core's.
  void add(std::string name, std::span<const float> weight_sum, GuardedRows x, GuardedRows y) {
    products_.push_back({std::move(name), weight_sum, std::move(x), std::move(y)});
  }

  // After a dispatch that completed. Returns how many sums were compared; one that is off is a
  // device Error.
  uint64_t check(uint32_t rows, const Dispatcher& dispatcher);

 private:
  struct Product {
    std::string name;
    std::span<const float> weight_sum;
    GuardedRows x, y;
  };
  struct Mismatch {
    size_t row;
    RowSum sum;
  };
  std::optional<Mismatch> find_mismatch(Product& product, uint32_t rows);

  ThreadPool& pool_;
  std::vector<Product> products_;
};

}  // namespace tyto::TYTO_XRT_PROVIDER
