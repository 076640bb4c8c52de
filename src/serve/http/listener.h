// A socket that listens, where the options say.
#pragma once

#include <cstdint>
#include <string>

#include "serve/http/server.h"

namespace tyto::http {

struct ListenAddress {
  std::string host;   // "127.0.0.1", "::1", "unix:/path"
  uint16_t port = 0;  // 0 for a unix socket
};

std::string text_of(const ListenAddress& address);  // "[::1]:9377"

class Listener {
 public:
  explicit Listener(const ServerOptions& options);  // throws an input Error
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const ListenAddress& address() const { return address_; }
  int fd() const { return fd_; }  // does not block
  // A socket that was handed to us goes on to take connections when we do not.
  bool is_own() const { return is_own_; }
  // A connection that waits, or -1 with errno. Does not block, nor does what it returns.
  int accept() const;
  void close();

 private:
  int fd_ = -1;
  bool is_own_ = true;
  ListenAddress address_;
};

}  // namespace tyto::http
