// A client for tests of a server: sends bytes as they are and reads answers. Every wait ends.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto {

struct HttpAnswer {
  int status = 0;  // 0: none came
  std::string head;
  std::string body;
  bool is_whole = false;  // as long as it said it would be

  // Lower-case name; empty: there is none.
  std::string header(const std::string& name) const {
    const std::string start = "\r\n" + name + ": ";
    const size_t found = head.find(start);
    if (found == head.npos) return {};
    const size_t begin = found + start.size();
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class HttpClient {
 public:
  static constexpr int kMostMilliseconds = 60'000;  // a loaded machine, with sanitizers

  explicit HttpClient(uint16_t port, int receive_buffer = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address, receive_buffer);
  }
  explicit HttpClient(const std::string& unix_path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
    open(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address, 0);
  }
  HttpClient(HttpClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}
  ~HttpClient() { close(); }

  bool is_connected() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void close_sending_side() { shutdown(fd_, SHUT_WR); }
  void reset() {  // instead of a close in good order
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }

  // False: the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Sends until the server takes no more for a while, and says how much that was.
  size_t send_until_stuck(std::string_view bytes) {
    size_t all = 0;
    pollfd waiting{.fd = fd_, .events = POLLOUT, .revents = 0};
    while (!bytes.empty() && poll(&waiting, 1, 200) == 1) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) break;
      all += static_cast<size_t>(sent);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return all;
  }

  HttpAnswer get(const std::string& path, const std::string& headers = "") {
    send("GET " + path + " HTTP/1.1\r\nhost: localhost\r\n" + headers + "\r\n");
    return read_answer();
  }
  HttpAnswer post(const std::string& path, const std::string& body) {
    send("POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body);
    return read_answer();
  }

  // Receives until `text` has come and returns all up to its end; what it can, where it never does.
  std::string read_until(std::string_view text) {
    size_t found;
    while ((found = received_.find(text)) == received_.npos)
      if (!receive()) return std::exchange(received_, {});
    return take(found + text.size());
  }
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(received_, {});
  }
  bool is_closed_by_server() { return read_to_end().empty() && is_at_end_; }

  HttpAnswer read_answer(bool has_body = true) {
    HttpAnswer answer;
    answer.head = read_until("\r\n\r\n");
    if (!answer.head.starts_with("HTTP/1.1 ")) return answer;
    answer.status = std::atoi(answer.head.c_str() + 9);
    if (!has_body || answer.status == 204 || answer.status == 100) {
      answer.is_whole = true;
    } else if (answer.header("transfer-encoding") == "chunked") {
      read_chunks(answer);
    } else if (const std::string length = answer.header("content-length"); !length.empty()) {
      const size_t bytes = std::stoul(length);
      while (received_.size() < bytes && receive()) {
      }
      answer.is_whole = received_.size() >= bytes;
      answer.body = take(std::min(bytes, received_.size()));
    } else {
      answer.body = read_to_end();
      answer.is_whole = is_at_end_;
    }
    return answer;
  }

 private:
  void open(int family, const sockaddr* address, socklen_t size, int receive_buffer) {
    fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    if (connect(fd_, address, size) != 0) close();
  }

  // False: nothing more comes.
  bool receive() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kMostMilliseconds) != 1) {
      ADD_FAILURE() << "the server neither answered nor closed";
      return false;
    }
    char bytes[16 << 10];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    is_at_end_ = count == 0;
    if (count <= 0) return false;
    received_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  void read_chunks(HttpAnswer& answer) {
    for (;;) {
      const std::string line = read_until("\r\n");
      size_t bytes = 0;
      if (std::from_chars(line.data(), line.data() + line.size(), bytes, 16).ptr == line.data())
        return;
      while (received_.size() < bytes + 2 && receive()) {
      }
      if (received_.size() < bytes + 2) return;
      answer.body += take(bytes);
      take(2);
      if (bytes == 0) {
        answer.is_whole = true;
        return;
      }
    }
  }

  std::string take(size_t bytes) {
    std::string taken = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return taken;
  }

  int fd_ = -1;
  bool is_at_end_ = false;  // closed in good order, not reset
  std::string received_;
};

}  // namespace tyto
