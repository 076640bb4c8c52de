// Every form of MLIR-AIR's bf16 images, small, on the virtual NPU against Hugging Face's numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "device/npu/formats/air_models.h"
#include "golden/golden_data.h"
#include "model/model.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using golden::Fixture;
using golden::Prompt;

struct Form {
  const char* fixture;
  const char* like;  // empty: as the fixture's own dimensions are
};

void PrintTo(const Form& form, std::ostream* out) {
  *out << form.fixture << " like " << form.like;
}

constexpr Form kForms[] = {
    {"llama3", ""},
    {"qwen2", ""},
    {"qwen3", ""},
    {"llama3-wide", ""},
    {"qwen2-wide", ""},
    {"qwen3-wide", ""},
    {"llama3-wide", "llama-3.2-3b"},
    {"smollm2", "smollm2-1.7b"},
    {"qwen3-wide", "qwen3-0.6b"},
    {"qwen3-wide", "qwen3-1.7b"},
    {"qwen3-wide", "qwen3-4b"},
    {"qwen2", "qwen2.5-0.5b"},
    {"qwen2-wide", "qwen2.5-1.5b"},
    {"qwen2-wide", "qwen2.5-3b"},
};

Fixture fixture_named(const std::string& name) {
  for (const Fixture& fixture : golden::fixtures())
    if (fixture.name == name) return fixture;
  throw Error(ErrorCode::input, name, "no such fixture");
}

struct FormsRunner {
  FormsRunner(const Model& model, const Form& form, bool guard = false) {
    NpuSettings npu;
    npu.prompt_rows = {128};
    npu.guard = guard;
    if (*form.like != 0) npu.images_like = *images_like(form.like);
    const DeviceEnv env{pool, trace, Fusion::block, model_dims(model.config, 0),
                        testing_support::settings_of(npu)};
    const Config& c = model.config;
    dims = {c.layers, c.emb, c.heads,    c.kv_heads, c.head_dim,     c.hidden,
            c.vocab,  128,   c.qkv_bias, c.qk_norm,  npu.images_like};
    for (const char* name : {"vnpu", "cpu"}) devices.push_back(open_device(name, env));
    pipeline = std::make_unique<testing_support::OneSequence>(
        model, std::vector<Device*>{devices[0].get(), devices[1].get()}, PipelineOptions{}, trace);
  }

  // What the device was opened for, in the form that was asked for.
  AirDims dims;
  ThreadPool pool{2};
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<testing_support::OneSequence> pipeline;
};

Token best_token(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class NpuForm : public testing::TestWithParam<Form> {};

TEST_P(NpuForm, EqualsHuggingFace) {
  const Fixture fixture = fixture_named(GetParam().fixture);
  const Model model = open_model(fixture.model);
  FormsRunner runner(model, GetParam());
  for (const Prompt& prompt : fixture.prompts) {
    runner.pipeline->rewind(0);
    const auto logits = runner.pipeline->run(prompt.ids);
    EXPECT_GE(compare(logits, prompt.row(prompt.ids.size() - 1, fixture.vocab)).cosine, 0.9995);
    Token next = best_token(logits);
    for (size_t step = 0; step < std::min<size_t>(prompt.greedy_clear, 8); ++step) {
      ASSERT_EQ(next, prompt.greedy[step]) << "step " << step;
      next = best_token(runner.pipeline->run({&next, 1}));
    }
  }
}

// Each image of the model is there and nothing in their place.
TEST_P(NpuForm, LoadsTheModelsImages) {
  const Model model = open_model(fixture_named(GetParam().fixture).model);
  const FormsRunner runner(model, GetParam());
  std::set<std::string> loaded, wanted;
  for (const LoadedCode& code : runner.trace.loaded_code())
    if (code.device == "vnpu") loaded.insert(code.program);
  for (const AirProgram& program : air_model(runner.dims).programs)
    wanted.insert(program.name + (program.phase == AirPhase::prompt ? "@128" : "@0"));
  EXPECT_EQ(loaded, wanted);
}

// Products are compared with sums of their rows wherever operand and result lie in arguments:
// before biases and norms per head, with padding and without.
TEST_P(NpuForm, ProductsPassTheGuard) {
  const Fixture fixture = fixture_named(GetParam().fixture);
  const Model model = open_model(fixture.model);
  FormsRunner runner(model, GetParam(), true);
  const Prompt& prompt = fixture.prompts[0];
  const Token next = best_token(runner.pipeline->run(prompt.ids));
  const uint64_t of_prompt = runner.trace.device("vnpu").row_sums;
  EXPECT_GE(of_prompt, 7 * runner.dims.layers * prompt.ids.size());
  runner.pipeline->run({&next, 1});
  const uint64_t per_layer = air_form(runner.dims).token_ffn.size() > 1 ? 7 : 3;
  EXPECT_GE(runner.trace.device("vnpu").row_sums - of_prompt, per_layer * runner.dims.layers);
}

// What the table in docs/npu.md gives to the host, and nothing else.
TEST_P(NpuForm, TheHostDoesWhatTheTableNames) {
  const Fixture fixture = fixture_named(GetParam().fixture);
  const Model model = open_model(fixture.model);
  FormsRunner runner(model, GetParam());
  std::set<std::string> allowed = {"embedding", "rotation table", "final norm",
                                   "KV cache and attention of one query (unless --fusion token)"};
  if (air_form(runner.dims).token_ffn.size() > 1)
    allowed.insert("steps between this model's images");
  EXPECT_EQ(runner.trace.fallbacks(), std::vector<std::string>{});
  for (const std::string& what : runner.trace.on_host())
    EXPECT_TRUE(allowed.contains(what)) << what;
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, NpuForm, testing::ValuesIn(kForms), [](const auto& form) {
  std::string name = std::string(form.param.fixture) + "_" + form.param.like;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace tyto
