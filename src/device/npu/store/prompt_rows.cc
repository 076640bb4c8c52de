#include "device/npu/store/prompt_rows.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace tyto {
namespace {

// Beside the prompts': the LM head's image, and those that decode. Programs that are compiled here
// lie in one.
size_t other_images(const DeviceEnv& env, const NpuSettings& settings, const NpuKernels& kernels) {
  if (settings.weights == NpuWeights::q4nx) return 1 + kernels.windows.size();
  const size_t head = count_programs(kernels.dims, AirPhase::head);
  return head + (env.fusion == Fusion::block ? count_programs(kernels.dims, AirPhase::token) : 1);
}

}  // namespace

size_t count_programs(const AirDims& dims, AirPhase phase) {
  const std::vector<AirProgram> programs = air_model(dims).programs;
  return static_cast<size_t>(
      std::count_if(programs.begin(), programs.end(),
                    [&](const AirProgram& program) { return program.phase == phase; }));
}

std::vector<uint32_t> asked_rows(std::span<const uint32_t> there, std::span<const uint32_t> asked) {
  for (const uint32_t rows : asked)
    if (std::find(there.begin(), there.end(), rows) == there.end())
      throw Error(ErrorCode::usage, fmt::format("--prompt-rows {}", fmt::join(asked, ",")),
                  fmt::format("there are no prefill images of {} rows for this model", rows),
                  there.empty() ? std::string("`tyto compile --device npu` says how to build them")
                                : fmt::format("there are those of {}", fmt::join(there, ", ")));
  const std::span<const uint32_t> chosen = asked.empty() ? there : asked;
  return {chosen.begin(), chosen.end()};
}

void fit_contexts(const DeviceEnv& env, const NpuSettings& settings, NpuKernels& kernels) {
  std::vector<uint32_t>& rows = kernels.prompt_rows;
  if (rows.empty()) return;
  const size_t each = count_programs(kernels.dims, AirPhase::prompt);
  const auto others = [&] { return other_images(env, settings, kernels); };
  const auto left_out = [&](const std::string& images) {
    env.trace.fallback(fmt::format("{} not on {}: its {} contexts do not go round", images,
                                   kernels.info.name, kMostContexts));
  };
  const bool has_windows = settings.weights == NpuWeights::q4nx;
  while (has_windows && kernels.windows.size() > 1 && others() + each > kMostContexts) {
    left_out(fmt::format("the decode for {} positions", kernels.windows.front()));
    kernels.windows.erase(kernels.windows.begin());
  }
  const size_t most = (kMostContexts - std::min(kMostContexts, others())) / each;
  if (rows.size() > std::max<size_t>(most, 1) && !settings.prompt_rows.empty())
    throw Error(ErrorCode::usage, fmt::format("--prompt-rows {}", fmt::join(rows, ",")),
                fmt::format("each takes {} contexts beside {} others, and there are {}", each,
                            others(), kMostContexts),
                fmt::format("give at most {} of them", std::max<size_t>(most, 1)));
  while (rows.size() > std::max<size_t>(most, 1)) {
    const auto dropped = rows.size() > 2 ? rows.end() - 2 : rows.begin();
    left_out(fmt::format("prefill images of {} rows", *dropped));
    rows.erase(dropped);
  }
}

}  // namespace tyto
