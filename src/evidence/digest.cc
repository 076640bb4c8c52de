#include "evidence/digest.h"

#include <sodium.h>

#include <array>

namespace tyto {

std::string digest(std::string_view bytes) {
  [[maybe_unused]] static const int ready = sodium_init();  // finds the processor's fastest code
  std::array<unsigned char, kDigestDigits / 2> hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  std::array<char, kDigestDigits + 1> text;
  sodium_bin2hex(text.data(), text.size(), hash.data(), hash.size());
  return text.data();
}

}  // namespace tyto
