// One NPU as llama.cpp uses it: weights, the programs that its graphs became, and the count of what
// ran where. Callers hold the lock.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "ggml/lowering.h"
#include "ggml/offer.h"
#include "trace/trace.h"

namespace tyto::plugin {

// What the device does not take, computed by ggml's own CPU backend: operations of callers that do
// not ask what is offered (llama.cpp's RPC server), and values that eight bits cannot hold.

class HostDelegate {
 public:
  ~HostDelegate();
  void set_threads(int threads) { threads_ = threads; }
  // In order, on tensors in host memory. Throws an Error when there is no CPU backend or it fails.
  void compute(const std::vector<ggml_tensor*>& nodes);

 private:
  ggml_backend_t backend_ = nullptr;  // opened when first needed
  int threads_ = 0;                   // 0: as the backend likes
};

// Weights on the device, made once from the memory that ggml loads them into. That memory stays:
// other backends compute from it what this one does not take.

struct Weight {
  std::shared_ptr<void> form;  // the device's, shared with the programs that use it
  uint64_t macs_per_token = 0;
  uint64_t tokens = 0;  // multiplied on the device
  uint64_t alone = 0;   // those in a dispatch of one token
};

class Weights {
 public:
  explicit Weights(Device& device) : device_(device) {}

  // The weight that a tensor is, made on first sight. Throws an Error where it cannot be: a value
  // that is not finite, no memory.
  Weight& at(const ggml_tensor* tensor);
  // What lies in [begin, end) is about to change or to go. True if something was there.
  bool forget(const void* begin, const void* end);

  struct Totals {
    uint64_t matrices = 0, bytes = 0, macs_per_token = 0, most_tokens = 0;
    uint64_t most_alone = 0;  // Weight::alone of the one with most tokens
    double seconds = 0;       // spent making them
  };
  const Totals& totals() const { return totals_; }
  void count_tokens(Weight& weight, uint64_t tokens);

 private:
  Device& device_;
  std::map<const void*, Weight> made_;  // by address
  Totals totals_;
};

struct WorkCounts {
  uint64_t products = 0;       // MUL_MAT operations on the device
  uint64_t host_products = 0;  // and those left to the host by the plug-in itself
  uint64_t host_operations = 0;
  uint64_t macs = 0, host_macs = 0;

  // Time in the plug-in around dispatches, submission and waits not counted: those of one token,
  // larger ones, and the first call of each program, which makes its run.
  uint64_t decode_ns = 0, decode_dispatches = 0;
  uint64_t batch_ns = 0, batch_dispatches = 0;
  uint64_t first_ns = 0;
  uint64_t decode_busy_ns = 0;  // the device's, in dispatches of one token

  std::map<std::string, uint64_t> declined;  // MUL_MATs that ggml asked about, by reason
};

class Session {
 public:
  // Opens the device; an Error says why it cannot.
  Session(const Settings& settings, bool is_virtual, ggml_backend_buffer_type_t memory);

  std::mutex mutex;

  const Settings& settings() const { return settings_; }
  const Offer& offer() const { return offer_; }
  DeviceInfo info() const { return device_->info(); }
  bool supports(const ggml_tensor* op);

  void load_weight(const ggml_tensor* tensor);
  void forget(const void* begin, const void* end);

  // Lowers and loads what a graph will need, so that nothing is left for its first token.
  void prepare(ggml_cgraph* graph);
  void compute(ggml_cgraph* graph);
  void set_threads(int threads) { host_.set_threads(threads); }

  const WorkCounts& counts() const { return counts_; }
  const Weights::Totals& weights() const { return weights_.totals(); }
  const Trace& trace() const { return trace_; }
  // What the user should know before the first token.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  struct Loaded {
    Lowered lowered;
    std::vector<Buffer> buffers;  // [slots], none of weights
    std::unique_ptr<Executable> executable;
    DispatchLabel label;
    std::vector<Weight*> weights;
    bool is_new = true;
    std::set<const void*> addresses;  // its weights'
  };

  struct Planned {
    Piece piece;
    Loaded* program = nullptr;  // null: the host computes it
  };

  const std::vector<Planned>& plan(ggml_cgraph* graph);
  Loaded& loaded(const std::vector<ggml_tensor*>& run, const Uses& uses);
  Buffer value_buffer(const Slot& slot, std::map<uint64_t, size_t>& taken);
  void run_timed(Loaded& program, const std::vector<ggml_tensor*>& run);
  void run_on_device(Loaded& program, const std::vector<ggml_tensor*>& run);
  void run_rows(Loaded& program, const std::vector<ggml_tensor*>& run, uint32_t first,
                uint32_t rows, std::span<float* const> results);
  void write_inputs(Loaded& program, const std::vector<ggml_tensor*>& run, uint32_t first,
                    uint32_t rows);
  void note_image(uint64_t k);
  void run_on_host(const std::vector<ggml_tensor*>& nodes, const std::string& why);

  const Settings settings_;
  ThreadPool pool_;
  Trace trace_;
  std::unique_ptr<Device> device_;
  DeviceCounters* total_ = nullptr;  // sums over the device's work
  Offer offer_;
  DType activations_ = DType::f32;
  std::chrono::milliseconds timeout_{0};
  Weights weights_;
  std::map<std::vector<uint64_t>, Loaded> programs_;
  std::unordered_map<uint64_t, std::vector<Planned>> plans_;  // by a graph's number
  std::map<std::pair<uint64_t, size_t>, Buffer> values_;      // by width and how many are in use
  std::map<uint64_t, std::vector<float>> ones_;               // by width
  RotationTable rotations_;
  std::vector<float*> results_;          // where a run's go
  std::map<uint64_t, uint32_t> images_;  // GEMMs that weights are for: columns by K
  std::vector<std::string> notices_;
  HostDelegate host_;
  WorkCounts counts_;
};

}  // namespace tyto::plugin
