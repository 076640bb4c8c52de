#include "model/stores/repo_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/spelling.h"

namespace tyto {
namespace {

using Names = std::vector<std::string>;

constexpr std::array<std::string_view, 2> kUsualQuantisations = {"q4_k_m", "q8_0"};
constexpr size_t kMostNamed = 30;

// What Tyto reads of a checkpoint's first folder, and what other readers of the cache need as well.
constexpr std::array<std::string_view, 12> kBesideWeights = {
    "config.json",        "generation_config.json",
    "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model",    "special_tokens_map.json",
    "added_tokens.json",  "vocab.json",
    "merges.txt",         "chat_template.jinja",
    "chat_template.json", "model.safetensors.index.json"};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_model_gguf(std::string_view path) {
  const std::string name = lower(file_name(path));
  if (!name.ends_with(".gguf")) return false;
  for (const char* companion : {"mmproj", "imatrix"})
    if (name.find(companion) != std::string::npos) return false;
  for (const char* draft : {"mtp-", "eagle3-", "dflash-", "dspark-"})
    if (name.starts_with(draft)) return false;
  return true;
}

// "model-00002-of-00003.gguf" is part 2 of 3 of "model".
struct Part {
  std::string whole;
  unsigned number = 1;
  unsigned count = 1;
};

Part part_of(std::string_view path, std::string_view suffix) {
  std::string_view stem = path.substr(0, path.size() - suffix.size());
  constexpr std::string_view kForm = "-00000-of-00000";
  const auto fits = [](char c, char form) {
    return form == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == form;
  };
  if (stem.size() > kForm.size()) {
    const std::string_view end = stem.substr(stem.size() - kForm.size());
    if (std::equal(end.begin(), end.end(), kForm.begin(), fits))
      return {.whole = std::string(stem.substr(0, stem.size() - kForm.size())),
              .number = static_cast<unsigned>(std::stoul(std::string(end.substr(1, 5)))),
              .count = static_cast<unsigned>(std::stoul(std::string(end.substr(10))))};
  }
  return {.whole = std::string(stem)};
}

// Sets of files that are one model each, by their common name.
using Models = std::map<std::string, Names>;

Models group_parts(const Names& files, std::string_view suffix) {
  Models models;
  for (const std::string& file : files) models[part_of(file, suffix).whole].push_back(file);
  for (auto& [name, parts] : models) std::sort(parts.begin(), parts.end());
  return models;
}

// Sorted parts, all of them.
Names complete(const Names& parts, std::string_view suffix) {
  const unsigned count = part_of(parts.front(), suffix).count;
  for (unsigned index = 0; index < count; ++index) {
    const Part part = index < parts.size() ? part_of(parts[index], suffix) : Part{};
    if (part.number != index + 1 || part.count != count)
      fail_input(parts.front(), "part {} of {} is not there", index + 1, count);
  }
  return parts;
}

// "q4_k_m" in "Llama-3.2-1B-Q4_K_M", "model_q4_k_m" or "Q4_K_M/model", and not in "Q4_K_M_L".
bool has_quantisation(const std::string& whole, const std::string& quantisation,
                      bool may_be_dynamic) {
  const std::string name = lower(whole);
  for (size_t at = name.find(quantisation); at != std::string::npos;
       at = name.find(quantisation, at + 1)) {
    const size_t end = at + quantisation.size();
    const bool begins = at == 0 || std::string_view("-._/").find(name[at - 1]) != std::string::npos;
    const bool ends =
        end == name.size() || std::string_view("-./").find(name[end]) != std::string::npos;
    const bool is_dynamic = at >= 3 && name.compare(at - 3, 3, "ud-") == 0;
    if (begins && ends && (may_be_dynamic || !is_dynamic)) return true;
  }
  return false;
}

Models with_quantisation(const Models& models, const std::string& quantisation) {
  Models found;
  for (const bool may_be_dynamic : {false, true}) {
    for (const auto& model : models)
      if (has_quantisation(model.first, quantisation, may_be_dynamic)) found.insert(model);
    if (!found.empty()) break;
  }
  return found;
}

// The short way to ask for a model: its quantisation where that is its own, else its file.
std::string shortest_ask(const Models& models, const std::string& whole) {
  const std::string name(file_name(whole));
  const size_t dynamic = lower(name).rfind("-ud-");
  const size_t before = dynamic != std::string::npos ? dynamic : name.find_last_of("-.");
  const std::string quantisation = before == std::string::npos ? "" : name.substr(before + 1);
  const bool is_own = quantisation.find('_') != std::string::npos &&
                      with_quantisation(models, lower(quantisation)).size() == 1;
  return is_own ? quantisation : models.at(whole).front();
}

std::string candidates(const Models& models) {
  if (models.empty()) return "the repository has no GGUF";
  Names names;
  for (const auto& [whole, files] : models) names.push_back(shortest_ask(models, whole));
  const size_t left_out = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - left_out);
  return fmt::format("behind the colon, name one of {}{}", joined(names),
                     left_out == 0 ? "" : fmt::format(" or {} more", left_out));
}

Names only_one(const Models& found, const Models& all, const std::string& asked) {
  if (found.size() == 1) return complete(found.begin()->second, ".gguf");
  const std::string fact = found.empty() ? "no model of the repository has this name"
                                         : fmt::format("{} models have it", found.size());
  throw Error(ErrorCode::usage, asked, fact, candidates(found.empty() ? all : found));
}

Names checkpoint(const Names& all) {
  Names weights;
  for (const std::string& path : all)
    if (path.find('/') == std::string::npos && path.ends_with(".safetensors"))
      weights.push_back(path);
  // Mistral publishes the same weights a second time as consolidated.safetensors.
  const auto is_model = [](const std::string& name) { return name.starts_with("model"); };
  if (std::any_of(weights.begin(), weights.end(), is_model))
    std::erase_if(weights, [&](const std::string& name) { return !is_model(name); });
  for (const auto& [whole, parts] : group_parts(weights, ".safetensors"))
    complete(parts, ".safetensors");
  if (weights.empty() && has(all, "model.q4nx")) weights = {"model.q4nx"};
  if (weights.empty() || !has(all, "config.json")) return {};
  for (const std::string_view name : kBesideWeights)
    if (has(all, name)) weights.emplace_back(name);
  std::copy_if(all.begin(), all.end(), std::back_inserter(weights), [](const std::string& path) {
    return path.starts_with("additional_chat_templates/") && path.ends_with(".jinja");
  });
  std::sort(weights.begin(), weights.end());
  return weights;
}

Names usual_model(const Names& all, const Models& ggufs) {
  if (Names files = checkpoint(all); !files.empty()) return files;
  if (ggufs.size() == 1) return complete(ggufs.begin()->second, ".gguf");
  if (ggufs.empty())
    throw Error(ErrorCode::usage, "the repository",
                "has neither a GGUF nor config.json with safetensors",
                "Tyto reads GGUF files and safetensors checkpoints; name another repository");
  for (const std::string_view quantisation : kUsualQuantisations)
    if (const Models found = with_quantisation(ggufs, std::string(quantisation)); !found.empty())
      return only_one(found, ggufs, std::string(quantisation));
  throw Error(ErrorCode::usage, "the repository", fmt::format("has {} models", ggufs.size()),
              candidates(ggufs));
}

std::optional<std::string> named_file(const Names& all, const std::string& asked) {
  if (has(all, asked)) return asked;
  Names found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const std::string& path) { return file_name(path) == asked; });
  if (found.size() > 1)
    throw Error(ErrorCode::usage, asked, fmt::format("{} files have this name", found.size()),
                fmt::format("name one of {}", joined(found)));
  return found.empty() ? std::nullopt : std::optional(found.front());
}

Models gguf_models(const Names& all) {
  Names files;
  std::copy_if(all.begin(), all.end(), std::back_inserter(files),
               [](const std::string& path) { return is_model_gguf(path); });
  return group_parts(files, ".gguf");
}

}  // namespace

std::vector<std::string> files_of_model(const std::vector<std::string>& all,
                                        const std::string& asked) {
  const Models ggufs = gguf_models(all);
  if (asked.empty()) return usual_model(all, ggufs);
  if (const auto file = named_file(all, asked)) {
    if (!is_model_gguf(*file)) return {*file};
    return complete(ggufs.at(part_of(*file, ".gguf").whole), ".gguf");
  }
  return only_one(with_quantisation(ggufs, lower(asked)), ggufs, asked);
}

std::vector<RepoModel> models_of_repository(const std::vector<std::string>& all) {
  std::vector<RepoModel> models;
  try {
    if (Names files = checkpoint(all); !files.empty()) models.push_back({"", std::move(files), ""});
  } catch (const Error& error) {
    models.push_back({"", {}, error.what()});
  }
  const Models ggufs = gguf_models(all);
  for (const auto& [whole, parts] : ggufs) {
    RepoModel model{shortest_ask(ggufs, whole), parts, ""};
    try {
      complete(parts, ".gguf");
    } catch (const Error& error) {
      model.missing = error.what();
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace tyto
