// Importance matrices: how much each input column of a matrix matters, as llama-imatrix measures it
// on a text. An encoder that knows lets the others take the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tyto {

struct ImportanceMatrix {
  std::string file;     // for errors and for what is written of it
  std::string dataset;  // the text it was measured on; empty: the file does not say
  uint64_t chunks = 0;  // of that text; 0: the file does not say
  // By GGUF name, one number for each column: the mean square of what is multiplied by it, of the
  // largest. 0 to 1.
  std::map<std::string, std::vector<float>, std::less<>> columns;
};

// Both forms: a GGUF of general.type "imatrix", and the binary one that came before it. Every count
// is checked; a number that is negative or not finite is an Error naming the entry.
ImportanceMatrix parse_importance(std::span<const std::byte> bytes, const std::string& name);
ImportanceMatrix read_importance(const std::filesystem::path& path);

}  // namespace tyto
