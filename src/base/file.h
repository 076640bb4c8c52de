// Reading files: mappings for models, whole small files, what the system says in files. Files are
// opened for reading here alone, so that they are known as inputs.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tyto {

// What the system says of a file's content without its being read.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // the content's, which a program may set
  int64_t changed_ns = 0;   // content, name or permissions, which no program may set
  bool operator==(const FileStamp&) const = default;
};
// A regular file's, links followed. Nothing where there is none.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);
// Old enough that another change would bear other times, so that what was made of the file may be
// kept under its stamp.
bool is_settled(const FileStamp& stamp);

// A read-only mapping of a whole file. Move-only; the bytes live as long as it does. It is shared
// where the file system can: of a private mapping every process may write its own copy, so that a
// driver will not pin its pages as read-only (VM_MAYWRITE). The file may become shorter meanwhile;
// touching what is gone is a SIGBUS (base/signal_tables.h).
class MappedFile {
 public:
  MappedFile();
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const;
  const std::filesystem::path& path() const { return path_; }
  // That of the file that is mapped, whatever its name stands for by now. There must be one.
  int descriptor() const;
  const FileStamp& stamp() const;  // when it was mapped
  FileStamp stamp_now() const;

 private:
  struct Mapping;
  std::filesystem::path path_;
  std::unique_ptr<Mapping> mapping_;
};

// Gives whole pages inside a MappedFile back to the system; touched again, they are read from the
// file again. Bytes that lie in no MappedFile are left alone.
void release_mapped_pages(std::span<const std::byte> bytes);

// False also where it cannot be found out.
bool is_there(const std::filesystem::path& path);

// The whole file as text; refuses one larger than `limit_bytes` before reading it.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit_bytes);
// The same of a file that may be replaced once it is read: it does not become an input by this.
std::string read_replaceable_file(const std::filesystem::path& path, uint64_t limit_bytes);

// What a file of /proc or /sys says. Such files do not know their size, and that one cannot be read
// is a fact like any other: no exception, but the error number and no text.
struct SystemText {
  std::string text;  // without white space at the end; at most `limit_bytes`
  int error = 0;     // ENOENT, EACCES ...
};
SystemText read_system_text(const std::filesystem::path& path, size_t limit_bytes = 1 << 20);

// The end of a file of lines, from the beginning of a line on; `limit_bytes` at most.
std::string read_last_lines(const std::filesystem::path& path, uint64_t limit_bytes);

// Adds a line to a file, making it and its folder if need be. Several processes may do so at a
// time; half a line that a killed one left stays a line of its own. A file that is made is
// readable for all users, or for its owner alone.
enum class Readers : uint8_t { all, owner };
void append_line(const std::filesystem::path& path, std::string_view line,
                 Readers readers = Readers::all);

// How a file is known that Tyto wrote earlier, so that it may be replaced by a newer one.

struct FileKind {
  std::string_view name = {};       // "a receipt", for errors
  std::string_view beginning = {};  // every such file's; empty: none is recognised
  bool is_private = false;          // only its owner may read it
};

// Which files this process reads and which it is about to replace. No file is ever both, by
// whatever path or link to it: the second of the two uses is an Error.

// A file itself, whatever it is called. With the time it was made, because a deleted file's number
// is given to another; file systems that do not know it say 0.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t made_ns = 0;
  auto operator<=>(const FileId&) const = default;
};

// A regular file's, links followed. Nothing where there is none.
std::optional<FileId> file_id(int descriptor);
std::optional<FileId> file_id(const std::filesystem::path& path);

// From now on an input; `path` is for the Error.
void add_input(const FileId& id, const std::filesystem::path& path);

// Every file of a folder that something is read from: a model is its whole checkpoint.
void add_inputs_of(const std::filesystem::path& folder);

// Throws when the file is an input, or one of the standard streams.
void check_not_in_use(const std::filesystem::path& path);

// Throws when the file is one of the standard streams.
void check_no_standard_stream(const std::filesystem::path& path);

// That a file is about to be replaced, for as long as this lives.
class PendingReplacement {
 public:
  PendingReplacement() = default;
  explicit PendingReplacement(const std::filesystem::path& path);  // which is not in use
  ~PendingReplacement();
  PendingReplacement(const PendingReplacement&) = delete;
  PendingReplacement& operator=(const PendingReplacement&) = delete;

 private:
  std::optional<FileId> id_;  // none: there is no such file yet
};

// One process at a time: an advisory lock on a file, for as long as it lives.

class FileLock {
 public:
  // Waits until it is free; an Error when that takes longer than `patience`. The file is made
  // if need be, and stays: removing one that another process waits for would leave two owners.
  explicit FileLock(const std::filesystem::path& path,
                    std::chrono::milliseconds patience = std::chrono::minutes(1));
  // Null: another process holds it.
  static std::unique_ptr<FileLock> try_take(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace tyto
