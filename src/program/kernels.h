// What each kernel means, one row per kernel: its arguments in order, which shapes fit, the work a
// call of it declares, and where the profile counts it. Whoever knows a kernel reads its row.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "program/program.h"

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
  cache,     // of keys or values
  integers,  // a row per row of the call, i8 or i32
};

struct ArgSpec {
  std::string_view name = {};
  ArgKind kind = ArgKind::rows;
  bool reads = false;
  bool writes = false;
};

constexpr size_t kMostArgs = 5;

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
// Of argument `arg` as this launch uses it.
ArgSpec arg_spec(const Launch& launch, size_t arg);

// Where the operator breakdown of a profile counts a launch.
Operator operator_of(const Launch& launch);

Cost cost(const Program& program, const Launch& launch, const Call& call);
Cost cost(const Program& program, const Call& call);  // of all launches

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

// What the attention of any layer of the program has beyond a causal softmax: "window". Empty:
// nothing, or the launch is neither attention nor what fills its cache. Of all layers, since they
// share their buffers and keep their caches on one device.
std::string beyond_causal_attention(const Program& program, const Launch& launch);

// Throws a device Error when a launch has the wrong arguments or shapes that do not fit together:
// called once per loaded program, so that kernels need not check.
void check(const Program& program);

}  // namespace tyto
