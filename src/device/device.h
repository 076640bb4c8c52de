// The one seam: what a device implements, and what the engine may ask of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "program/program.h"
#include "program/stitch.h"
#include "tensor/dtype.h"
#include "trace/counters.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

// How the KV cache lies in memory: [kv_heads / group][positions][group][head_dim].
struct KvForm {
  DType type = DType::f16;
  uint32_t group = 1;
};

// An integer GEMM that an NPU has a compiled image of.
struct GemmImage {
  uint64_t k = 0;        // the longest rows it multiplies; shorter ones are padded
  uint32_t columns = 0;  // in the array
};

// What a device says whose kernels were compiled ahead of time, each for one shape, such as an
// NPU's.
struct FixedShapes {
  // The numbers of rows that there are prefill kernels for, ascending; every other call has one
  // row. Empty: calls have any number of rows.
  std::vector<uint32_t> prompt_rows = {};
  // The positions that a KV cache on the device holds. 0: as many as the model has.
  uint32_t most_positions = 0;
  std::optional<KvForm> kv = {};  // the only form of a cache that its kernels read
  // Its kernels know no pages: the cache of a sequence lies in one piece. Always so where `kv` is
  // given.
  bool kv_in_one_piece = false;
  uint32_t segments = 0;  // the sequences that one call may have; 0: any number
  // A checkpoint that keeps the rows of a head in pairs gets them back from the device's
  // projections in halves.
  bool rotates_halves = false;
  std::vector<GemmImage> gemms = {};  // the images that run int8 products, each on its own
  // The blocks that it makes one dispatch of at --fusion block. Empty: the program's own blocks.
  std::vector<DispatchBlock> blocks = {};
};

struct DeviceInfo {
  std::string name;          // as in --device
  std::string description;   // the hardware, and what drives it
  std::string driver = {};   // its driver with its version; empty: part of this program
  std::string machine = {};  // the cost model's machine whose laws are its own; empty: none
  bool is_virtual = false;   // its time is modelled; never satisfies --require
  // A driver that computes on the processor's cores: what it does proves nothing of a GPU, so it
  // never satisfies --require.
  bool is_software = false;
  bool shares_host_memory = false;  // sync moves nothing
  std::string numerics = "f32";     // what its products are computed in
  std::string weight_form = "as in the file";
  DType activations = DType::f32;  // what its kernels read and write between launches
  bool rounds_to_bf16 = false;     // activations, where they meet bf16 weights
  DeviceLimits limits = {};        // what no run on it can exceed
  uint32_t rows_at_once = 256;     // the rows of a prompt, unless the pipeline is told otherwise
  Fusion fusion = Fusion::block;   // unless --fusion says otherwise
  // The number of best logits that its top_k hands back of a row, for readers that look at no
  // others; 0: they get all.
  uint32_t candidates = 0;
  // A row's result has the same bits however many rows its call has, so that several guessed tokens
  // may be checked in one call.
  bool rows_agree = false;
  // The first call of a form compiles kernels, which may take seconds: Executable::prepare.
  bool compiles_forms = false;
  std::optional<FixedShapes> fixed = {};  // null: its kernels take any shape
};

// A device whose kernels take any shape has no limits.
inline FixedShapes fixed_shapes(const DeviceInfo& device) {
  return device.fixed.value_or(FixedShapes{});
}

// Memory a device can reach. Host and device see the same bytes after a transfer.
struct Buffer {
  std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> handle = {};  // shared with the Executables it is bound to

  std::span<std::byte> bytes() const { return {data, size}; }
};

enum class Sync : uint8_t { to_device, from_device };

// A loaded program with its weights and its bound buffers. Used by one thread.
class Executable {
 public:
  virtual ~Executable() = default;
  // Every slot but weights, once; a cache in one piece again, when the next call is of another
  // sequence.
  virtual void bind(uint16_t slot, const Buffer& buffer) = 0;
  // Does what only the first call of this form would do, and runs nothing. Every slot is bound.
  virtual void prepare(const Call& call) { (void)call; }
  // Moves the rows of input slots to the device and hands the call over.
  virtual void submit(const Call& call) = 0;
  // Brings the rows of output slots back. Throws on timeout or device error.
  virtual Completion wait(std::chrono::milliseconds timeout) = 0;
};

// Why a device does not run a launch.
struct Refusal {
  Refusal(std::string why, std::string what_is_left = {})
      : reason(std::move(why)), left_to_host(std::move(what_is_left)) {}
  Refusal(const char* why) : reason(why) {}

  std::string reason;  // fit for a person to read
  // What the device's design leaves to the host: "embedding". Empty: the launch is the device's
  // work, and running it elsewhere is a fallback.
  std::string left_to_host;

  bool operator==(const Refusal&) const = default;
};

// What a new backend implements.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  // Nothing when the launch can run here.
  virtual std::optional<Refusal> why_not(const Program& program, const Launch& launch) const = 0;
  // Zeroed memory for activations or a cache. Where caches are one piece each sequence has its own:
  // kernels may want those of all its layers side by side.
  virtual Buffer alloc(const Slot& slot, uint32_t sequence = 0) = 0;
  // For what crosses devices outside of calls: caches that move, rows that a person looks at.
  virtual void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) = 0;
  // `weights` holds a view for each slot that is a weight: [slots]. The device refers to them in
  // place, copies them or lays them out for its kernels, once for all programs; they outlive it.
  virtual std::unique_ptr<Executable> load(const Program& program,
                                           std::span<const TensorView> weights) = 0;
  // Lays a weight out before a program asks for it. What is returned keeps that form; programs that
  // use it do so too. Nothing where the device has no need.
  virtual std::shared_ptr<void> prepare(const std::string& name, const TensorView& weight) {
    (void)name, (void)weight;
    return nullptr;
  }
};

// The model, for devices whose kernels are compiled for one.
struct ModelDims {
  uint32_t layers = 0, emb = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, vocab = 0;
  uint32_t context = 0;  // positions wanted
  float norm_eps = 0;
  bool qkv_bias = false, qk_norm = false;
  std::string beyond_images =
      {};  // what its forward pass has that images for whole models have not
};

// A control of a device's own. The command line makes a flag of it: --weights int8.
struct DeviceSetting {
  std::string_view name;
  std::string_view value = {};  // what its help calls the value; empty: a choice
  std::span<const std::string_view> choices = {};
  std::string_view meaning = {};
  // What this machine has to choose from, by number; null: the machine has no part in it. Throws a
  // device Error where that cannot be found out.
  std::vector<std::string> (*found)() = nullptr;
  // Results may depend on it, so a verification counts only for the same value.
  bool changes_results = false;
};
// Those that were given, by name. A device looks at its own.
using DeviceSettings = std::map<std::string, std::string>;

// What a device is opened with; pool and trace outlive it.
struct DeviceEnv {
  ThreadPool& pool;
  Trace& trace;
  Fusion fusion = Fusion::block;  // an NPU's kernel sets differ by it
  ModelDims model = {};
  DeviceSettings settings = {};
  uint32_t sequences = 1;  // that have caches at once, where those are one piece
  // What weights are views of, where a form of them that was kept may be used; they outlive it.
  std::span<const MappedFile> weight_files = {};
};

struct DeviceEntry {
  std::string_view name;
  std::string_view kind;  // "NPU": the heading of its settings, and its name in drawings
  std::string_view summary;
  bool is_host;  // computes in the host's memory, and takes what other devices do not
  std::span<const DeviceSetting> (*settings)();
  std::unique_ptr<Device> (*open)(const DeviceEnv& env);  // throws a device Error when it cannot
  bool is_virtual = false;  // as its DeviceInfo will say: --device auto leaves it out by itself
};

std::span<const DeviceEntry> device_table();
// An unknown name is a usage Error that lists the table.
const DeviceEntry& device_entry(std::string_view name);

// The same, opened.
std::unique_ptr<Device> open_device(std::string_view name, const DeviceEnv& env);

}  // namespace tyto
