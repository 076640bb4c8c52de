#include "model/stores/local_models.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include "base/environment.h"
#include "base/spelling.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

LocalModel local_model(const RepoModel& found, const fs::path& folder, const std::string& name,
                       const std::string& store) {
  const bool is_checkpoint = found.asked.empty();
  LocalModel model;
  model.name = is_checkpoint ? name : name + ":" + found.asked;
  model.store = store;
  model.path = is_checkpoint ? folder : folder / found.files.front();
  measure(folder, found.files, model);
  if (!found.missing.empty()) model.why_not = "incomplete, " + found.missing;
  if (!is_checkpoint) {
    model.other_names.push_back(name + ":" + found.files.front());
    model.other_names.push_back(name + "/" + found.files.front());
  }
  return model;
}

}  // namespace

void measure(const fs::path& folder, const std::vector<std::string>& files, LocalModel& model) {
  for (const std::string& file : files) {
    std::error_code error;
    if (fs::is_regular_file(folder / file, error)) {  // or a link to one; a pipe is never opened
      const uint64_t size = fs::file_size(folder / file, error);
      if (!error) model.bytes += size;
    } else if (model.why_not.empty()) {
      model.why_not = fs::exists(folder / file, error)
                          ? file + " is not a regular file"
                          : "incomplete, " + file + " leads to no file";
    }
  }
}

void add_repository(const fs::path& folder, const std::vector<std::string>& files,
                    const std::string& name, const std::string& store, Listing& listing) {
  const std::vector<RepoModel> found = models_of_repository(files);
  for (const RepoModel& each : found)
    listing.models.push_back(local_model(each, folder, name, store));
  if (found.size() == 1 && !found.front().asked.empty())
    listing.models.back().other_names.push_back(name);
}

namespace {

namespace fs = std::filesystem;

constexpr StoreName kStoreNames[] = {
    {"hf:", "a Hugging Face cache"},     {"ollama:", "Ollama's store"},
    {"lmstudio:", "LM Studio's folder"}, {"llama.cpp:", "llama.cpp's cache"},
    {"tyto:", "what ships with Tyto"},
};

constexpr size_t kMostNearest = 3;
constexpr size_t kLeastPairs = 2;
constexpr double kLeastShare = 0.5;
constexpr std::string_view kGgufEnding = ".gguf";

std::string plain(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (result.ends_with(kGgufEnding)) result.resize(result.size() - kGgufEnding.size());
  return result;
}

// The name itself first, then ever shorter ends of it.
std::vector<std::string_view> ends_of(std::string_view name) {
  std::vector<std::string_view> ends = {name};
  if (const StoreName* store = store_of(name)) ends.push_back(name.substr(store->prefix.size()));
  for (size_t at = name.find('/'); at != std::string_view::npos; at = name.find('/', at + 1))
    ends.push_back(name.substr(at + 1));
  return ends;
}

// By the pairs of neighbouring letters and digits that both names have: a letter that is wrong
// spoils two of them, and parts of names may come in any order.
struct Likeness {
  size_t shared = 0;
  double share = 0;  // share of the pairs of the shorter name
  auto operator<=>(const Likeness&) const = default;
};

Likeness likeness(const std::string& name, const std::string& other) {
  const auto pairs = [](const std::string& text) {
    std::string letters;
    std::copy_if(text.begin(), text.end(), std::back_inserter(letters),
                 [](unsigned char c) { return std::isalnum(c) != 0; });
    std::multiset<std::string> result;
    for (size_t i = 0; i + 1 < letters.size(); ++i) result.insert(letters.substr(i, 2));
    return result;
  };
  const auto mine = pairs(name), its = pairs(other);
  std::vector<std::string> shared;
  std::set_intersection(mine.begin(), mine.end(), its.begin(), its.end(),
                        std::back_inserter(shared));
  const size_t fewest = std::max<size_t>(1, std::min(mine.size(), its.size()));
  return {shared.size(), static_cast<double>(shared.size()) / static_cast<double>(fewest)};
}

void add(Listing&& from, Listing& to) {
  std::move(from.models.begin(), from.models.end(), std::back_inserter(to.models));
  std::move(from.remarks.begin(), from.remarks.end(), std::back_inserter(to.remarks));
}

void leave_out_repeated_names(std::vector<LocalModel>& models) {
  std::set<std::string> names;
  std::erase_if(models, [&](const LocalModel& model) { return !names.insert(model.name).second; });
}

}  // namespace

Listing local_models(const std::vector<fs::path>& folders) {
  Listing all;
  for (const fs::path& cache : hugging_face_cache_folders()) add(hugging_face_models(cache), all);
  if (const auto cache = llama_cpp_cache_folder()) {
    add(llama_cpp_models(*cache), all);
    add(hugging_face_models(*cache), all);  // what newer versions write there
  }
  for (const fs::path& folder : ollama_folders()) add(ollama_models(folder), all);
  if (const auto home = home_folder())
    for (const fs::path& folder : lm_studio_folders(*home)) add(lm_studio_models(folder), all);
  for (const fs::path& folder : folders) add(models_below(folder), all);
  if (const auto folder = shipped_model()) {
    Listing shipped = models_below(*folder);
    for (LocalModel& model : shipped.models) {
      model.name = "tyto:" + folder->filename().string();
      model.store = "Tyto";
    }
    add(std::move(shipped), all);
  }
  leave_out_repeated_names(all.models);
  return all;
}

const StoreName* store_of(std::string_view name) {
  for (const StoreName& store : kStoreNames)
    if (name.starts_with(store.prefix)) return &store;
  return nullptr;
}

std::string without_store(std::string_view name) {
  const StoreName* store = store_of(name);
  return std::string(store == nullptr ? name : name.substr(store->prefix.size()));
}

ModelNames::ModelNames(const std::vector<LocalModel>& models) : models_(models) {
  const auto add_name = [&](const std::string& name, const LocalModel& model) {
    for (const std::string_view end : ends_of(name)) {
      std::vector<const LocalModel*>& meant = ends_[plain(end)];
      if (meant.empty() || meant.back() != &model) meant.push_back(&model);
    }
  };
  for (const LocalModel& model : models) {
    add_name(model.name, model);
    for (const std::string& name : model.other_names) add_name(name, model);
  }
}

bool ModelNames::has(std::string_view name) const {
  return ends_.contains(plain(name));
}

std::vector<const LocalModel*> ModelNames::find(std::string_view name) const {
  const auto found = ends_.find(plain(name));
  std::vector<const LocalModel*> models =
      found != ends_.end() ? found->second : find_in_short(name);
  std::set<fs::path> paths;  // one file may have several names
  std::erase_if(models, [&](const LocalModel* model) { return !paths.insert(model->path).second; });
  return models;
}

std::vector<const LocalModel*> ModelNames::find_in_short(std::string_view name) const {
  std::vector<const LocalModel*> found;
  for (const LocalModel& model : models_)
    if (is_short_for(name, model.name)) found.push_back(&model);
  const auto repository = [](const LocalModel* model) {
    return model->name.substr(0, model->name.rfind(':'));
  };
  const bool is_one_repository = std::all_of(found.begin(), found.end(), [&](auto* model) {
    return repository(model) == repository(found.front());
  });
  for (const char* type : {":q4_k_m", ":q8_0"})
    for (const LocalModel* model : found)
      if (is_one_repository && plain(model->name).ends_with(type)) return {model};
  return found;
}

std::string ModelNames::shortest(const LocalModel& model) const {
  const auto means_it_alone = [&](std::string_view end) {
    const auto& meant = ends_.find(plain(end))->second;
    return std::all_of(meant.begin(), meant.end(),
                       [&](const LocalModel* other) { return other->path == model.path; });
  };
  std::string_view shortest = model.name;
  for (const std::string_view end : ends_of(model.name))
    if (end.size() < shortest.size() && !end.empty() && means_it_alone(end)) shortest = end;
  return std::string(shortest);
}

std::vector<std::string> nearest_models(std::string_view name,
                                        const std::vector<LocalModel>& models) {
  std::vector<std::pair<Likeness, const LocalModel*>> ranked;
  const std::string wanted = plain(without_store(name));
  std::vector<std::string> last_parts;
  for (const LocalModel& model : models) {
    last_parts.push_back(plain(ends_of(model.name).back()));
    const Likeness like = likeness(wanted, plain(without_store(model.name)));
    if (like.shared >= kLeastPairs && like.share >= kLeastShare) ranked.emplace_back(like, &model);
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& one, const auto& other) {
    return one.first != other.first ? one.first > other.first : one.second < other.second;
  });
  const ModelNames all(models);
  const auto shown = [&](const LocalModel& model) {  // a path is only good as a whole
    return store_of(model.name) == nullptr ? model.name : all.shortest(model);
  };
  std::vector<std::string> names;
  for (const auto& [like, model] : ranked) names.push_back(shown(*model));
  if (names.empty()) {  // a letter or two are wrong in a name that has few
    const auto meant = nearest(ends_of(wanted).back(), last_parts);
    const auto at =
        meant ? std::find(last_parts.begin(), last_parts.end(), *meant) : last_parts.end();
    if (at != last_parts.end())
      names.push_back(shown(models[static_cast<size_t>(at - last_parts.begin())]));
  }
  names.resize(std::min(names.size(), kMostNearest));
  return names;
}

namespace {

constexpr size_t kDateDigits = 4;  // "2507"

bool is_separator(char c) {
  return c == '-' || c == '_' || c == ':';
}

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Where the rest of the name begins, npos if the name begins otherwise.
size_t end_of_beginning(std::string_view beginning, std::string_view name) {
  size_t at = 0;
  for (const char c : beginning) {
    if (is_separator(c)) continue;
    while (at < name.size() && is_separator(name[at])) ++at;
    if (at == name.size() || lower(name[at]) != lower(c)) return std::string_view::npos;
    ++at;
  }
  return at;
}

// "1b", "0.5B", "8x7b", "A3B" (weights that are read for a token), "E2B" (effective ones), "270m".
bool is_size(std::string_view part) {
  if (part.starts_with('a') || part.starts_with('e')) part.remove_prefix(1);
  if (part.size() < 2 || !is_digit(part.front())) return false;
  if (!part.ends_with('b') && !part.ends_with('m')) return false;
  part.remove_suffix(1);
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == 'x'; });
}

bool tells_only_a_variant(std::string_view part) {
  std::string plain;
  for (const char c : part) plain += lower(c);
  for (const char* word : {"", "instruct", "it", "chat", "gguf"})
    if (plain == word) return true;
  const bool is_date =
      plain.size() == kDateDigits && std::all_of(plain.begin(), plain.end(), is_digit);
  return is_date || is_size(plain);
}

bool begins_name(std::string_view short_name, std::string_view name) {
  const size_t at = end_of_beginning(short_name, name);
  if (at == std::string_view::npos) return false;
  std::string_view rest = name.substr(at);
  if (!rest.empty() && !is_separator(rest.front())) return false;
  while (!rest.empty() && rest.front() != ':') {  // behind a colon stands a tag
    const size_t end = std::min(rest.find_first_of("-_:", 1), rest.size());
    if (!tells_only_a_variant(rest.substr(1, end - 1))) return false;
    rest.remove_prefix(end);
  }
  return true;
}

}  // namespace

bool is_short_for(std::string_view short_name, std::string_view name) {
  if (std::all_of(short_name.begin(), short_name.end(), is_separator)) return false;
  if (const StoreName* store = store_of(name)) {
    if (short_name.starts_with(store->prefix)) short_name.remove_prefix(store->prefix.size());
    name.remove_prefix(store->prefix.size());
  }
  if (store_of(short_name) != nullptr) return false;
  const std::string_view last = name.substr(name.rfind('/') + 1);
  // "Qwen_Qwen3-4B-GGUF" begins with the publisher of the weights.
  const std::string_view behind_publisher = last.substr(last.find('_') + 1);
  return begins_name(short_name, name) || begins_name(short_name, last) ||
         begins_name(short_name, behind_publisher);
}

}  // namespace tyto
