// Typed look-ups in GGUF metadata, and the metadata Tyto writes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/gguf.h"

namespace tyto {

// The values of tokenizer.ggml.token_type.
enum GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Reads keys of one parsed file. Absent: nullopt or null; of another type: an Error naming the key.
class GgufKeys {
 public:
  explicit GgufKeys(const Gguf& gguf) : gguf_(gguf) {}

  std::string where(std::string_view key) const { return gguf_.name + ": " + std::string(key); }
  bool has(std::string_view key) const { return gguf_.metadata.find(key) != gguf_.metadata.end(); }

  std::optional<uint64_t> integer(std::string_view key) const;  // not negative
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  const std::string* text(std::string_view key) const;
  const std::vector<std::string>* strings(std::string_view key) const;
  const std::vector<int64_t>* integers(std::string_view key) const;
  const std::vector<double>* reals(std::string_view key) const;
  // Whether it holds several integers, where some writers give one and others one for each layer.
  bool has_integers(std::string_view key) const;

 private:
  template <typename T>
  const T* get(std::string_view key, const char* wanted) const;

  const Gguf& gguf_;
};

// Whether a control token of this text ends a turn, even in files that name only one end-of-text
// id.
bool ends_turn(std::string_view text);

// The vocabulary under tokenizer.ggml.*; nullopt where the file says it has none.
std::optional<Vocabulary> vocabulary_from_gguf(const Gguf& gguf);

// general.* and the architecture's keys. `file_type` is the format's number for the mix of types.
GgufMetadata config_to_gguf(const Config& config, uint32_t file_type);

// tokenizer.*, padded with unused tokens to `vocab` as readers expect one text per embedding row.
// A pre-tokeniser GGUF has no name for is an Error; what GGUF cannot express goes to `notes`.
GgufMetadata vocabulary_to_gguf(const Vocabulary& vocabulary, uint32_t vocab,
                                const std::string& where, std::vector<std::string>& notes);

// The general.architecture a config is written under: Mistral's is "llama".
std::string gguf_architecture(const Config& config);

}  // namespace tyto
