// What each kernel means, one row per kernel: its arguments in order, which shapes fit, the work a
// call of it declares, and where the profile counts it. All that knows a kernel reads its row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

struct Cost {
  uint64_t bytes = 0;  // read and written, each once
  uint64_t flops = 0;  // two per multiply-accumulate
  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

// What an argument is to its kernel, and so which of its rows a call touches.
enum class ArgKind : uint8_t {
  ids,       // i32, one per row of the call
  matrix,    // a weight, read in its own type
  vector,    // one row of values
  rows,      // a row of values per row of the call
  gathered,  // the rows that the segments name
  cache,     // keys or values
  integers,  // a row per row of the call, i8 or i32
  state,     // what the segments' sequences keep of a recurrent layer
};

struct ArgSpec {
  std::string_view name = {};
  ArgKind kind = ArgKind::rows;
  bool reads = false;
  bool writes = false;
};

constexpr size_t kMostArgs = 7;
constexpr uint32_t kMostTaps = 4;  // causal_conv

struct KernelSpec {
  Kernel kernel;
  std::string_view name;
  std::string_view meaning;
  std::array<ArgSpec, kMostArgs> args;
  uint8_t required;  // arguments; `most` are allowed
  uint8_t most;
  // With the required arguments alone it changes its first one in place; with one more it writes
  // there instead.
  bool may_be_in_place;
  Operator op;  // products and casts count where their role does, see operator_of()
  bool (*fits)(const Program&, const Launch&);
  Cost (*cost)(const Program&, const Launch&, const Call&);
};

const KernelSpec& spec(Kernel kernel);
// Describes argument `arg` as this launch uses it.
ArgSpec arg_spec(const Launch& launch, size_t arg);

// Where the operator breakdown of a profile counts a launch.
Operator operator_of(const Launch& launch);

Cost cost(const Program& program, const Launch& launch, const Call& call);
Cost cost(const Program& program, const Call& call);  // all launches'

// The cost of one call after the other of a program, which outlives it. Launches that do not look
// at segments cost the same in calls of as many rows: they are added up when that number changes.
class CallCost {
 public:
  explicit CallCost(const Program& program) : program_(program) {}
  Cost of(const Call& call);

 private:
  const Program& program_;
  uint32_t rows_ = 0;  // 0: none yet
  Cost by_rows_;
};

// What expert_matmul reads of its weight and bias for one expert. Its cost declares as many experts
// as the call's rows can take at most; who runs it knows how many it was.
uint64_t expert_bytes(const Program& program, const Launch& launch);
uint64_t most_experts(const Program& program, const Launch& launch, const Call& call);

// The argument that is a kernel's first cache, the second follows it; nothing: it has none.
constexpr size_t kNoArg = SIZE_MAX;
size_t cache_arg(const Launch& launch);

// The argument that is a kernel's state; kNoArg: it has none.
size_t state_arg(const Launch& launch);

// What the attention of any layer of the program has beyond a causal softmax: "window". Empty:
// nothing, or the launch is neither attention nor what fills its cache. Of all layers, since they
// share their buffers and keep their caches on one device.
std::string beyond_causal_attention(const Program& program, const Launch& launch);

// Throws a device Error when a launch has the wrong arguments or shapes that do not fit together:
// called once per loaded program, so that kernels need not check.
void check(const Program& program);

// What programs and their launches are called in a recording.

// Neighbouring launches that a device runs as one.
struct LaunchGroup {
  size_t first = 0;
  size_t count = 1;
};
std::vector<LaunchGroup> groups_of_one(const Program& program);

// [groups]; one of several launches is named after all of them, "q+k+v", and counts as the operator
// of the first. For set-up: it may allocate.
std::vector<uint16_t> launch_names(Trace& trace, const Program& program,
                                   std::span<const LaunchGroup> groups);

// Names a dispatch that runs all of `program`: its only launch, its block, or the program's name.
EventName dispatch_name(const Program& program);

// The groups of a dispatch that just completed, one after the other: group i ended at `ends_ns[i]`,
// the first began at `start_ns`. `unread_bytes`: of what its cost declares, none where not given.
void record_launches(Trace& trace, const Program& program, std::span<const LaunchGroup> groups,
                     std::span<const uint16_t> names, const Call& call, uint8_t device,
                     uint64_t start_ns, std::span<const uint64_t> ends_ns,
                     std::span<const uint64_t> unread_bytes = {});

// One group, without its times.
Event launch_event(Trace& trace, const Program& program, const LaunchGroup& group, uint16_t name,
                   const Call& call, uint8_t device);

}  // namespace tyto
