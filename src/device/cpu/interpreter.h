// Runs a program's launches on host memory. Values are stored as the slots say (f32, or bf16 as on
// an NPU); each launch computes in f32 and rounds once when it stores. The CPU device and the
// virtual NPU are both made of this.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "program/program.h"

namespace tyto::cpu {

// Throws an input Error unless every launch has arguments, types and sizes the kernels can run.
void check_launches(const Program& program, const std::string& where);

// Executes one program. Used by one thread; keeps its working memory between calls.
class Interpreter {
 public:
  explicit Interpreter(const Program& program);  // has passed check_launches, and outlives this

  // Nothing, or what the hardware would choke on: a slot without memory, misaligned, an id out of
  // its table, a call that does not fit. buffers[slot] holds at least the slot's bytes.
  std::optional<std::string> why_not(std::span<std::byte* const> buffers, const Call& call) const;
  void run(std::span<std::byte* const> buffers, const Call& call, ThreadPool& pool);

 private:
  struct Step {
    Program program;              // one slot per argument, of the type the CPU's kernel takes
    Launch launch;                // argument i is slot i
    std::vector<uint16_t> slots;  // argument i's slot in the whole program
  };

  void load(const Step& step, size_t arg, std::byte* storage, const Call& call, ThreadPool& pool);
  void store(const Step& step, size_t arg, std::byte* storage, const Call& call, ThreadPool& pool);

  const Program& program_;
  std::vector<Step> steps_;                  // [program_.launches]
  std::vector<std::vector<float>> widened_;  // [arguments of the launch at hand]
  std::vector<Buffer> views_;
};

}  // namespace tyto::cpu
