// The tables of families, types and devices in docs/models.md are made of the code's own lists and
// of what devices say they cannot do. tools/write_family_table.py writes what this test wants.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "base/spelling.h"
#include "device/cpu/packed_weights.h"
#include "device/vnpu/machine/control.h"
#include "device/vulkan/kernel_calls.h"
#include "device/vulkan/kernel_shapes.h"
#include "llama/forward_program.h"
#include "model/families.h"
#include "model/synth.h"
#include "program/kernels.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

constexpr const char* kBegin = "<!-- families -->\n";
constexpr const char* kEnd = "<!-- end of families -->\n";

// Its own small shape, or Llama's with what follows from the family's name.
Config config_of(const Family& family) {
  for (const std::string& name : shape_names())
    if (name == "tiny" || name.starts_with("tiny-"))
      if (Config config = shape_by_name(name); config.architecture == family.model_type)
        return config;
  Config config = shape_by_name("tiny");
  config.architecture = family.model_type;
  apply(family, config);
  return config;
}

using Reasons = std::set<std::pair<std::string, std::string>>;  // why, kernel

template <typename WhyNot>
Reasons reasons_of(const Model& model, const WhyNot& why_not) {
  Reasons reasons;
  const std::vector<float> frequencies = rope_frequencies(model.config);
  const ForwardShape shape{.rows = 1, .context = 512, .kv_page = 256, .kv_pages = 2};
  const Program program = forward_program(model, frequencies, Part::whole, shape).program;
  for (const Launch& launch : program.launches)
    if (const auto reason = why_not(program, launch))
      reasons.emplace(*reason, spec(launch.kernel).name);
  return reasons;
}

// Whether or not this machine has a GPU.
Reasons vulkan_reasons(const Model& model) {
  return reasons_of(model, vulkan::why_not);
}

Reasons cpu_reasons(const Model& model) {
  ThreadPool pool(1);
  Trace trace;
  const auto cpu = open_device("cpu", {pool, trace});
  return reasons_of(model, [&](const Program& program, const Launch& launch) {
    const auto refusal = cpu->why_not(program, launch);
    return refusal ? std::optional(refusal->reason) : std::nullopt;
  });
}

// A device that keeps what it says.
class Asked : public Device {
 public:
  Asked(Device& inner, Reasons& reasons) : inner_(inner), reasons_(reasons) {}

  DeviceInfo info() const override { return inner_.info(); }
  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    auto refusal = inner_.why_not(program, launch);
    if (refusal) reasons_.emplace(refusal->reason, spec(launch.kernel).name);
    return refusal;
  }
  Buffer alloc(const Slot& slot, uint32_t sequence) override {
    return inner_.alloc(slot, sequence);
  }
  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    inner_.sync(buffer, direction, offset, bytes);
  }
  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return inner_.load(program, weights);
  }

 private:
  Device& inner_;
  Reasons& reasons_;
};

// For a prompt and a token, with images of blocks.
Reasons npu_reasons(const Model& model) {
  vxrt::reset();
  ThreadPool pool(2);
  Trace trace;
  const DeviceEnv env{pool, trace, Fusion::block, model_dims(model.config, 0),
                      testing_support::settings_of(NpuSettings{})};
  const auto npu = open_device("vnpu", env), cpu = open_device("cpu", env);
  Reasons reasons;
  Asked asked(*npu, reasons);
  Device* const order[] = {&asked, cpu.get()};
  PipelineOptions options;
  options.forward.fusion = Fusion::block;
  OneSequence sequence(model, order, options, trace);
  const Token prompt[] = {1, 2, 3}, next[] = {4};
  sequence.run(prompt);
  sequence.run(next);
  vxrt::reset();
  return reasons;
}

std::string cell(const Reasons& reasons, const Reasons& of_llama) {
  std::map<std::string, std::vector<std::string>> kernels;
  for (const auto& [why, kernel] : reasons)
    if (!of_llama.contains({why, kernel})) kernels[why].push_back(kernel);
  std::vector<std::string> parts;
  for (const auto& [why, names] : kernels)
    parts.push_back(fmt::format("`{}`: {}", joined(names, "` `"), why));
  return parts.empty() ? "nothing" : joined(parts, "; ");
}

std::string family_table() {
  std::string table = "| `model_type` | cpu | npu, blocks of bf16 | vulkan |\n|---|---|---|---|\n";
  const RandomModel llama = random_model(config_of(families().front()), DType::bf16);
  const Reasons npu = npu_reasons(llama.model), vulkan = vulkan_reasons(llama.model);
  for (const Family& family : families()) {
    const RandomModel random = random_model(config_of(family), DType::bf16);
    table += fmt::format("| `{}` | {} | {} | {} |\n", family.model_type,
                         cell(cpu_reasons(random.model), {}), cell(npu_reasons(random.model), npu),
                         cell(vulkan_reasons(random.model), vulkan));
  }
  return table;
}

std::string type_table() {
  std::string table = "\n| type | `tyto quantize` | cpu | vulkan |\n|---|---|---|---|\n";
  for (uint32_t id = 0; id < 64; ++id) {
    const auto type = dtype_from_ggml(id);
    if (!type || *type == DType::i32) continue;
    const bool packed = cpu::packed_layout(*type).code_bytes > 0;
    table += fmt::format(
        "| {} | {} | {} | {} |\n", info(*type).name, is_encodable(*type) ? "writes it" : "reads it",
        packed ? "packed" : "row by row in f32", vulkan::name(vulkan::weight_form(*type)));
  }
  return table;
}

TEST(FamilyTable, IsWhatTheDevicesSay) {
  const std::string expected = kBegin + family_table() + type_table() + kEnd;
  const std::filesystem::path made = std::filesystem::path(TYTO_BUILD_DIR) / "family_table.md";
  std::ofstream(made) << expected;
  const std::string page =
      read_text_file(std::filesystem::path(TYTO_SOURCE_DIR) / "docs/models.md", 1 << 20);
  EXPECT_NE(page.find(expected), std::string::npos)
      << "the tables of docs/models.md are old: tools/write_family_table.py " << TYTO_BUILD_DIR;
}

}  // namespace
}  // namespace tyto
