// Runs a program's launches on host memory. Values are stored as the slots say (f32, or bf16 as on
// an NPU); each launch computes in f32 and rounds once when it stores. The CPU device and the
// virtual NPU are both made of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/operations.h"
#include "program/kernels.h"
#include "program/pattern.h"
#include "program/program.h"

namespace tyto::cpu {

// Which neighbouring launches the CPU runs as one parallel loop: matrices, also of experts, that
// share their activations, and what is done element by element with their results. The results are
// the same bits; a token has fewer loops to start and to wait for.

constexpr size_t kMostFused = 3;

// How many launches from `first` on run together; 1: that one alone.
size_t fused_launches(const Program& program, size_t first);

// Runs as many launches as fused_launches() said, given in order.
void run_fused(std::span<const Operation> operations);

// Throws an input Error unless every launch has arguments, types and sizes the kernels can run.
void check_launches(const Program& program, const std::string& where);

// Why the kernels that use a slot cannot take its values from where a pattern puts them: matrices
// have whole rows, integers no gaps, and the rest may lie anywhere.
std::optional<std::string> pattern_problem(const Program& program, size_t slot,
                                           const Pattern& pattern);

// Executes one program. Used by one thread; keeps its working memory between calls.
class Interpreter {
 public:
  // The program has passed check_launches and outlives this. `patterns`, without a pattern_problem,
  // say where each slot's values are in its buffer; none: one after the other.
  explicit Interpreter(const Program& program, const std::vector<Pattern>& patterns = {},
                       const InnerLoops& loops = best_inner_loops());

  // From now on a product with this weight reads the packed form, which outlives this.
  void use_packed(uint16_t slot, const PackedMatrix& matrix) { packed_[slot] = &matrix; }

  // Launches that run as one loop, in order; most are alone.
  std::span<const LaunchGroup> groups() const { return groups_; }

  // Nothing, or why the call cannot run: a slot without memory, misaligned, an id out of
  // its table, a call that does not fit. buffers[slot] holds at least what the slot's pattern
  // reaches.
  std::optional<std::string> why_not(std::span<std::byte* const> buffers, const Call& call) const;
  // `ends_ns`, where given, gets the time at which each group ended: [groups].
  void run(std::span<std::byte* const> buffers, const Call& call, ThreadPool& pool,
           Numerics numerics = Numerics::bf16, std::span<uint64_t> ends_ns = {});
  // What the last run did not read of what its groups' cost declares: [groups].
  std::span<const uint64_t> unread_bytes() const { return unread_bytes_; }

 private:
  // One argument of a launch: where it lies, and how its kernel takes it.
  struct Argument {
    uint16_t slot = 0;
    ArgSpec spec = {};
    bool is_widened = false;  // computed on in an f32 copy
    uint64_t offset = 0;      // bytes from the beginning of the slot's buffer
  };
  // What a launch is made of, found once: calls only fill in their rows.
  struct Compiled {
    const Launch* launch = nullptr;
    std::vector<Argument> args;  // [launch.args]
    uint64_t matrix_stride = 0;
    bool has_matrix = false;
    bool widens_cache = false;
    bool counts_experts = false;
    uint64_t expert_bytes = 0;
  };

  Compiled compile(const Launch& launch) const;
  bool is_widened(const Launch& launch, size_t arg) const;
  std::byte* begin_of(size_t slot, std::span<std::byte* const> buffers) const;
  std::vector<LaunchGroup> find_groups() const;
  void run_alone(const Compiled& compiled, std::span<std::byte* const> buffers, const Call& call,
                 ThreadPool& pool, Numerics numerics);
  std::span<const Operation> operations(const LaunchGroup& group,
                                        std::span<std::byte* const> buffers, const Call& call,
                                        ThreadPool& pool, Numerics numerics);
  Operation operation(const Compiled& compiled, std::span<std::byte* const> buffers,
                      const Call& call, ThreadPool& pool, Numerics numerics);
  void share_exponents(const Compiled& compiled, std::byte* storage, const Call& call);
  uint64_t unread_bytes(const LaunchGroup& group, const Call& call) const;
  Operand load(const Compiled& compiled, size_t arg, std::byte* storage, const Call& call,
               ThreadPool& pool);
  void store(const Compiled& compiled, size_t arg, std::byte* storage, const Call& call,
             ThreadPool& pool);

  const Program& program_;
  const InnerLoops& loops_;
  std::vector<const PackedMatrix*> packed_;  // [program_.slots], null where not packed
  std::vector<Pattern> patterns_;            // [program_.slots], simplified
  std::vector<Compiled> compiled_;           // [program_.launches]
  std::vector<LaunchGroup> groups_;
  std::vector<std::vector<float>> widened_;  // [arguments of the launch at hand]
  std::vector<Operation> fused_operations_;
  std::vector<uint64_t> unread_bytes_;
  size_t experts_read_ = 0;  // by the group at hand
};

}  // namespace tyto::cpu
