// The hash of evidence: BLAKE2b with 256 bits. Who changes what it covers cannot keep it, but
// whoever holds the contents can compute it.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

inline constexpr size_t kDigestDigits = 64;

std::string digest(std::string_view bytes);  // lower-case hexadecimal digits

}  // namespace tyto
