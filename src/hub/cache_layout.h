// Hugging Face's cache, as huggingface_hub and llama.cpp read and write it:
//
//   models--ORG--NAME/refs/main                  the commit that a revision was, when last asked
//   models--ORG--NAME/blobs/HASH                 a file's content
//   models--ORG--NAME/blobs/HASH.incomplete      its first bytes, while it is being fetched
//   models--ORG--NAME/snapshots/COMMIT/PATH      a link to the blob
//   .locks/models--ORG--NAME/HASH.lock           held (flock) while that blob is written
//
// Nothing that is there is removed or changed, but for the .incomplete of the file that is fetched
// and for refs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "hub/hub_api.h"

namespace tyto {

// Where models are pulled to: the first of the folders that models are looked for in.
std::filesystem::path hub_cache_folder();

struct RepoCache {
  RepoCache(std::filesystem::path its_root, const std::string& repo);

  std::filesystem::path blob(const HubFile& file) const;
  std::filesystem::path incomplete(const HubFile& file) const;
  std::filesystem::path lock(const HubFile& file) const;  // its folder is made
  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path pointer(const std::string& commit, const HubFile& file) const;
  std::filesystem::path ref(const std::string& revision) const;

  std::filesystem::path root;
  std::string folder;  // "models--ORG--NAME"
};

// How many bytes of the file need not be fetched: all, where the snapshot or the blob has it.
uint64_t bytes_there(const RepoCache& cache, const std::string& commit, const HubFile& file);

// Whether readers of the snapshot find the file, as a link or, where links are not possible,
// itself.
bool is_in_snapshot(const RepoCache& cache, const std::string& commit, const HubFile& file);

// Whether its content is there in full. An Error where something of another size bears its name.
bool has_blob(const RepoCache& cache, const HubFile& file);

// Puts a blob that is there into the snapshot.
void link_blob(const RepoCache& cache, const std::string& commit, const HubFile& file);

void write_ref(const RepoCache& cache, const std::string& revision, const std::string& commit);

// How much the file system that the path is or will be on has left.
uint64_t free_bytes(std::filesystem::path path);

void make_folder(const std::filesystem::path& folder);

// Names from strangers that become paths.

// A relative path that stays below whatever folder it is put into: of names that file systems take,
// none of them "..", and none git's own folder.
bool stays_below(std::string_view path);

// Whether a file is what the hub says it is.

// The hash of a whole file as the hub gives it, in hexadecimal: SHA-256 where `digits` is 64, and
// where it is 40 git's: SHA-1 of "blob SIZE", a zero byte and the content.
std::string blob_hash(const std::filesystem::path& path, size_t digits,
                      const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace tyto
