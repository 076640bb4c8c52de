#include "model/printable.h"

#include <fmt/format.h>

namespace tyto {

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

}  // namespace tyto
