#include "model/model.h"

#include <functional>

#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::string hash_of(const Model& model) {
  return identity_of(model, "").hash;
}

std::string hash_of_files(const Scratch& scratch, const std::vector<std::string>& files) {
  Model model;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto path = scratch / std::to_string(i);
    write_file(path, files[i]);
    model.files.emplace_back(path);
  }
  return hash_of(model);
}

TEST(Identity, IsOfEveryByteOfEveryFile) {
  const Scratch scratch;
  const std::string file(3 << 20, 'w');
  const std::string whole = hash_of_files(scratch, {file});
  EXPECT_EQ(hash_of_files(scratch, {file}), whole);
  EXPECT_NE(hash_of_files(scratch, {file.substr(1)}), whole);
  // The third is one that the sampled pages of an earlier version did not hold.
  for (const size_t at : {size_t{0}, size_t{1000}, (size_t{2} << 20) + 24000, file.size() - 1}) {
    std::string changed = file;
    changed[at] = 'x';
    EXPECT_NE(hash_of_files(scratch, {changed}), whole) << at;
  }
  EXPECT_NE(hash_of_files(scratch, {file, "a"}), hash_of_files(scratch, {"a", file}));
  EXPECT_NE(hash_of_files(scratch, {""}), hash_of_files(scratch, {}));
}

TEST(Identity, IsOfEveryFieldThatTheForwardPassReads) {
  const std::vector<std::function<void(Config&)>> changes = {
      [](Config& c) { c.architecture = "qwen2"; },
      [](Config& c) { ++c.layers; },
      [](Config& c) { ++c.emb; },
      [](Config& c) { ++c.hidden; },
      [](Config& c) { ++c.heads; },
      [](Config& c) { ++c.kv_heads; },
      [](Config& c) { ++c.head_dim; },
      [](Config& c) { ++c.vocab; },
      [](Config& c) { ++c.context; },
      [](Config& c) { c.norm_eps *= 2; },
      [](Config& c) { c.tied_head = !c.tied_head; },
      [](Config& c) { c.qkv_bias = !c.qkv_bias; },
      [](Config& c) { c.qk_norm = !c.qk_norm; },
      [](Config& c) { c.wide_qk_norm = !c.wide_qk_norm; },
      [](Config& c) { c.norms = Norms::after; },
      [](Config& c) { c.embedding_scale = 12; },
      [](Config& c) { c.residual_scale = 12; },
      [](Config& c) { c.attention_scale = 12; },
      [](Config& c) { c.logit_divisor = 12; },
      [](Config& c) { c.unrotated = {true}; },
      [](Config& c) { c.fused_projections = true; },
      [](Config& c) { c.window = 16; },
      [](Config& c) { c.windowed = {true}; },
      [](Config& c) { c.window_theta = 16; },
      [](Config& c) { c.activation = Activation::gelu_tanh; },
      [](Config& c) { c.score_cap = 50; },
      [](Config& c) { c.logit_cap = 50; },
      [](Config& c) { c.sinks = true; },
      [](Config& c) { c.rope.beta_fast = 16; },
      [](Config& c) { c.rope.beta_slow = 16; },
      [](Config& c) { c.rope.whole_band = false; },
      [](Config& c) { c.rope.rotated = 2; },
      [](Config& c) { c.rope.attention_factor = 2; },
      [](Config& c) { c.rope.short_divisors = {1.0f}; },
      [](Config& c) { c.rope.long_divisors = {1.0f}; },
      [](Config& c) { c.rope.theta *= 50; },
      [](Config& c) { c.rope.layout = RopeLayout::pairs; },
      [](Config& c) { c.layer_norm = true; },
      [](Config& c) { c.parallel_residual = true; },
      [](Config& c) { c.adapted = true; },
      [](Config& c) { c.rope.scaling = RopeScaling::linear; },
      [](Config& c) { c.rope.factor *= 2; },
      [](Config& c) { c.rope.low_freq_factor *= 2; },
      [](Config& c) { c.rope.high_freq_factor *= 2; },
      [](Config& c) { ++c.rope.original_context; },
      [](Config& c) { c.rope.frequency_divisors = {1.0f}; }};
  std::vector<std::string> seen = {hash_of(Model{})};
  for (const auto& change : changes) {
    Model model;
    change(model.config);
    seen.push_back(hash_of(model));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  Model named;
  named.config.name = "another name";
  EXPECT_EQ(hash_of(named), hash_of(Model{}));
}

TEST(Identity, IsOfTheTokenizerAndTheTemplate) {
  const std::vector<std::function<void(Vocabulary&)>> changes = {
      [](Vocabulary& v) { v.algorithm = Vocabulary::Algorithm::sentencepiece; },
      [](Vocabulary& v) { v.pieces = {"a", "b"}; },
      [](Vocabulary& v) { v.pieces = {"ab"}; },
      [](Vocabulary& v) { v.scores = {1}; },
      [](Vocabulary& v) { v.merges = {{0, 1}}; },
      [](Vocabulary& v) { v.merge_results = {2}; },
      [](Vocabulary& v) { v.split_patterns = {"x"}; },
      [](Vocabulary& v) { v.added = {{.id = 3, .text = "<s>"}}; },
      [](Vocabulary& v) { v.added = {{.id = 3, .text = "<s>", .special = true}}; },
      [](Vocabulary& v) { v.byte_tokens = {7}; },
      [](Vocabulary& v) { v.normalizers = {Normalizer::nfc}; },
      [](Vocabulary& v) { v.charsmap = "x"; },
      [](Vocabulary& v) { v.longest_word = 100; },
      [](Vocabulary& v) { v.prepend_space = true; },
      [](Vocabulary& v) { v.prepend_once = true; },
      [](Vocabulary& v) { v.prepend_if_absent = true; },
      [](Vocabulary& v) { v.ignore_merges = true; },
      [](Vocabulary& v) { v.bos = 1; },
      [](Vocabulary& v) { v.unknown = 1; },
      [](Vocabulary& v) { v.eos = {1}; },
      [](Vocabulary& v) { v.add_bos = true; },
      [](Vocabulary& v) { v.add_eos = true; },
      [](Vocabulary& v) { v.drops_space = true; },
      [](Vocabulary& v) { v.fuses_unknown = true; },
      [](Vocabulary& v) { v.more_templates = {{"tool_use", ""}}; },
      [](Vocabulary& v) { v.more_templates = {{"", "tool_use"}}; },
      [](Vocabulary& v) { v.chat_template = "{{ messages }}"; }};
  Model plain;
  plain.vocabulary = Vocabulary{};
  std::vector<std::string> seen = {hash_of(Model{}), hash_of(plain)};
  for (const auto& change : changes) {
    Model model;
    change(model.vocabulary.emplace());
    seen.push_back(hash_of(model));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Identity, SaysWhatWasHashed) {
  const Scratch scratch;
  synthesize(small_config(), "f32", 1, scratch / "m.gguf");
  const ModelIdentity identity = identity_of(open_model(scratch / "m.gguf"), "");
  EXPECT_EQ(identity.form,
            "XXH3-128 over the XXH3-128 of every byte of 1 weight file, every field of the config "
            "but its name, the vocabulary, the tokenizer's settings and the chat template");
  EXPECT_FALSE(identity.is_cached);
  EXPECT_GT(identity.seconds, 0);
}

}  // namespace
}  // namespace tyto::test
