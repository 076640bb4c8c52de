#include "model/gguf_shards.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "model/gguf_metadata.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kDigits = 5;  // of both numbers in a name
constexpr std::string_view kOf = "-of-";

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return text.size() == kDigits && is_whole ? std::optional(value) : std::nullopt;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

Gguf map_and_parse(const fs::path& path, std::vector<MappedFile>& files) {
  files.emplace_back(path);
  return parse_gguf(files.back().bytes(), path.string());
}

uint64_t split_key(const Gguf& gguf, const char* key) {
  const GgufKeys keys(gguf);
  const auto value = keys.integer(key);
  if (!value) fail_input(keys.where(key), "is missing");
  return *value;
}

// How the files of a model are called of which one is at `path`.
ShardName names_beside(const fs::path& path, const Gguf& one) {
  const uint64_t number = split_key(one, "split.no"), count = split_key(one, "split.count");
  const std::string place = path.string();
  const auto name = shard_name(path.filename().string());
  if (!name || name->count != count || name->number != number + 1)
    throw Error(ErrorCode::input, place,
                fmt::format("is file {} of {} of a model, but is not called so", number + 1, count),
                fmt::format("give it back its name, which ends with -{:05}-of-{:05}.gguf",
                            number + 1, count));
  return *name;
}

void check_is_shard(const Gguf& gguf, const ShardName& name, uint32_t which) {
  const uint64_t number = split_key(gguf, "split.no"), count = split_key(gguf, "split.count");
  if (number + 1 != which || count != name.count)
    fail_input(gguf.name, "says that it is file {} of {}, its name that it is {} of {}", number + 1,
               count, which, name.count);
}

void add_tensors(Gguf&& from, Gguf& to, std::set<std::string>& names) {
  for (NamedTensor& tensor : from.tensors) {
    if (!names.insert(tensor.name).second)
      fail_input(from.name + ": tensor " + printable_name(tensor.name),
                 "is in another file of the model, too");
    to.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

std::string ShardName::file(uint32_t which) const {
  return fmt::format("{}-{:05}{}{:05}{}", stem, which, kOf, count, extension);
}

std::optional<ShardName> shard_name(const std::string& file_name) {
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (file_name.size() <= kTail) return std::nullopt;
  const size_t begin = file_name.size() - kTail;
  const std::string_view tail = std::string_view(file_name).substr(begin);
  const auto number = five_digits(tail.substr(1, kDigits));
  const auto count = five_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  const std::string extension(tail.substr(tail.size() - kExtension.size()));
  const bool has_form = tail.front() == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf &&
                        lower_case(extension) == kExtension;
  if (!has_form || !number || !count || *number == 0 || *number > *count) return std::nullopt;
  return ShardName{file_name.substr(0, begin), *number, *count, extension};
}

Gguf open_gguf_files(const fs::path& path, std::vector<MappedFile>& files) {
  Gguf whole = map_and_parse(path, files);
  if (GgufKeys(whole).integer("split.count").value_or(1) <= 1) return whole;
  const ShardName name = names_beside(path, whole);
  if (name.number != 1) {
    const fs::path first = path.parent_path() / name.file(1);
    std::error_code ignored;
    if (!fs::exists(first, ignored))
      throw Error(ErrorCode::input, path.string(),
                  fmt::format("is file {} of {}, but {} is missing", name.number, name.count,
                              first.filename().string()),
                  "put all files of the model into one folder");
    files.pop_back();
    return open_gguf_files(first, files);
  }
  std::set<std::string> names;
  for (const NamedTensor& tensor : whole.tensors) names.insert(tensor.name);
  for (uint32_t which = 2; which <= name.count; ++which) {
    const fs::path next = path.parent_path() / name.file(which);
    std::error_code ignored;
    if (!fs::exists(next, ignored))
      throw Error(ErrorCode::input, path.string(),
                  fmt::format("is the first of {} files, but {} is missing", name.count,
                              next.filename().string()),
                  "put all files of the model into one folder");
    Gguf part = map_and_parse(next, files);
    check_is_shard(part, name, which);
    add_tensors(std::move(part), whole, names);
  }
  if (const uint64_t promised = split_key(whole, "split.tensors.count");
      promised != whole.tensors.size())
    fail_input(path.string(), "split.tensors.count is {}, but the {} files have {} tensors",
               promised, name.count, whole.tensors.size());
  return whole;
}

}  // namespace tyto
