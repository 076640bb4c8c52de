// GGUF v2/v3: reading with every count and offset checked, and streaming writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/atomic_file.h"
#include "model/model.h"
#include "model/tensor_plan.h"
#include "tensor/view.h"

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
  uint64_t written_ = 0;  // of the current tensor
};

}  // namespace tyto
