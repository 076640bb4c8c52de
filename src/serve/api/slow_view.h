// A text that takes long to make, for any number of requests: made on a thread of its own, once at
// a time, and kept for a while, so that no worker waits for it, and nobody for one that hangs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tyto::api {

class SlowView {
 public:
  using Make = std::function<std::string()>;  // may throw, and may outlive the view
  using Done = std::function<void(const std::string& text, const std::optional<Error>& error)>;

  // What is not made in the `longest` time is an Error for those who have asked by then. Who asks
  // later waits for the same text, as long again.
  SlowView(Make make, std::chrono::milliseconds kept, std::chrono::milliseconds longest)
      : make_(std::move(make)), kept_(kept), longest_(longest) {}
  ~SlowView();  // waits for what is being made, and no longer than that
  SlowView(const SlowView&) = delete;
  SlowView& operator=(const SlowView&) = delete;

  // Calls `done` once: at once where the text is kept, else from the thread that makes it.
  void ask(Done done);

 private:
  struct Making;

  std::string wait_for_text();
  void make_and_tell();

  const Make make_;
  const std::chrono::milliseconds kept_, longest_;
  std::mutex mutex_;
  std::vector<Done> asked_;  // not empty: it is being made
  std::optional<std::string> text_;
  std::chrono::steady_clock::time_point made_;
  std::thread thread_;  // that waits and tells
  // Of that thread alone, and of the destructor after it.
  std::shared_ptr<Making> making_;  // shared with `maker_`; null: nothing is being made
  std::thread maker_;
};

}  // namespace tyto::api
