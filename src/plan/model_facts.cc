#include "plan/model_facts.h"

#include <fmt/format.h>

#include <map>

#include "base/hash.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/adapters.h"
#include "model/description.h"
#include "plan/air_images.h"

namespace tyto {
namespace {

struct SurveyedTotal {
  uint64_t tensors = 0, bytes = 0;
};

std::map<std::string, SurveyedTotal> totals_by_type(const ModelSurvey& survey) {
  std::map<std::string, SurveyedTotal> totals;
  for (const SurveyedTensor& tensor : survey.tensors) {
    SurveyedTotal& total = totals[tensor.type];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

std::string shape_text(const SurveyedTensor& tensor) {
  return joined(tensor.shape, " x ", [](uint64_t extent) { return fmt::format("{}", extent); });
}

}  // namespace

JsonValue model_json(const ModelSurvey& survey, bool has_tensors) {
  JsonValue json = {{"path", survey.path.string()},
                    {"runs", false},
                    {"missing", survey.missing},
                    {"format", survey.format},
                    {"architecture", survey.architecture}};
  for (const auto& [key, value] : survey.metadata) json["metadata"][key] = value;
  for (const auto& [type, total] : totals_by_type(survey))
    json["types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  if (has_tensors)
    for (const SurveyedTensor& tensor : survey.tensors)
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", tensor.type},
                                 {"shape", tensor.shape},
                                 {"bytes", tensor.bytes}});
  return json;
}

Table facts_table(const ModelSurvey& survey) {
  Table table{.id = "model", .title = "", .columns = {{"", false}, {"", false}}};
  const auto row = [&](const std::string& label, const std::string& value) {
    table.rows.push_back({{printable_line(label), printable_line(value)}});
  };
  row("model", survey.path.string());
  row("format", survey.format);
  row("architecture", survey.architecture.empty() ? "not said" : survey.architecture);
  row("runs", "no");
  for (const std::string& missing : survey.missing) row("  missing", missing);
  for (const auto& [type, total] : totals_by_type(survey))
    row("  " + type,
        fmt::format("{} in {}", human_bytes(total.bytes), counted(total.tensors, "tensor")));
  for (const auto& [key, value] : survey.metadata) row(key, value);
  return table;
}

Table tensor_table(const ModelSurvey& survey) {
  Table table{.id = "tensors",
              .title = "",
              .columns = {{"tensor", false}, {"type", false}, {"shape", false}, {"size", true, 1}}};
  for (const SurveyedTensor& tensor : survey.tensors)
    table.rows.push_back({{printable_name(tensor.name), printable_name(tensor.type),
                           shape_text(tensor), human_bytes(tensor.bytes)}});
  return table;
}

namespace {

bool has_chat_template(const Vocabulary& vocabulary) {
  return !vocabulary.chat_template.empty() || !vocabulary.more_templates.empty();
}

struct TypeTotal {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

std::map<std::string, TypeTotal> totals_by_type(const Model& model) {
  std::map<std::string, TypeTotal> totals;
  for (const NamedTensor& tensor : model.tensors) {
    TypeTotal& total = totals[std::string(info(tensor.view.dtype).name)];
    ++total.tensors;
    total.bytes += tensor.view.bytes.size();
  }
  return totals;
}

std::string rope_text(const Rope& rope) {
  constexpr const char* kScaling[] = {"none", "linear", "llama3", "longrope", "yarn", "dynamic"};
  std::string text =
      fmt::format("theta {}, scaling {}", rope.theta, kScaling[static_cast<size_t>(rope.scaling)]);
  if (rope.scaling == RopeScaling::longrope)
    return text + fmt::format(" beyond {} positions", rope.original_context);
  if (rope.scaling != RopeScaling::none) text += fmt::format(" by {}", rope.factor);
  if (!rope.frequency_divisors.empty()) text += ", frequency divisors from the file";
  return text;
}

}  // namespace

JsonValue model_json(const Model& model, uint64_t positions, bool has_tensors) {
  const Config& config = model.config;
  const ModelDescription described = describe(model);
  JsonValue json = {{"path", model.path.string()},
                    {"runs", true},
                    {"format", model.format},
                    {"architecture", config.architecture},
                    {"name", config.name},
                    {"layers", config.layers},
                    {"emb", config.emb},
                    {"hidden", config.hidden},
                    {"heads", config.heads},
                    {"kv_heads", config.kv_heads},
                    {"head_dim", config.head_dim},
                    {"vocab", config.vocab},
                    {"context", config.context},
                    {"norm_eps", config.norm_eps},
                    {"tied_head", config.tied_head},
                    {"qkv_bias", config.qkv_bias},
                    {"qk_norm", config.qk_norm},
                    {"differences_from_llama", differences_from_llama(config)},
                    {"rope", rope_text(config.rope)},
                    {"experts", config.experts},
                    {"experts_used", config.experts_used},
                    {"expert_hidden", config.expert_hidden},
                    {"shared_hidden", config.shared_hidden},
                    {"recurrent_layers", config.layers - config.attention_layers()},
                    {"size", described.size},
                    {"type", described.type},
                    {"parameters", model.parameters()},
                    {"active_parameters", model.active_parameters()},
                    {"weight_bytes", model.weight_bytes()},
                    {"kv_positions", positions},
                    {"kv_bytes", kept_kv_bytes(config, positions)},
                    {"whole_kv_bytes", kv_bytes(config, positions)},
                    {"state_bytes", state_bytes(config)}};
  for (const std::string& line : model.notes) json["left_out"].push_back(line);
  for (const auto& [type, total] : totals_by_type(model))
    json["types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  for (const Adapter& adapter : model.adapters)
    json["adapters"].push_back({{"path", adapter.file.path().string()},
                                {"hash", hash_of_file(adapter.file, "").hash},
                                {"scale", adapter.scale},
                                {"rank", adapter.rank},
                                {"matrices", adapter.matrices}});
  if (model.vocabulary)
    json["tokenizer"] = {{"tokens", model.vocabulary->pieces.size()},
                         {"chat_template", has_chat_template(*model.vocabulary)}};
  if (has_tensors)
    for (const NamedTensor& tensor : model.tensors)
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", info(tensor.view.dtype).name},
                                 {"rows", tensor.view.rows},
                                 {"cols", tensor.view.cols},
                                 {"bytes", tensor.view.bytes.size()}});
  return json;
}

namespace {

std::string where_weights_are(const Model& model) {
  uint64_t copied = 0;
  for (const std::vector<std::byte>& copy : model.copies) copied += copy.size();
  return copied == 0 ? "mapped" : fmt::format("mapped, {} of them copied", human_bytes(copied));
}

std::string vocabulary_text(const Model& model) {
  if (!model.vocabulary) return fmt::format("{} rows, no tokenizer", model.config.vocab);
  return fmt::format("{} rows, {} tokens, {} chat template", model.config.vocab,
                     model.vocabulary->pieces.size(),
                     has_chat_template(*model.vocabulary) ? "with a" : "no");
}

std::string adapter_text(const Adapter& adapter, const std::string& hash) {
  return fmt::format("{}, scale {}, {} matrices of rank {}, {}", adapter.file.path().string(),
                     adapter.scale, adapter.matrices, adapter.rank, hash);
}

}  // namespace

Table facts_table(const Model& model, uint64_t positions) {
  const Config& c = model.config;
  Table table{.id = "model", .title = "", .columns = {{"", false}, {"", false}}};
  const auto row = [&](const std::string& label, const std::string& value) {
    table.rows.push_back({{label, value}});
  };
  row("model", model.path.string());
  row("format", model.format);
  row("architecture", c.architecture + (c.name.empty() ? "" : ", \"" + c.name + "\""));
  row("layers", fmt::format("{}", c.layers));
  row("width", fmt::format("{} residual, {} feed-forward", c.emb, c.hidden));
  row("heads",
      fmt::format("{} query, {} key/value, {} values each", c.heads, c.kv_heads, c.head_dim));
  const std::string differences = differences_from_llama(c);
  row("features", fmt::format("{} head{}{}{}{}", c.tied_head ? "tied" : "untied",
                              c.qkv_bias ? ", QKV bias" : "", c.qk_norm ? ", QK norm" : "",
                              differences.empty() ? "" : ", ", differences));
  for (const Adapter& adapter : model.adapters)
    row("adapter", adapter_text(adapter, hash_of_file(adapter.file, "").hash));
  row("rope", rope_text(c.rope));
  row("context", fmt::format("{} positions", c.context));
  row("vocabulary", vocabulary_text(model));
  if (c.has_experts())
    row("experts",
        fmt::format("{} of {} for a token, {} wide", c.experts_used, c.experts, c.expert_hidden));
  const ModelDescription described = describe(model);
  if (c.shared_hidden != 0)
    row("", fmt::format("one more for every token, {} wide", c.shared_hidden));
  if (c.recurrent.heads != 0)
    row("recurrence",
        fmt::format("{} of {} layers, {} heads of {} on {} of {}", c.layers - c.attention_layers(),
                    c.layers, c.recurrent.heads, c.recurrent.head_dim, c.recurrent.key_heads,
                    c.recurrent.key_dim));
  row("parameters",
      model.tensors.empty()
          ? "none: a vocabulary alone"
          : fmt::format("{}, {} values", described.size, model.parameters()) +
                (c.has_experts() ? fmt::format(", {} active", model.active_parameters()) : ""));
  if (!described.type.empty()) row("type", described.type);
  for (const std::string& line : model.notes) row("left out", line);
  for (const auto& [type, total] : totals_by_type(model))
    row("  " + type,
        fmt::format("{} in {}", human_bytes(total.bytes), counted(total.tensors, "tensor")));
  const uint64_t kept = kept_kv_bytes(c, positions), whole = kv_bytes(c, positions);
  row("memory",
      fmt::format("{} weights ({}) + {} KV cache at {} positions (f16){}{}",
                  human_bytes(model.weight_bytes()), where_weights_are(model), human_bytes(kept),
                  positions, kept == whole ? "" : "; " + human_bytes(whole) + " in one piece",
                  c.has_states() ? " + " + human_bytes(2 * state_bytes(c)) + " states" : ""));
  return table;
}

Table tensor_table(const Model& model) {
  Table table{.id = "tensors",
              .title = "",
              .columns = {{"tensor", false},
                          {"type", false},
                          {"rows", true, 2},
                          {"columns", true, 2},
                          {"size", true, 1}}};
  for (const NamedTensor& tensor : model.tensors)
    table.rows.push_back({{printable_name(tensor.name), std::string(info(tensor.view.dtype).name),
                           std::to_string(tensor.view.rows), std::to_string(tensor.view.cols),
                           human_bytes(tensor.view.bytes.size())}});
  return table;
}

}  // namespace tyto
