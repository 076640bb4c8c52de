#include "device/npu/npu_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/spelling.h"
#include "device/npu/formats/air_models.h"

namespace tyto {
namespace {

constexpr std::string_view kWeightForms[] = {"bf16", "int8", "q4nx"};
constexpr std::string_view kMachines[] = {"strix", "strix-halo", "krackan"};
constexpr std::string_view kNumerics[] = {"bf16", "bfp16"};
constexpr uint32_t kLeastRows = 64, kMostRows = 65536;

constexpr std::string_view kOnOff[] = {"off", "on"};
constexpr std::string_view kDecodeForms[] = {"elf", "windows"};
constexpr std::string_view kFirstDispatch[] = {"trust", "check"};

constexpr std::array<DeviceSetting, 11> kSettings = {{
    {"npu-device",
     "BDF",
     {},
     "which NPU, by its PCI address or a part of its name (default: the first)"},
    {.name = "weights",
     .choices = kWeightForms,
     .meaning = "type of the weights on the NPU; int8 needs --fusion op, q4nx needs --fusion token "
                "(default: bf16)",
     .changes_results = true},
    {.name = "prompt-rows",
     .value = "N,...",
     .meaning = "rows of the prefill kernels that prompts may use (default: all imported ones; "
                "virtual NPU: 256,512,2048)",
     .changes_results = true},
    {"decode-images", "", kDecodeForms,
     "images of --weights q4nx: one ELF for every length, or windows (default: what is imported, "
     "the ELF first; virtual NPU: windows)"},
    {"first-dispatch", "", kFirstDispatch,
     "check: repeat a q4nx decode's first dispatch until two results agree (verify: check; "
     "others: trust)"},
    {"guard", "", kOnOff, "check the row sums of matrix products on the host (default: off)"},
    {"vnpu-machine", "", kMachines, "machine whose speed the virtual NPU models (default: strix)"},
    {.name = "vnpu-numerics",
     .choices = kNumerics,
     .meaning = "number format of the virtual NPU's GEMMs (default: bf16)",
     .changes_results = true},
    {"vnpu-hostile", "", kOnOff,
     "test: treat mistakes as a real NPU would instead of reporting them (default: off)"},
    {"vnpu-fault",
     "FAULT",
     {},
     "test: make the virtual NPU fail: timeout@N, error@N, hang, oom, context-lost, slowxK, "
     "corrupt@N, flip@N, first-wrong"},
    {.name = "images-like",
     .value = "NAME",
     .meaning =
         "arrange the virtual NPU's bf16 images as for a published model, such as llama-3.2-3b",
     .changes_results = true},
}};

uint64_t number(const std::string& name, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw Error(ErrorCode::usage, fmt::format("--{} {}", name, text),
                fmt::format("expected a number from {} to {}", least, most));
  return value;
}

NpuWeights weights_named(const std::string& name) {
  const auto* const found = std::find(std::begin(kWeightForms), std::end(kWeightForms), name);
  if (found == std::end(kWeightForms))
    throw Error(ErrorCode::usage, "--weights " + name, "no such form",
                "there are " + joined(kWeightForms, ", "));
  return static_cast<NpuWeights>(found - std::begin(kWeightForms));
}

std::vector<uint64_t> numbers(const std::string& name, const std::string& text, uint64_t least,
                              uint64_t most) {
  std::vector<uint64_t> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    result.push_back(number(name, std::string_view(text).substr(begin, end - begin), least, most));
    begin = end + 1;
  }
  return result;
}

// "64x16,128": K, perhaps with tokens.
std::vector<std::pair<uint64_t, uint64_t>> gemm_lengths(const std::string& name,
                                                        const std::string& text) {
  std::vector<std::pair<uint64_t, uint64_t>> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t by = part.find('x');
    const uint64_t tokens = by == std::string::npos
                                ? 0
                                : number(name, std::string_view(part).substr(by + 1), 1, 1 << 16);
    result.emplace_back(number(name, std::string_view(part).substr(0, by), 1, UINT32_MAX), tokens);
    begin = end + 1;
  }
  return result;
}

std::vector<uint32_t> row_counts(const std::string& name, const std::string& text) {
  std::set<uint32_t> rows;
  for (const uint64_t each : numbers(name, text, kLeastRows, kMostRows)) {
    if (each % kLeastRows != 0)
      throw Error(ErrorCode::usage, fmt::format("--{} {}", name, each),
                  fmt::format("prefill kernels have multiples of {} rows", kLeastRows));
    rows.insert(static_cast<uint32_t>(each));
  }
  return {rows.begin(), rows.end()};
}

uint32_t like_named(const std::string& name) {
  if (const auto like = images_like(name)) return *like;
  throw Error(ErrorCode::usage, "--images-like " + name, "no images of such a model are known",
              "there are " + joined(known_air_models(), ", ", &KnownAirModel::name));
}

void check_fusion(const NpuSettings& settings, Fusion fusion) {
  if (settings.weights == NpuWeights::int8 && fusion != Fusion::op && !settings.int8_blocks)
    throw Error(ErrorCode::usage, "--weights int8", "its kernels are single GEMMs",
                "give --fusion op too");
  if (settings.weights == NpuWeights::q4nx && fusion != Fusion::token)
    throw Error(ErrorCode::usage, "--weights q4nx", "its kernel takes a whole token",
                "give --fusion token too");
  if (settings.weights == NpuWeights::int8 && settings.images_like != 0)
    throw Error(ErrorCode::usage, "--images-like", "its bf16 images have no int8 weights",
                "leave it out, or --weights");
  if (settings.guard && fusion == Fusion::token)
    throw Error(ErrorCode::usage, "--guard on",
                "with --fusion token no operand of a product leaves the NPU's cores",
                "give --fusion block or op");
}

}  // namespace

std::span<const DeviceSetting> npu_setting_rows() {
  return std::span(kSettings).first(6);
}

std::span<const DeviceSetting> vnpu_setting_rows() {
  return std::span(kSettings).subspan(1);
}

NpuSettings npu_settings(const DeviceEnv& env) {
  NpuSettings settings;
  for (const auto& [name, value] : env.settings) {
    if (name == "weights") settings.weights = weights_named(value);
    if (name == "npu-device") settings.device = value;
    if (name == "int8-blocks") settings.int8_blocks = true;
    if (name == "prompt-rows") settings.prompt_rows = row_counts(name, value);
    if (name == "first-dispatch") settings.check_first = value == "check";
    if (name == "guard") settings.guard = value == "on";
    if (name == "decode-images")
      settings.decode = value == "elf" ? DecodeForm::elf : DecodeForm::windows;
    if (name == "vnpu-machine") settings.machine = value;
    if (name == "vnpu-numerics") settings.block_float = value == "bfp16";
    if (name == "vnpu-hostile") settings.hostile = value == "on";
    if (name == "vnpu-fault") settings.fault = value;
    if (name == "images-like") settings.images_like = like_named(value);
    if (name == "gemm-lengths") settings.gemm_lengths = gemm_lengths(name, value);
  }
  check_fusion(settings, env.fusion);
  return settings;
}

}  // namespace tyto
