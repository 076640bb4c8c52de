// A text that takes long to make, for any number of requests: made on a thread of its own, once at
// a time, and kept for a while, so that no worker waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tyto::api {

class SlowView {
 public:
  using Make = std::function<std::string()>;  // must end by itself; may throw
  using Done = std::function<void(const std::string& text, const std::optional<Error>& error)>;

  SlowView(Make make, std::chrono::milliseconds kept) : make_(std::move(make)), kept_(kept) {}
  ~SlowView();  // waits for what is being made
  SlowView(const SlowView&) = delete;
  SlowView& operator=(const SlowView&) = delete;

  // Calls `done` once: at once where the text is kept, else from the thread that makes it.
  void ask(Done done);

 private:
  void make_and_tell();

  const Make make_;
  const std::chrono::milliseconds kept_;
  std::mutex mutex_;
  std::vector<Done> asked_;  // not empty: it is being made
  std::optional<std::string> text_;
  std::chrono::steady_clock::time_point made_;
  std::thread thread_;
};

}  // namespace tyto::api
