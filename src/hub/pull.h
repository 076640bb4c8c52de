// A model from a hub into the Hugging Face cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/hub_api.h"

namespace tyto {

struct PlannedFile {
  HubFile file;
  uint64_t there = 0;  // bytes that need not be fetched
};

struct PullPlan {
  std::string repo;
  std::string revision;  // as asked for: a branch, a tag or a commit
  std::string commit;
  std::vector<PlannedFile> files;
  std::filesystem::path cache;
  std::filesystem::path model;  // what open_model will open
  uint64_t bytes = 0;           // all files'
  uint64_t missing = 0;
  uint64_t free = 0;  // on the disk of the cache
};

// Asks the hub, and writes nothing.
PullPlan plan_pull(const Hub& hub, const RepoName& name, const std::string& revision,
                   const HubHooks& hooks);

// Fetches what is missing, checks it, and puts it where plan_pull said. An Error before the first
// byte when there is no room. Returns how many bytes were fetched.
uint64_t pull(const Hub& hub, const PullPlan& plan, const HubHooks& hooks);

}  // namespace tyto
