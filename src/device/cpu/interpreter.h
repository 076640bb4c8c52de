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
#include "device/cpu/numerics.h"
#include "device/device.h"
#include "program/pattern.h"
#include "program/program.h"

namespace tyto::cpu {

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
  explicit Interpreter(const Program& program, const std::vector<Pattern>& patterns = {});

  // Nothing, or what the hardware would choke on: a slot without memory, misaligned, an id out of
  // its table, a call that does not fit. buffers[slot] holds at least what the slot's pattern
  // reaches.
  std::optional<std::string> why_not(std::span<std::byte* const> buffers, const Call& call) const;
  // `ends_ns`, where given, gets the time at which each launch ended: [launches].
  void run(std::span<std::byte* const> buffers, const Call& call, ThreadPool& pool,
           Numerics numerics = Numerics::bf16, std::span<uint64_t> ends_ns = {});

 private:
  struct Step {
    Program program;              // one slot per argument, of the type the CPU's kernel takes
    Launch launch;                // argument i is slot i
    std::vector<uint16_t> slots;  // argument i's slot in the whole program
  };

  bool is_widened(const Step& step, size_t arg) const;
  std::byte* begin_of(size_t slot, std::span<std::byte* const> buffers) const;
  void load(const Step& step, size_t arg, std::byte* storage, const Call& call, ThreadPool& pool);
  void store(const Step& step, size_t arg, std::byte* storage, const Call& call, ThreadPool& pool);

  const Program& program_;
  std::vector<Pattern> patterns_;            // [program_.slots], simplified
  std::vector<Step> steps_;                  // [program_.launches]
  std::vector<std::vector<float>> widened_;  // [arguments of the launch at hand]
  std::vector<Buffer> views_;
};

}  // namespace tyto::cpu
