// Bytes of one answer on their way from whichever thread makes them to the connection, which takes
// them on the I/O thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace tyto::http {

class Outbox {
 public:
  // `wake` tells the connection to take what is here; once for all that comes until it does.
  Outbox(size_t most_unsent, bool keep_alive, std::function<void()> wake);

  // Of the answer, from any thread.
  enum class Kind { part, last };
  void put(std::string_view bytes, Kind kind);
  void break_off();  // what was put is not the whole and never will be
  void on_gone(std::function<void()> gone);

  // Of the connection.
  struct State {
    bool is_complete = false;
    bool is_broken = false;  // broken off, or more than `most_unsent` was not taken
  };
  State take(std::string& into);  // replaces what `into` held
  State state() const;
  void client_gone();  // drops everything, from now on, too, and forgets `wake`
  void answered();     // everything was sent: forgets `wake`
  void close_after();

  // Whether another request may follow on the connection.
  bool keep_alive() const;

 private:
  void break_now();

  mutable std::mutex mutex_;
  const size_t most_unsent_;
  bool keep_alive_;
  std::function<void()> wake_;
  std::function<void()> gone_;
  std::string bytes_;
  State state_;
  bool is_woken_ = false;
  bool is_gone_ = false;
};

}  // namespace tyto::http
