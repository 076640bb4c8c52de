// The programs of a forward pass made ready to run: placed on devices, stitched, loaded and bound.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/progress.h"
#include "device/device.h"
#include "llama/forward_program.h"
#include "llama/kv_store.h"
#include "program/stitch.h"

namespace tyto {

// How a prompt is cut into passes where a device's kernels are compiled for fixed numbers of rows.

// Kernels for `rows` rows, which they compute whole however few a pass uses. Times are the cost
// model's on every device: they choose among kernels, and are not shown.
struct PromptKernels {
  uint32_t rows = 0;
  double first_ms = 0;  // a pass from position 0
  double later_ms = 0;  // one behind others, without attention, which is the host's then
};

struct PassCosts {
  std::vector<PromptKernels> kernels = {};  // ascending; none where a pass takes what it needs
  double attention_ms = 0;                  // the host's, for one row and one position before it
};

// Picks a pass's dispatches on devices that compute all the rows their kernels are made for.
using IsHosts = std::function<bool(const Piece& piece)>;
double modelled_ms(std::span<const Piece> pieces, uint32_t rows, const IsHosts& is_hosts);
// What else the host does is the same however a prompt is cut.
double host_attention_ms(std::span<const Piece> pieces, const IsHosts& is_hosts);

// The rows of the next pass of a prompt that has `rows` more from `position` on: the first of the
// passes that take least time together.
uint32_t next_pass(const PassCosts& costs, uint32_t position, uint32_t rows);

// What an observer is shown of a dispatch that has just completed (check/diagnose.h).
struct DispatchView {
  Part part;
  const std::vector<Piece>& pieces;  // those of the whole part
  size_t index;                      // the piece that ran
  std::span<const Buffer> buffers;   // [slots of the piece]
  Device& device;
  const Call& call;
  uint32_t position;  // where the call's first row stands
  bool in_halves;     // rows of q and k that a checkpoint has in pairs
};
using DispatchObserver = std::function<void(const DispatchView&)>;

struct ForwardOptions {
  uint32_t context = 0;               // 0: the model's
  uint32_t prefill_chunk = 0;         // rows per call; 0: the device's own number
  std::optional<Fusion> fusion = {};  // null: the device's own
  std::optional<DType> kv_type = {};  // null: the device's own, else f16
  uint64_t kv_memory = 0;             // bytes that caches may take; 0: enough for the contexts
  uint32_t kv_shares = 1;             // Forwards that divide that memory among them
  bool decodes = true;                // false: single tokens are another Forward's
  uint32_t sequences = 1;             // contexts that are wanted at once
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // for one dispatch
  DispatchObserver observer = {};                                 // null: nothing is shown
};

// Bytes of a slot that two devices with memory of their own share: they go through the host.
struct HostCopy {
  const std::byte* from;
  std::byte* to;
  uint64_t row_bytes;
};

// One dispatch: a loaded program with everything bound.
struct Step {
  Device* device = nullptr;
  std::unique_ptr<Executable> executable = {};
  std::vector<Buffer> buffers = {};  // [slots]
  DispatchLabel label = {};
  DeviceCounters* total = nullptr;
  std::vector<HostCopy> before = {}, after = {};
};

// A part of the forward pass, and the devices that have the cache and the residual stream in it.
struct Stage {
  Part part = Part::body;
  bool returns_top_k = false;  // ends with candidates, not with logits
  std::vector<Piece> pieces = {};
  std::vector<Step> steps = {};            // [pieces]
  std::array<Device*, 2> kv_devices = {};  // [kinds]; null: it does not touch such a cache
  size_t caches = 0;                       // the store's caches that the steps are bound to
  Device* x_device = nullptr;              // the last to use the residual stream
  std::set<SlotKey> device_slots = {};     // slots that others than the host use in it
};

// The body for a number of rows.
struct Prefill {
  uint32_t rows = 0;
  Stage first = {};  // for a pass from position 0, where that has kernels of its own
  Stage later = {};
};

// Model, devices and trace outlive it.
class Stages {
 public:
  Stages(const Model& model, const DeviceOrder& devices, const ForwardOptions& options,
         Trace& trace, const Progress& progress);

  uint32_t context() const { return context_; }
  Fusion fusion() const { return options_.fusion.value_or(devices_.first.fusion); }
  uint32_t chunk() const { return chunk_; }          // rows per prefill call
  uint32_t head_rows() const { return head_rows_; }  // logits per call
  uint32_t candidates() const { return candidates_; }
  const PassCosts& pass_costs() const { return pass_costs_; }
  KvStore& kv() { return kv_; }
  const KvStore& kv() const { return kv_; }

  Stage& body_for(uint32_t rows, uint32_t position);  // the smallest that holds the rows
  // Logits of up to head_rows() rows, or the candidates among them.
  Stage& head(bool of_best) { return of_best ? head_of_best_ : head_; }
  // Body and head of rows that all have logits, one of each sequence; empty unless it decodes.
  Stage& decode(bool of_best) { return of_best ? decode_of_best_ : decode_; }
  // What the head would see of up to head_rows() rows. The host computes it for every device: some
  // fuse the final norm with the head.
  Stage& hidden() { return hidden_; }
  size_t dispatches_per_token() const { return decode_.steps.size(); }
  // Events that a recording of `prompt` rows and then `tokens` single ones takes, at most.
  size_t event_count(size_t prompt, size_t tokens) const;

  // Memory that several stages or devices share, where its owner has it.
  std::byte* owned(Role role) const;
  Buffer& residual_of(Device* device);
  const std::byte* hidden_rows() const;
  // Binds a stage to the caches of one sequence, where each has its own.
  void bind_caches(Stage& stage, size_t caches);

 private:
  struct Planned {
    ForwardProgram forward;
    Stage stage;
  };
  struct Loading;

  bool has_fixed_rows() const { return !fixed_shapes(devices_.first).prompt_rows.empty(); }
  KvNeeds kv_needs() const;
  void build(const Progress& progress);
  void find_pass_costs();
  // `shape` says what differs between stages.
  Planned plan(Part part, Fusion fusion, ForwardShape shape);
  std::vector<uint8_t> placement(Part part, const Program& program);
  Stage prepare(Planned planned, Loading& loading);
  void compile_forms(std::span<Stage* const> stages, const Progress& progress);
  Step make_step(const Stage& stage, const Piece& piece, const ForwardProgram& forward,
                 const std::vector<DispatchLabel>& labels);
  Device* owner_in(const Stage& stage, const Slot& slot, Device& user) const;
  Buffer& buffer(const Slot& slot, Device* owner);

  const Model& model_;
  const DeviceOrder& devices_;
  const ForwardOptions options_;
  Trace& trace_;
  const uint32_t context_;
  const uint32_t chunk_, head_rows_;
  const uint32_t candidates_;  // that the first device picks from a row of logits; 0: none
  const std::vector<float> frequencies_;
  KvStore kv_;
  std::map<SlotKey, Device*> owners_;                      // who allocates what several devices use
  std::map<SlotKey, uint64_t> most_rows_;                  // in any part
  std::map<std::pair<SlotKey, Device*>, Buffer> buffers_;  // the parts share them
  Device* rotating_ = nullptr;
  std::vector<Prefill> prefills_;  // ascending rows, the last of chunk_
  PassCosts pass_costs_;
  Stage head_, decode_, head_of_best_, decode_of_best_, hidden_;
};

}  // namespace tyto
