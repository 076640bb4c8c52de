#include "serve/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.h"

namespace tyto {
namespace {

constexpr int kFirstSocket = 3;  // behind stdin, stdout and stderr

int socket_option(int socket, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

std::optional<int> ServiceManager::activated_socket() const {
  // They are for the process with this number: a child would inherit them without the sockets.
  if (variables_.listen_pid != std::to_string(::getpid())) return std::nullopt;
  if (variables_.listen_fds != "1")
    throw Error(ErrorCode::usage, "LISTEN_FDS",
                fmt::format("there are {} sockets to listen on", variables_.listen_fds),
                "give the service one socket with one ListenStream=");
  if (socket_option(kFirstSocket, SO_ACCEPTCONN) != 1 ||
      socket_option(kFirstSocket, SO_TYPE) != SOCK_STREAM)
    throw Error(ErrorCode::usage, "LISTEN_FDS", "descriptor 3 is not a listening stream socket",
                "give the socket a ListenStream= and Accept=no");
  ::fcntl(kFirstSocket, F_SETFD, FD_CLOEXEC);
  return kFirstSocket;
}

bool ServiceManager::notify(std::string_view state) const {
  const std::string& path = variables_.notify_socket;
  if (path.empty()) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';  // in the abstract name space
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const timeval most{.tv_sec = 5, .tv_usec = 0};  // for a manager that does not read
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const ssize_t sent = ::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), size);
  ::close(socket);
  return sent == static_cast<ssize_t>(state.size());
}

}  // namespace tyto
