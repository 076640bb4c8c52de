// One file of a repository, from where its .incomplete ends.
//
// Bytes reach the disk in order, so that the .incomplete is always the file's beginning, whatever
// ends the program: going on is asking for the rest. Large files come in ranges over several
// connections, because hubs and the way to them limit a connection more than a client; ranges ahead
// of the first wait in memory (kMostPieces * kPieceBytes at most).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/hooks.h"
#include "hub/http.h"
#include "hub/hub_api.h"

namespace tyto {

inline constexpr uint64_t kPieceBytes = 8 << 20;
inline constexpr size_t kMostPieces = 8;
inline constexpr size_t kConnections = 4;
// What is left of a file is fetched over one connection when it is no more than this.
inline constexpr uint64_t kSmallBytes = kPieceBytes * 2;

struct DownloadSource {
  const Hub& hub;
  std::string repo;
  std::string url;  // at the hub, which may redirect elsewhere
  HubFile file;
};

// Returns when `incomplete` has the size that the hub's list says; whether it has the content is
// for the caller to find out. `on_bytes` is told how much of the file there is; returned is how
// much of it was fetched now.
uint64_t download(HttpClient& client, const DownloadSource& source,
                  const std::filesystem::path& incomplete, const HubHooks& hooks,
                  const std::function<void(uint64_t bytes)>& on_bytes);

}  // namespace tyto
