// A GGUF model in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf
// and so on. The first has all metadata, each has tensors, and each says which of how many it is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/gguf.h"

namespace tyto {

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
