#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "model/model.h"
#include "model/stores/find_model.h"
#include "plan/pinned_bytes.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct InspectFlags {
  ModelFlags model;
  uint32_t context = 0;
  bool tensors = false;
  bool json = false;
};

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

ordered_json as_json(const Model& model, uint64_t positions, bool with_tensors) {
  const Config& config = model.config;
  ordered_json json = {{"path", model.path.string()},
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
                       {"parameters", model.parameters()},
                       {"weight_bytes", model.weight_bytes()},
                       {"kv_positions", positions},
                       {"kv_bytes", kept_kv_bytes(config, positions)},
                       {"whole_kv_bytes", kv_bytes(config, positions)}};
  for (const auto& [type, total] : totals_by_type(model))
    json["types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  if (model.vocabulary)
    json["tokenizer"] = {{"tokens", model.vocabulary->pieces.size()},
                         {"chat_template", !model.vocabulary->chat_template.empty()}};
  if (with_tensors)
    for (const NamedTensor& tensor : model.tensors)
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", info(tensor.view.dtype).name},
                                 {"rows", tensor.view.rows},
                                 {"cols", tensor.view.cols},
                                 {"bytes", tensor.view.bytes.size()}});
  return json;
}

std::string where_weights_are(const Model& model) {
  uint64_t copied = 0;
  for (const std::vector<std::byte>& copy : model.copies) copied += copy.size();
  return copied == 0 ? "mapped" : fmt::format("mapped, {} of them copied", human_bytes(copied));
}

std::string count_text(uint64_t values) {
  const auto count = static_cast<double>(values);
  return count >= 1e9 ? fmt::format("{:.2f} billion", count * 1e-9)
                      : fmt::format("{:.1f} million", count * 1e-6);
}

std::string vocabulary_text(const Model& model) {
  if (!model.vocabulary) return fmt::format("{} rows, no tokenizer", model.config.vocab);
  return fmt::format("{} rows, {} tokens, {} chat template", model.config.vocab,
                     model.vocabulary->pieces.size(),
                     model.vocabulary->chat_template.empty() ? "no" : "with a");
}

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
  row("rope", rope_text(c.rope));
  row("context", fmt::format("{} positions", c.context));
  row("vocabulary", vocabulary_text(model));
  row("parameters", count_text(model.parameters()));
  for (const auto& [type, total] : totals_by_type(model))
    row("  " + type, fmt::format("{} in {} tensor{}", human_bytes(total.bytes), total.tensors,
                                 total.tensors == 1 ? "" : "s"));
  const uint64_t kept = kept_kv_bytes(c, positions), whole = kv_bytes(c, positions);
  row("memory",
      fmt::format("{} weights ({}) + {} KV cache at {} positions (f16){}",
                  human_bytes(model.weight_bytes()), where_weights_are(model), human_bytes(kept),
                  positions, kept == whole ? "" : "; " + human_bytes(whole) + " in one piece"));
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

// Only a vocabulary-only file may lack weights; any other complaint stands.
Model open_for_inspection(const std::filesystem::path& path) {
  try {
    return open_model(path);
  } catch (const Error&) {
    try {
      Model model = open_model(path, Need::vocabulary);
      if (model.tensors.empty()) return model;
    } catch (const Error&) {  // then the first complaint says more
    }
    throw;
  }
}

void inspect(const InspectFlags& flags) {
  const Model model = open_for_inspection(find_model(model_or_shipped(flags.model)));
  const uint64_t positions = flags.context == 0 ? model.config.context : flags.context;
  if (flags.json)
    return print(as_json(model, positions, flags.tensors)
                     .dump(2, ' ', false, ordered_json::error_handler_t::replace) +
                 "\n");
  print_coloured(to_text(facts_table(model, positions), stdout_style()));
  if (flags.tensors) print_coloured("\n" + to_text(tensor_table(model), stdout_style()));
}

}  // namespace

void define_inspect(CommandLine& command) {
  InspectFlags& flags = command.values<InspectFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"-c,--context", &flags.context, "N",
       "positions to count KV memory for (default: the model's)"},
      {"--tensors", &flags.tensors, "list every tensor"},
      {"--json", &flags.json, "print JSON"},
  });
  command.footer = "Example:\n  tyto inspect -m model.gguf --tensors";
  command.run = [&flags] { inspect(flags); };
}

}  // namespace tyto
