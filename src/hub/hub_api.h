// What a Hugging Face-compatible hub is asked: the files of a repository, and where one is fetched.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "hub/http.h"

namespace tyto {

// How a pull speaks with its caller. Hooks are called between transfers, never inside one.

struct HubHooks {
  Progress progress;                                  // bytes of all files
  std::function<void(const std::string& line)> note;  // something people want to know
  std::function<bool()> is_interrupted;               // by Ctrl-C
};

// Thrown where a wait was interrupted. What was fetched is kept.
struct PullInterrupted {};

void check_interrupted(const HubHooks& hooks);
void pause(std::chrono::milliseconds time, const HubHooks& hooks);

struct Hub {
  std::string endpoint;  // "https://huggingface.co"
  std::string token;     // empty: none
  std::string user_agent;
  std::chrono::seconds timeout{30};
  unsigned retries = 5;  // for one request, or for a file since bytes last came
};

// HF_ENDPOINT and the token that belongs to it.
Hub hub_of_environment();

// The token for a request to this URL: that of the hub itself, and none for any other scheme, host
// or port, wherever the hub's redirects lead.
std::string token_for(const Hub& hub, const std::string& url);

struct RepoName {
  std::string repo;           // "org/name"
  std::string asked;          // what stands behind the colon; may be empty
  std::string revision = {};  // that an address names; empty: none
};
// "org/name", "org/name:Q4_K_M", also with "hf:" before it, or what a browser shows: an address on
// `endpoint` or huggingface.co of a repository, a folder of it or a file. A usage Error says what
// is allowed.
RepoName parse_repo_name(const std::string& name, const std::string& endpoint = "");

struct HubFile {
  std::string path;  // stays below the folder that it is put into
  uint64_t size = 0;
  // 64 hexadecimal digits: the file's SHA-256 (Git LFS). 40: git's SHA-1 of it. The blob's name in
  // the cache, too.
  std::string hash;
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

// All of a revision, with names and hashes checked.
HubListing list_files(const Hub& hub, const std::string& repo, const std::string& revision,
                      const HubHooks& hooks);

std::string file_url(const Hub& hub, const std::string& repo, const std::string& commit,
                     const std::string& path);

// What a 4xx of the hub means, with the next step.
[[noreturn]] void refuse(const Hub& hub, const std::string& repo, const std::string& what,
                         const HttpAnswer& answer);

}  // namespace tyto
