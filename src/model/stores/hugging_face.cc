#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "model/stores/folder_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestRef = 4096;
constexpr std::string_view kPrefix = "models--";
constexpr int kSnapshotDepth = 3;  // GGUF repositories have folders like BF16/ for large files

// "models--org--repo" -> "org/repo". A repository without an organisation has no second part.
std::string repository_name(std::string_view folder) {
  std::string name(folder.substr(kPrefix.size()));
  if (const size_t between = name.find("--"); between != std::string::npos)
    name.replace(between, 2, "/");
  return name;
}

bool has_unfinished_download(const fs::path& repository) {
  std::vector<std::string> ignored;
  const std::vector<std::string> blobs = names_in(repository / "blobs", ignored);
  return std::any_of(blobs.begin(), blobs.end(),
                     [](const std::string& name) { return name.ends_with(".incomplete"); });
}

void look_at(const fs::path& repository, Listing& listing) {
  const std::string name = "hf:" + repository_name(repository.filename().string());
  const std::string store = "Hugging Face";
  const size_t before = listing.models.size();
  const fs::path snapshot = find_snapshot(repository);
  if (!snapshot.empty())
    add_repository(snapshot, files_below(snapshot, kSnapshotDepth, listing.remarks), name, store,
                   listing);
  if (listing.models.size() == before && has_unfinished_download(repository))
    listing.models.push_back({.name = name,
                              .store = store,
                              .path = snapshot.empty() ? repository : snapshot,
                              .why_not = kUnfinished});
}

}  // namespace

fs::path find_snapshot(const fs::path& repository) {
  const fs::path ref = repository / "refs" / "main";
  std::error_code ignored;
  if (fs::exists(ref, ignored)) {
    std::string revision = read_text_file(ref, kLongestRef);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())) != 0)
      revision.pop_back();
    if (revision.empty() || revision.starts_with('.') || revision.find('/') != std::string::npos)
      fail_input(ref.string(), "\"{}\" is not a revision", printable_name(revision));
    const fs::path snapshot = repository / "snapshots" / revision;
    return fs::exists(snapshot, ignored) ? snapshot : fs::path();
  }
  std::vector<std::string> remarks;
  const std::vector<std::string> snapshots = names_in(repository / "snapshots", remarks);
  if (snapshots.size() > 1)
    fail_input((repository / "snapshots").string(),
               "several revisions and no refs/main; give the folder of one");
  return snapshots.empty() ? fs::path() : repository / "snapshots" / snapshots.front();
}

Listing hugging_face_models(const fs::path& cache) {
  Listing listing;
  for (const std::string& folder : names_in(cache, listing.remarks)) {
    if (!folder.starts_with(kPrefix)) continue;
    try {
      look_at(cache / folder, listing);
    } catch (const Error& error) {
      listing.remarks.emplace_back(error.what());
    }
  }
  return listing;
}

}  // namespace tyto
