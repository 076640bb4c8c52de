#include "model/stores/local_model.h"

#include <system_error>

#include "model/stores/repo_files.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

LocalModel local_model(const RepoModel& found, const fs::path& folder, const std::string& name,
                       const std::string& store) {
  const bool is_checkpoint = found.asked.empty();
  LocalModel model;
  model.name = is_checkpoint ? name : name + ":" + found.asked;
  model.store = store;
  model.path = is_checkpoint ? folder : folder / found.files.front();
  measure(folder, found.files, model);
  if (!found.missing.empty()) model.why_not = "incomplete, " + found.missing;
  if (!is_checkpoint) {
    model.other_names.push_back(name + ":" + found.files.front());
    model.other_names.push_back(name + "/" + found.files.front());
  }
  return model;
}

}  // namespace

void measure(const fs::path& folder, const std::vector<std::string>& files, LocalModel& model) {
  for (const std::string& file : files) {
    std::error_code error;
    if (fs::is_regular_file(folder / file, error)) {  // or a link to one; a pipe is never opened
      const uint64_t size = fs::file_size(folder / file, error);
      if (!error) model.bytes += size;
    } else if (model.why_not.empty()) {
      model.why_not = fs::exists(folder / file, error)
                          ? file + " is not a regular file"
                          : "incomplete, " + file + " leads to no file";
    }
  }
}

void add_repository(const fs::path& folder, const std::vector<std::string>& files,
                    const std::string& name, const std::string& store, Listing& listing) {
  const std::vector<RepoModel> found = models_of_repository(files);
  for (const RepoModel& each : found)
    listing.models.push_back(local_model(each, folder, name, store));
  if (found.size() == 1 && !found.front().asked.empty())
    listing.models.back().other_names.push_back(name);
}

}  // namespace tyto
