#include "serve/service_manager.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace tyto {
namespace {

// A descriptor of this process's at number 3, as systemd hands it over; what was there comes back.
class AsDescriptor3 {
 public:
  explicit AsDescriptor3(int descriptor) : before_(::fcntl(3, F_DUPFD_CLOEXEC, 10)) {
    ::dup2(descriptor, 3);
    if (descriptor != 3) ::close(descriptor);
  }
  ~AsDescriptor3() {
    ::close(3);
    if (before_ >= 0) ::dup2(before_, 3);
    if (before_ >= 0) ::close(before_);
  }

 private:
  const int before_;
};

int listening_socket() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(socket, 1), 0);
  return socket;
}

ServiceManager manager(const std::string& sockets, int pid = ::getpid()) {
  return ServiceManager({std::to_string(pid), sockets, ""});
}

std::string problem(const ServiceManager& with) {
  try {
    with.activated_socket();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(ServiceManager, ASocketThatListensIsTaken) {
  const AsDescriptor3 three(listening_socket());
  EXPECT_EQ(manager("1").activated_socket(), 3);
  EXPECT_EQ(::fcntl(3, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(problem(manager("2")), "LISTEN_FDS: there are 2 sockets to listen on");
}

TEST(ServiceManager, SocketsOfAnotherProcessAreNotOurs) {
  EXPECT_EQ(manager("1", 1).activated_socket(), std::nullopt);
  EXPECT_EQ(ServiceManager({}).activated_socket(), std::nullopt);
}

TEST(ServiceManager, WhatDoesNotListenIsRefused) {
  for (const int kind : {SOCK_STREAM, SOCK_DGRAM}) {
    const AsDescriptor3 three(::socket(AF_INET, kind, 0));
    EXPECT_EQ(problem(manager("1")), "LISTEN_FDS: descriptor 3 is not a listening stream socket");
  }
}

// What arrives at a socket of that name when the service says how it is.
std::string heard_at(const std::string& name, const std::string& state) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_TRUE(ServiceManager({"", "", name}).notify(state));
  char buffer[100];
  const ssize_t bytes = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
  ::close(socket);
  return bytes < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(bytes));
}

TEST(ServiceManager, TellsHowItIs) {
  const std::string name = "/tyto-test-" + std::to_string(::getpid());
  const std::string file = testing::TempDir() + name;
  EXPECT_EQ(heard_at(file, "READY=1"), "READY=1");
  ::unlink(file.c_str());
  EXPECT_EQ(heard_at("@" + name, "STOPPING=1"), "STOPPING=1");
}

TEST(ServiceManager, NobodyThereIsNoReasonToStop) {
  EXPECT_TRUE(ServiceManager({}).notify("READY=1"));
  EXPECT_FALSE(ServiceManager({"", "", "/no/such/socket"}).notify("READY=1"));
  EXPECT_FALSE(ServiceManager({"", "", std::string(500, 'x')}).notify("READY=1"));
}

TEST(ServiceManager, VariablesAreTakenOnce) {
  ::setenv("LISTEN_PID", "5", 1);
  ::setenv("LISTEN_FDS", "1", 1);
  ::setenv("LISTEN_FDNAMES", "tyto.socket", 1);
  ::setenv("NOTIFY_SOCKET", "@x", 1);
  const ServiceVariables taken = take_service_variables();
  EXPECT_EQ(taken.listen_pid, "5");
  EXPECT_EQ(taken.listen_fds, "1");
  EXPECT_EQ(taken.notify_socket, "@x");
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"})
    EXPECT_EQ(std::getenv(name), nullptr) << name;
}

}  // namespace
}  // namespace tyto
