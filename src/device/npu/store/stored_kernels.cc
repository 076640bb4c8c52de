#include "device/npu/store/stored_kernels.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/store/kernel_store.h"

namespace tyto {
namespace {

constexpr uint32_t kUsualPromptRows = 2048;  // the published builds'

// Whether images built for `built` run a model of these dimensions.
bool fits(const KernelEntry& entry, const AirDims& wanted) {
  if (entry.program == kInt8Gemm) return true;  // for any product of its K
  return same_images(entry.program, entry.dims, wanted);
}

// The lengths of prompts that all prefill programs are there for, ascending.
std::vector<uint32_t> prompt_rows(const KernelManifest& manifest, AirDims dims) {
  std::map<uint32_t, size_t> programs;
  for (const KernelEntry& entry : manifest.entries) {
    dims.seq = entry.dims.seq;
    if (depends_on_prompt(entry.program) && fits(entry, dims)) ++programs[dims.seq];
  }
  std::vector<uint32_t> rows;
  for (const auto& [seq, count] : programs)
    if (count == count_programs(dims, AirPhase::prompt)) rows.push_back(seq);
  return rows;
}

// All that the image functions below look into.
struct Stored {
  std::filesystem::path store;
  KernelManifest manifest;
  AirDims dims;

  const KernelEntry* find(std::string_view program, uint32_t window) const {
    AirDims wanted = dims;
    if (depends_on_prompt(program)) wanted.seq = std::exchange(window, 0);
    for (const KernelEntry& entry : manifest.entries)
      if (entry.program == program && entry.window == window && fits(entry, wanted)) return &entry;
    return nullptr;
  }
};

std::optional<std::string> why_no_image(const Stored& stored, std::string_view program,
                                        uint32_t window) {
  const KernelEntry* entry = stored.find(program, window);
  if (entry == nullptr)
    return fmt::format(
        "no image of {} for this model is in the kernel store (`tyto compile` says "
        "how to build it)",
        program);
  KernelEntry checked = *entry;
  const CheckReport report = check_entries(stored.store, {&checked, 1}, false);
  if (report.problems.empty()) return std::nullopt;
  return fmt::format("the image of {} is {}: {}", program, to_string(report.problems.front().fault),
                     report.problems.front().reason);
}

// An image that contradicts its entry ends here: XRT would load it.
NpuImage read_image(const Stored& stored, std::string_view program, uint32_t window) {
  const KernelEntry* entry = stored.find(program, window);
  TYTO_ASSERT(entry != nullptr);
  NpuImage image;
  image.kernel = entry->entry;
  image.run_bytes = entry->run_bytes;
  const AirProgram abi = program_of(*entry);
  uint32_t longest = 0;
  for (const StoredImage& part : entry->images) longest = std::max(longest, part.length);
  for (const StoredImage& part : entry->images) {
    const MappedFile file(image_path(stored.store, part));
    const bool is_base = part.length == longest;
    ImageFacts facts = inspect_image(file.bytes(), part.kind, file.path().string());
    check_fit(facts, abi, {entry->shape, stored.dims}, file.path().string());
    if (part.kind == ImageKind::insts) {
      (is_base ? image.words : image.reference_words) = std::move(facts.words);
      (is_base ? image.length : image.reference_length) = part.length;
    } else if (is_base) {
      image.form = part.kind;
      image.bytes.assign(file.bytes().begin(), file.bytes().end());
      image.hash = hash_bytes(image.bytes);
    }
  }
  return image;
}

std::vector<uint32_t> windows(const Stored& stored) {
  std::vector<uint32_t> result;
  for (const KernelEntry& entry : stored.manifest.entries)
    if (entry.program == kFusedDecode && fits(entry, stored.dims) &&
        !why_no_image(stored, kFusedDecode, entry.window))
      result.push_back(entry.window);
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<GemmSlot> gemm_slots(const Stored& stored) {
  std::vector<GemmSlot> slots;
  for (const KernelEntry& entry : stored.manifest.entries)
    if (entry.program == kInt8Gemm && !why_no_image(stored, kInt8Gemm, entry.window))
      slots.push_back(
          {entry.name, entry.window, entry.m_tile, entry.n_tile, entry.columns.value_or(0)});
  check_slots(slots);
  return slots;
}

}  // namespace

std::filesystem::path default_kernel_store() {
  return cache_folder() / "kernels";
}

AirDims air_dims(const ModelDims& model, uint32_t seq) {
  return {model.layers, model.emb,   model.heads, model.kv_heads, model.head_dim,
          model.hidden, model.vocab, seq,         model.qkv_bias, model.qk_norm};
}

void describe_shapes(const DeviceEnv& env, NpuKernels& kernels) {
  const NpuSettings settings = npu_settings(env);
  DeviceInfo& info = kernels.info;
  FixedShapes& fixed = info.fixed.emplace();
  info.activations = DType::bf16;
  info.numerics = settings.block_float ? "bfp16" : "bf16";
  const auto form = env.settings.find("weights");
  info.weight_form = form == env.settings.end() ? "bf16" : form->second;
  if (settings.weights == NpuWeights::int8) {  // the host computes all but the projections
    info.activations = DType::f32;
    info.numerics = "int8";
    return;
  }
  if (env.model.layers > 0) {
    // Without any images each program says what is missing.
    if (kernels.prompt_rows.empty()) kernels.prompt_rows = {kUsualPromptRows};
    kernels.dims.seq = kernels.prompt_rows.back();
    if (!env.model.beyond_images.empty()) kernels.windows.clear();
    fit_contexts(env, settings, kernels);
  }
  fixed.prompt_rows = kernels.prompt_rows;
  if (settings.weights != NpuWeights::q4nx || kernels.windows.empty()) return;
  const Q4nxLayout layout = q4nx_layout(kernels.dims, kernels.windows.back());
  fixed.most_positions = kernels.windows.back();
  fixed.kv = KvForm{DType::bf16, static_cast<uint32_t>(layout.kv_group_heads)};
}

NpuKernels stored_kernels(const std::filesystem::path& store, StoredFor whom, AirDims dims) {
  auto stored = std::make_shared<Stored>();  // shared by the functions below
  stored->store = store;
  stored->manifest = read_manifest(store);
  std::erase_if(stored->manifest.entries, [&](const KernelEntry& entry) {
    return (entry.platform == kVirtualPlatform) != (whom == StoredFor::virtual_npu);
  });
  stored->dims = dims;
  NpuKernels kernels;
  kernels.dims = dims;
  kernels.prompt_rows = prompt_rows(stored->manifest, dims);
  kernels.windows = windows(*stored);
  kernels.gemm_slots = gemm_slots(*stored);
  kernels.why_no_image = [stored](std::string_view program, uint32_t window) {
    return why_no_image(*stored, program, window);
  };
  kernels.is_recorded = [stored](std::string_view program, uint32_t window) {
    return stored->find(program, window) != nullptr;
  };
  kernels.image = [stored](std::string_view program, uint32_t window) {
    return read_image(*stored, program, window);
  };
  return kernels;
}

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
