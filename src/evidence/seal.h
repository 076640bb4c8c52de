// A sealed object: JSON whose last members are `hash` and, where it was signed, `signature`. What
// is hashed is the text itself, without the seal and without white space between its parts: no
// number is read and written again, no member is put in order, so that there is nothing to agree
// upon. docs/evidence.md has the definition, and ten lines of Python that check it.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_value.h"

namespace tyto {

// The hash of evidence: BLAKE2b with 256 bits. A change of what it covers changes it, but it can be
// computed from the contents without any secret.

inline constexpr size_t kDigestDigits = 64;

std::string digest(std::string_view bytes);  // lower-case hexadecimal digits

// Ed25519 keys for those who publish numbers. A key is one line of text: a word that says what it
// is, and the key in base64.

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

// Appends the seal to an object that has none.
void seal(JsonValue& object, const SigningKey* key);

struct Signature {
  PublicKey key;
  bool is_good = false;  // it is that key's, of this hash
};

struct Seal {
  std::string stated;    // the hash in the object; empty: it has none at its end
  std::string computed;  // from what the object holds
  std::optional<Signature> signature = {};

  bool is_whole() const { return !stated.empty() && stated == computed; }
};
Seal read_seal(std::string_view object);

// Why the key that is trusted does not stand for the object; empty where it does.
std::string distrust(const Seal& seal, const PublicKey& trusted);

// JSON text without white space outside its strings.
std::string without_space(std::string_view json);

// The text of a member of an object, as it stands there; of members with the same name the last.
// The text must be valid JSON. Empty where there is none.
std::string_view member_text(std::string_view object, std::string_view name);
std::vector<std::string_view> element_texts(std::string_view array);

}  // namespace tyto
