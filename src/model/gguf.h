// GGUF v2/v3: reading with every count and offset checked, and streaming writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/atomic_file.h"
#include "base/file.h"
#include "model/model.h"
#include "model/weight_table.h"
#include "tensor/dtype.h"

namespace tyto {

// A metadata value. Integers of every width widen to int64/uint64, floats to double; an array of
// booleans is one of integers. Written back as the narrow types GGUF readers expect: u32 (u64 when
// it does not fit), i32, f32, and arrays of i32 and f32. Bytes are written as such, and read as
// integers.
struct GgufValue {
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<int64_t>,
               std::vector<double>, std::vector<std::string>, std::vector<uint8_t>>
      value;
};

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;  // in file order, for writing

struct Gguf {
  std::string name;  // for errors
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<NamedTensor> tensors;  // views into the parsed bytes
};

// Parses and checks; views point into `bytes`, which must outlive the result. Dimensions beyond the
// second are folded into the rows.
Gguf parse_gguf(std::span<const std::byte> bytes, const std::string& name);

// The same of the header alone, with tensors of any type: an empty Gguf::tensors, and each as the
// file names it, its bytes up to the next one.
Gguf parse_gguf_header(std::span<const std::byte> bytes, const std::string& name,
                       std::vector<StoredTensor>& tensors);

// Throws unless Tyto runs models of the file's architecture.
void check_architecture(const Gguf& gguf);

// Throws: what is there is an adapter, where a model was asked for.
[[noreturn]] void fail_adapter(const std::string& where);

// Config, weights and vocabulary out of a parsed file. With Need::vocabulary an architecture Tyto
// cannot run is accepted (its config stays empty but for the name), and so are absent weights.
void fill_model_from_gguf(const Gguf& gguf, Need need, Model& model);

// --- writing ---

// Writes header and metadata at once, then tensor data in plan order as it is handed over.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::vector<TensorPlan> tensors, Replace replace = Replace::same_kind);
  void append(std::span<const std::byte> bytes);  // next bytes of the current tensor
  void commit();                                  // all tensors complete, file renamed into place

 private:
  AtomicFile file_;
  std::vector<TensorPlan> tensors_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // bytes of the current tensor
};

// Typed look-ups in GGUF metadata, and the metadata Tyto writes.

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

// A GGUF model in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf
// and so on. The first has all metadata, each has tensors, and each says which of how many it is.

// Which file of how many a name says it is, counted from one.
struct ShardName {
  std::string stem;  // the name before "-00001-of-00003.gguf"
  uint32_t number = 0;
  uint32_t count = 0;
  std::string extension = ".gguf";  // as the file has it, which may be in capitals

  std::string file(uint32_t which) const;  // the name of another of them
};
std::optional<ShardName> shard_name(const std::string& file_name);

// Maps a GGUF, and where it is one of several all of them, in order; parsed as one. Views point
// into `files`.
Gguf open_gguf_files(const std::filesystem::path& path, std::vector<MappedFile>& files);

}  // namespace tyto
