// The one error type. Input, environment and device failures throw it; only cli/ prints it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tyto {

enum class ErrorCode {
  input,        // a file, prompt or template is bad
  usage,        // a flag or an environment control is bad
  unsupported,  // well-formed, but Tyto cannot do it
  device,       // a device failed or timed out
  require,      // --require was not satisfied
  busy,         // too many requests at once
  deadline,     // a request took longer than it may
};

// `where` names the file and field (or device and program), `what` the fact, `hint` the next step.
// what() and the hint are each one printable line of bounded length, whatever names a file put into
// them.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode error_code, const std::string& where, const std::string& what,
        const std::string& next_step = "");

  ErrorCode code;
  std::string hint;
};

template <typename... Args>
[[noreturn]] void fail_input(const std::string& where, fmt::format_string<Args...> format,
                             Args&&... args) {
  throw Error(ErrorCode::input, where, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_unsupported(const std::string& where, fmt::format_string<Args...> format,
                                   Args&&... args) {
  throw Error(ErrorCode::unsupported, where, fmt::format(format, std::forward<Args>(args)...));
}

// A broken promise between two parts of Tyto; never reachable from input.
[[noreturn]] void assert_failed(const char* condition, const char* file, int line);

}  // namespace tyto

#define TYTO_ASSERT(condition) \
  ((condition) ? (void)0 : ::tyto::assert_failed(#condition, __FILE__, __LINE__))
