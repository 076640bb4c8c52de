#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace tyto::http {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 1024;  // a thousand clients that come at once

ListenAddress wanted_address(const ServerOptions& options) {
  return {options.host, options.host.starts_with(kUnix) ? uint16_t{0} : options.port};
}

[[noreturn]] void fail_listen(const ListenAddress& address, const std::string& why) {
  throw Error(ErrorCode::input, text_of(address), fmt::format("cannot listen: {}", why),
              "choose another --host or --port, or stop what listens there");
}

void set_option(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

sockaddr_un unix_address(const ListenAddress& wanted) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = wanted.host.substr(kUnix.size());
  if (path.empty() || path.size() >= sizeof address.sun_path)
    fail_listen(wanted,
                fmt::format("a socket's path has 1 to {} bytes", sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A server that was killed leaves its socket behind; nobody answers there.
void remove_stale(const sockaddr_un& address) {
  struct stat status{};
  if (lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED)
    unlink(address.sun_path);
  close(probe);
}

// A socket bound to the address, or -1 with errno.
int listen_at(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // "::" is all addresses
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int listen_on_unix(const ListenAddress& wanted) {
  const sockaddr_un address = unix_address(wanted);
  remove_stale(address);
  const int fd = listen_at(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (fd < 0) fail_listen(wanted, std::strerror(errno));
  return fd;
}

int listen_on_network(const ListenAddress& wanted) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
  if (failure != 0) fail_listen(wanted, gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    const int fd = listen_at(one->ai_family, one->ai_addr, one->ai_addrlen);
    if (fd >= 0) return fd;
  }
  fail_listen(wanted, std::strerror(errno));
}

int handed_over(int fd) {
  int is_listening = 0;
  socklen_t size = sizeof is_listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || !is_listening)
    fail_input(fmt::format("file descriptor {}", fd), "is not a socket that listens");
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

ListenAddress address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(fd, address, &size) != 0) return {};
  if (storage.ss_family == AF_UNIX)
    return {std::string(kUnix) + reinterpret_cast<sockaddr_un*>(address)->sun_path};
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  const in_port_t port = storage.ss_family == AF_INET6
                             ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                             : reinterpret_cast<sockaddr_in*>(address)->sin_port;
  return {host.data(), ntohs(port)};
}

}  // namespace

std::string text_of(const ListenAddress& address) {
  if (address.host.starts_with(kUnix)) return address.host;
  const bool has_colon = address.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(has_colon ? "[{}]:{}" : "{}:{}"), address.host, address.port);
}

Listener::Listener(const ServerOptions& options) : is_own_(!options.listening_fd) {
  const ListenAddress wanted = wanted_address(options);
  if (options.listening_fd)
    fd_ = handed_over(*options.listening_fd);
  else if (wanted.host.starts_with(kUnix))
    fd_ = listen_on_unix(wanted);
  else
    fd_ = listen_on_network(wanted);
  address_ = address_of(fd_);
}

Listener::~Listener() {
  close();
}

int Listener::accept() const {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  // A token is a small packet, and nobody should wait for the next one to fill it up.
  if (fd >= 0) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

void Listener::close() {
  if (fd_ < 0) return;
  if (is_own_ && address_.host.starts_with(kUnix)) unlink(address_.host.c_str() + kUnix.size());
  ::close(fd_);
  fd_ = -1;
}

bool is_local(const ServerOptions& options) {
  const std::string host =
      options.listening_fd ? address_of(*options.listening_fd).host : options.host;
  return host.starts_with(kUnix) || host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && inet_addr(host.c_str()) != INADDR_NONE);
}

}  // namespace tyto::http
