// The forward pass made ready to run on its devices: programs placed, stitched, loaded and bound.
// Knows rows and pages, no sequences: llama/pipeline.h does.
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

#include "base/error.h"
#include "base/progress.h"
#include "device/device.h"
#include "llama/forward_program.h"
#include "llama/kv_pool.h"
#include "llama/prompt_passes.h"
#include "model/model.h"
#include "program/stitch.h"
#include "text/logits.h"
#include "text/vocabulary.h"
#include "trace/span.h"

namespace tyto {

// What an observer is shown of a dispatch that has just completed (check/observation.h).
struct DispatchView {
  Part part;
  const std::vector<Piece>& pieces;  // of the part
  size_t index;                      // of the one that ran
  std::span<const Buffer> buffers;   // [slots of the piece]
  Device& device;
  const Call& call;
  uint32_t position;  // of the call's first row
  bool in_halves;     // rows of q and k that a checkpoint has in pairs
};
using DispatchObserver = std::function<void(const DispatchView&)>;

struct ForwardOptions {
  uint32_t context = 0;               // 0: the model's
  uint32_t prefill_chunk = 0;         // rows per call; 0: as many as the device likes
  std::optional<Fusion> fusion = {};  // none: the device's own
  std::optional<DType> kv_type = {};  // none: the device's own, else f16
  uint64_t kv_memory = 0;             // bytes that caches may take; 0: enough for the contexts
  uint32_t kv_shares = 1;             // Forwards that divide that memory among them
  bool decodes = true;                // false: single tokens are another Forward's business
  uint32_t sequences = 1;             // of so many sequences at once
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // of one dispatch
  DispatchObserver observer = {};                                 // none: nothing is shown
};

// Pages that layers with a window have for themselves.
struct WindowShape {
  uint32_t pages = 0;       // 0: they lie in the pages of all layers
  uint64_t page_bytes = 0;  // of those layers, keys and values
};

// Where the devices of a Forward keep keys and values.
struct KvShape {
  uint32_t page = 0;        // positions
  uint32_t pages = 0;       // there is room for
  uint64_t page_bytes = 0;  // of all layers but those that `windowed` has, keys and values
  WindowShape windowed = {};
  bool is_one_piece = false;  // a page is a sequence's whole cache: kernels know no table
  uint32_t group = 1;         // heads side by side at each position (KvForm)
  DType type = DType::f16;
  bool in_halves = false;  // keys of heads whose rows the checkpoint has in pairs

  uint64_t bytes_of_page(KvKind kind) const {
    return kind == KvKind::full ? page_bytes : windowed.page_bytes;
  }
};

// What the head would see of a position: the residual stream after the final norm. [emb], valid
// during the call.
using OnHidden = std::function<void(uint32_t position, std::span<const float> hidden)>;

// Rows of one sequence.
struct BatchRows {
  std::span<const Token> tokens;
  uint32_t position = 0;               // of the first in its sequence
  std::span<const KvPage> pages = {};  // with room for all
  std::span<const KvPage> window_pages = {};
  uint32_t logits = 0;      // of the last so many rows
  uint32_t candidates = 0;  // of each one's best logits, that suffice; 0: all are wanted
  // Gets the batch's work in proportion to the rows.
  std::vector<DeviceCounters>* counters = nullptr;
  const OnHidden* on_hidden = nullptr;  // gets every row's hidden state, where given
  HandOvers* handed_over = nullptr;     // counts what Sides had to bring for it
};

// Used by one thread. Model and devices outlive it.
class Forward {
 public:
  // `devices` in order of preference.
  Forward(const Model& model, std::span<Device* const> devices, const ForwardOptions& options,
          Trace& trace, const Progress& progress = {});

  // The logits of rows[item], its last but `behind`: valid during the call.
  using OnLogits = std::function<void(size_t item, uint32_t behind, const Logits& logits)>;
  // At most most_rows() rows of at most most_together() sequences.
  void run(std::span<const BatchRows> rows, const OnLogits& on_logits);

  void copy_page(const KvTable::Copy& copy);
  // Positions of a page, of all layers that lie there, keys and values: bytes_of_page / page for
  // each, as [keys, values][layers][kv_heads / group][positions][group][head_dim].
  void read_page(KvPage page, KvRange range, std::span<std::byte> to, KvKind kind = KvKind::full);
  void write_page(KvPage page, KvRange range, std::span<const std::byte> from,
                  KvKind kind = KvKind::full);
  const KvShape& kv() const { return kv_; }
  DType kv_type() const { return kv_.type; }
  uint32_t context() const { return context_; }
  Fusion fusion() const { return options_.fusion.value_or(first_.fusion); }
  uint32_t most_rows() const { return chunk_; }
  uint32_t most_together() const { return most_segments_; }
  // Of the kernels for prompts, where those compute all the rows they were made for.
  const PassCosts& pass_costs() const { return pass_costs_; }
  size_t dispatches_per_token() const { return decode_.steps.size(); }
  // Events that a recording of `prompt` rows and then `tokens` single ones takes, at most.
  size_t event_count(size_t prompt, size_t tokens) const;

 private:
  // Bytes of a slot that two devices with memory of their own share: through the host.
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
  using SlotKey = std::pair<Role, uint16_t>;
  // A part of the forward pass, and who has the cache and the residual stream meanwhile.
  struct Stage {
    Part part = Part::body;
    bool picks = false;  // ends with candidates, not with logits
    std::vector<Piece> pieces = {};
    std::vector<Step> steps = {};            // [pieces]
    std::array<Device*, 2> kv_devices = {};  // [kinds]; none: it does not touch such a cache
    size_t caches = 0;                       // of caches_, that the steps are bound to
    Device* x_device = nullptr;              // the last to use the residual stream
    std::set<SlotKey> apart = {};            // what others than the host use in it
  };
  struct Planned {
    ForwardProgram forward;
    Stage stage;
  };
  // The body for up to so many rows.
  struct Prefill {
    uint32_t rows = 0;
    Stage first = {};  // of a pass from position 0, where that has kernels of its own
    Stage later = {};
  };
  using Caches = std::map<SlotKey, Buffer>;  // keys and values of all layers
  // A segment of a call, and whose it is.
  struct Row {
    Segment segment;
    std::vector<DeviceCounters>* counters = nullptr;
    size_t item = 0;    // head: of the batch
    uint32_t left = 0;  // head: logits that the item wants from here on
  };

  bool is_host(const Device* device) const { return hosts_.contains(device); }
  bool has_fixed_rows() const { return !first_.prompt_rows.empty(); }
  void choose_shapes(const ForwardOptions& options);
  void choose_caches();
  void choose_pages();
  uint64_t page_pitch() const;  // from page to page of one layer's keys, or values
  void build(const Progress& progress);
  void find_pass_costs();
  // `shape` says what differs between stages.
  Planned plan(Part part, Fusion fusion, ForwardShape shape);
  struct Loading;
  Stage prepare(Planned planned, Loading& loading);
  Step make_step(const Stage& stage, const Piece& piece, const ForwardProgram& forward,
                 const std::vector<DispatchLabel>& labels);
  Device* owner_in(const Stage& stage, const Slot& slot, Device& user) const;
  Buffer& buffer(const Slot& slot, Device* owner);
  Buffer& cache(const Slot& slot, Device& owner);

  Stage& body_for(uint32_t rows, uint32_t position);
  bool candidates_suffice(std::span<const BatchRows> rows) const;
  void run_head(Stage& head, std::span<const BatchRows> rows, const OnLogits& on_logits);
  void show_hidden(const Segment& segment, const OnHidden& on_hidden);
  void run_stage(Stage& stage, const std::vector<Row>& rows);
  void run_step(Stage& stage, size_t index, const Call& call, const std::vector<Row>& rows);
  Buffer& residual_of(Device* device);
  void move_residual(const Segment& rows, Device* to_device);
  size_t caches_of(KvPage page) const { return kv_.is_one_piece ? page : 0; }
  void bind_caches(Stage& stage, size_t index);
  KvKind kind_of(uint32_t layer) const;
  // Whether layers of a kind lie in pages of a kind.
  bool lie_in(KvKind pages, KvKind layers) const {
    return kv_.windowed.pages == 0 || pages == layers;
  }
  // Who has the newest copy of what layers of a kind have in a page; none: nobody yet. A device
  // may attend to everything and leave windows to the host's.
  Device*& home_of(KvKind layers, KvPage page) { return homes_[static_cast<size_t>(layers)][page]; }
  void move_pages(const Segment& segment, KvKind layers, Device& to);
  void copy_page(KvKind pages, KvPage from, KvPage to, uint32_t positions);
  uint64_t page_begin(KvPage page) const;
  // Where positions of a page lie in the caches: visit(key, buffer, offset, bytes).
  template <typename Visit>
  void for_each_run(KvPage page, KvRange range, const Visit& visit) const;
  void sync_page(KvKind layers, KvPage page, KvRange range, Device& device, Sync direction);
  Logits logits(uint32_t row);
  Logits candidates(uint32_t row);
  const std::byte* result_row(Role role, uint64_t bytes, uint32_t row) const;
  Logits result(const Stage& stage, uint32_t row) {
    return stage.picks ? candidates(row) : logits(row);
  }
  ErrorCode failure_code() const {  // of results that are no numbers
    return hosts_.size() == devices_.size() ? ErrorCode::input : ErrorCode::device;
  }

  const Model& model_;
  Trace& trace_;
  const uint16_t logits_name_, candidates_name_, cache_name_, hidden_name_;
  const std::vector<Device*> devices_;
  const ForwardOptions options_;
  const DeviceInfo first_;  // of devices_.front()
  const uint32_t context_;
  const std::vector<float> frequencies_;
  uint32_t chunk_ = 0;      // rows per prefill call
  uint32_t head_rows_ = 0;  // logits per call
  KvShape kv_;
  std::map<SlotKey, Device*> owners_;                      // who allocates what several devices use
  std::map<SlotKey, uint64_t> most_rows_;                  // of any part
  std::map<std::pair<SlotKey, Device*>, Buffer> buffers_;  // the parts share them
  std::vector<Caches> caches_;  // of each page where caches are one piece, else one for all pages
  std::array<std::vector<Device*>, 2> homes_;  // [kinds][pages]
  Device* x_home_ = nullptr;                   // who has the residual stream after the body
  Device* rotating_ = nullptr;
  std::set<const Device*> hosts_;  // those that compute in the host's memory
  uint32_t most_segments_ = UINT32_MAX;
  std::vector<Prefill> prefills_;  // ascending rows, the last of chunk_
  PassCosts pass_costs_;
  Stage head_;    // logits of up to head_rows_ rows
  Stage decode_;  // body and head of rows that all have logits, one of each sequence; may be empty
  const uint32_t candidates_ = 0;        // of a row of logits, that the first device picks
  Stage head_of_best_, decode_of_best_;  // the same with those, if any
  std::vector<Row> segments_, kept_;     // of the body's call, of the head's
  std::vector<Segment> call_segments_;
  std::vector<float> logits_;    // [vocab], for those who ask for bf16 ones in f32
  std::vector<Candidate> best_;  // [candidates_] of the row at hand
};

}  // namespace tyto
