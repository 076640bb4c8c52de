// The receipts and recordings of the last requests, for later questions. Used by any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trace/profile.h"

namespace tyto {

struct StoredReceipt {
  std::string id;
  std::string time;  // UTC, ISO 8601
  std::string model;
  std::string line;   // in one line, as `tyto run` prints it
  std::string badge;  // "real", "virtual", "fell back", "refused", "failed"
  uint32_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string json = {};                        // sealed
  std::shared_ptr<const Profile> profile = {};  // shared with what renders it; null: not recorded
  std::string why_no_profile = {};              // where one was asked for
};

// Which of these words stands for an execution.
std::string badge_of(const Receipt& receipt, bool has_failed);

class ReceiptStore {
 public:
  explicit ReceiptStore(size_t most) : most_(most) {}

  void add(StoredReceipt receipt);          // the oldest gives way
  std::vector<StoredReceipt> list() const;  // the newest first, without JSON and profiles
  // An empty id where there is none.
  StoredReceipt find(const std::string& id) const;

 private:
  // Each has many events, so fewer are kept.
  static constexpr size_t kMostProfiles = 8;

  const size_t most_;
  mutable std::mutex mutex_;
  std::deque<StoredReceipt> receipts_;  // the newest last
};

}  // namespace tyto
