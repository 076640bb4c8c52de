#include "serve/thrown_error.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

namespace tyto {
namespace {

constexpr const char* kNoMemory = "there is not enough memory";

}  // namespace

Error thrown_error(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::device, where, kNoMemory};
  } catch (const std::system_error& error) {  // its what() may have a path behind the reason
    return {ErrorCode::device, fmt::format("{}: {}", where, error.what()), error.code().message()};
  } catch (const std::exception& error) {
    return {ErrorCode::device, where, error.what()};
  } catch (...) {
    return {ErrorCode::device, where, "an exception of an unknown kind was thrown"};
  }
}

// An Error has the system's words at its end, and not its number.
bool may_pass(const Error& error) {
  const std::string_view what = error.what();
  const auto is_of = [&](int code) {
    return what.ends_with(std::generic_category().message(code));
  };
  return what.ends_with(kNoMemory) ||
         std::ranges::any_of(std::initializer_list<int>{ENOMEM, EMFILE, ENFILE, EAGAIN}, is_of);
}

}  // namespace tyto
