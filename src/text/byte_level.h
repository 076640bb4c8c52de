// GPT-2's byte-level alphabet: each of the 256 bytes written as one printable code point, so that a
// vocabulary of byte strings can be stored as text. Printable Latin-1 stands for itself, the other
// 68 bytes become U+0100..U+0143 in order.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

char32_t byte_level_code_point(unsigned char byte);

std::string to_byte_level(std::string_view bytes);

// The bytes a stored piece stands for. Code points outside the alphabet stand for themselves, as do
// bytes that are not UTF-8.
std::string from_byte_level(std::string_view piece);

}  // namespace tyto
