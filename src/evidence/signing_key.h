// Ed25519 keys for those who publish numbers. A key is one line of text: a word that says what it
// is, and the key in base64.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace tyto {

inline constexpr size_t kPublicKeyLetters = 44;  // in base64
inline constexpr size_t kSignatureLetters = 88;

// As base64, which is how receipts and ledgers name it.
struct PublicKey {
  std::string text;
  bool operator==(const PublicKey&) const = default;
};

// Whether `signature` (base64) is this key's, of these bytes. A key or signature that is none is
// not.
bool is_signed_by(const PublicKey& key, std::string_view signature, std::string_view bytes);

// Wiped from memory when it goes, and never shown.
class SigningKey {
 public:
  // The file must be the user's alone: one that others may read is refused.
  explicit SigningKey(const std::filesystem::path& file);
  ~SigningKey();
  SigningKey(const SigningKey&) = delete;
  SigningKey& operator=(const SigningKey&) = delete;

  PublicKey public_key() const;
  std::string sign(std::string_view bytes) const;  // base64

 private:
  std::array<unsigned char, 64> secret_;  // the seed, then the public key
};

// Makes a key: `file` for its owner's eyes alone, and `file`.pub to give away. Neither may be there
// already.
PublicKey make_key(const std::filesystem::path& file);

// The file that make_key wrote for others, or its text.
PublicKey public_key_from(const std::string& file_or_text);
std::string key_line(const PublicKey& key);  // "tyto-ed25519-public BASE64"

}  // namespace tyto
