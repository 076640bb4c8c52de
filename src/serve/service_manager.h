// What a service has of systemd, or of another that speaks its protocol: a socket that listens
// already, and an ear for how the service is. See sd_listen_fds(3) and sd_notify(3).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"

namespace tyto {

class ServiceManager {
 public:
  explicit ServiceManager(ServiceVariables variables) : variables_(std::move(variables)) {}

  // The listening socket this process was started with; none: it opens its own. Throws a usage
  // Error for several, and for what is no listening stream socket.
  std::optional<int> activated_socket() const;

  // "READY=1", "RELOADING=1", "STOPPING=1". False when it could not be told; without a service
  // manager there is nothing to tell.
  bool notify(std::string_view state) const;

 private:
  const ServiceVariables variables_;
};

}  // namespace tyto
