// Modelled time of a whole program as one submission.
#pragma once

#include "cost/cost_model.h"

namespace tyto::testing_support {

inline double program_ms(const Program& program, const Call& call) {
  double kernels = 0;
  for (const Launch& launch : program.launches) kernels += launch_ms(program, launch, call);
  return elf_ms(static_cast<unsigned>(program.launches.size()), kernels);
}

}  // namespace tyto::testing_support
