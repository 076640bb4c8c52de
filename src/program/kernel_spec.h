// What each kernel means: its arguments in order, and the work one call of it declares.
#pragma once

#include <cstdint>
#include <span>
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

struct KernelSpec {
  Kernel kernel;
  std::string_view name;
  std::string_view meaning;
  std::span<const std::string_view> args;  // required ones; one more may follow: matmul's
                                           // bias, and where add and rope write instead of x
  Cost (*cost)(const Program&, const Launch&, const Call&);
};

const KernelSpec& spec(Kernel kernel);
std::span<const KernelSpec> kernel_specs();

Cost cost(const Program& program, const Call& call);  // of all launches

// Throws a device Error when a launch has the wrong arguments or shapes that do not fit together:
// called once per loaded program, so that kernels need not check.
void check(const Program& program);

}  // namespace tyto
