// Files: read-only mappings for models, whole small files, and writes that never leave half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tyto {

// A read-only private mapping of a whole file. Move-only; the bytes live as long as it does.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// Gives whole pages inside a MappedFile back to the system; touched again, they are read from the
// file again. Bytes that lie in no MappedFile are left alone.
void release_mapped_pages(std::span<const std::byte> bytes);

// The whole file as text; refuses one larger than `limit_bytes` before reading it.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit_bytes);

// What a file of /proc or /sys says. Such files do not know their size, and that one cannot be read
// is a fact like any other: no exception, but the error number and no text.
struct SystemText {
  std::string text;  // without white space at the end; at most `limit_bytes`
  int error = 0;     // ENOENT, EACCES ...
};
SystemText read_system_text(const std::filesystem::path& path, size_t limit_bytes = 1 << 20);

// Adds a line to a file, making it and its folder if need be. Several processes may do so at a
// time; half a line that a killed one left stays a line of its own.
void append_line(const std::filesystem::path& path, std::string_view line);

// Writes to a temporary beside the target and renames it into place on commit(); without commit()
// the target is untouched and the temporary removed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void pad_to(uint64_t alignment);
  uint64_t position() const { return position_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::FILE* file_ = nullptr;
  uint64_t position_ = 0;
};

}  // namespace tyto
