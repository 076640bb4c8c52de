#include "evidence/seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <sodium.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_value.h"

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

namespace {

constexpr std::string_view kSecretWord = "tyto-ed25519-secret ";
constexpr std::string_view kPublicWord = "tyto-ed25519-public ";
constexpr size_t kMostKeyBytes = 4096;
constexpr int kBase64 = sodium_base64_VARIANT_ORIGINAL;

using Seed = std::array<unsigned char, crypto_sign_SEEDBYTES>;

std::string base64(std::span<const unsigned char> bytes) {
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), kBase64), '\0');
  sodium_bin2base64(text.data(), text.size(), bytes.data(), bytes.size(), kBase64);
  text.pop_back();  // the terminating zero
  return text;
}

bool from_base64(std::string_view text, std::span<unsigned char> bytes) {
  size_t count = 0;
  const char* end = nullptr;
  return sodium_base642bin(bytes.data(), bytes.size(), text.data(), text.size(), nullptr, &count,
                           &end, kBase64) == 0 &&
         count == bytes.size() && end == text.data() + text.size();
}

std::string_view without_space_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

// The key after `word`; empty where the text does not begin so.
std::string_view key_after(std::string_view word, std::string_view text) {
  return text.starts_with(word) ? without_space_at_end(text.substr(word.size()))
                                : std::string_view();
}

std::optional<PublicKey> parse_public(std::string_view text) {
  const std::string_view key = key_after(kPublicWord, text);
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> bytes;
  if (!from_base64(key, bytes)) return std::nullopt;
  return PublicKey{std::string(key)};
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, int error) {
  throw Error(ErrorCode::input, path.string(),
              fmt::format("cannot be written: {}", std::strerror(error)),
              error == EEXIST ? "a key is never overwritten: choose another name" : "");
}

void write_new(const std::filesystem::path& path, mode_t mode, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) fail_to_write(path, errno);
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool kept = written && ::fsync(file) == 0;
  const int error = written && !kept ? errno : ENOSPC;
  ::close(file);
  if (kept) return;
  ::unlink(path.c_str());
  fail_to_write(path, error);
}

}  // namespace

bool is_signed_by(const PublicKey& key, std::string_view signature, std::string_view bytes) {
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> public_bytes;
  std::array<unsigned char, crypto_sign_BYTES> signature_bytes;
  return from_base64(key.text, public_bytes) && from_base64(signature, signature_bytes) &&
         crypto_sign_verify_detached(signature_bytes.data(),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     bytes.size(), public_bytes.data()) == 0;
}

SigningKey::SigningKey(const std::filesystem::path& file) {
  static_assert(std::tuple_size_v<decltype(secret_)> == crypto_sign_SECRETKEYBYTES);
  std::string text = read_text_file(file, kMostKeyBytes);
  struct stat status = {};
  if (::stat(file.c_str(), &status) != 0 || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw Error(
        ErrorCode::input, file.string(), "others may read this key",
        fmt::format("chmod 600 {}; if others may have read it, make a new key", file.string()));
  Seed seed;
  const bool is_key = from_base64(key_after(kSecretWord, text), seed);
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> public_bytes;
  if (is_key) crypto_sign_seed_keypair(public_bytes.data(), secret_.data(), seed.data());
  sodium_memzero(seed.data(), seed.size());
  sodium_memzero(text.data(), text.size());
  if (!is_key)
    throw Error(ErrorCode::input, file.string(), "is not a signing key",
                "`tyto receipt keygen -o FILE` makes one");
}

SigningKey::~SigningKey() {
  sodium_memzero(secret_.data(), secret_.size());
}

PublicKey SigningKey::public_key() const {
  return {base64(std::span(secret_).subspan(crypto_sign_SEEDBYTES))};
}

std::string SigningKey::sign(std::string_view bytes) const {
  std::array<unsigned char, crypto_sign_BYTES> signature;
  crypto_sign_detached(signature.data(), nullptr,
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                       secret_.data());
  return base64(signature);
}

PublicKey make_key(const std::filesystem::path& file) {
  if (sodium_init() < 0) throw Error(ErrorCode::device, "libsodium", "has no source of randomness");
  Seed seed;
  randombytes_buf(seed.data(), seed.size());
  std::string text = std::string(kSecretWord) + base64(seed) + "\n";
  sodium_memzero(seed.data(), seed.size());
  write_new(file, S_IRUSR | S_IWUSR, text);
  sodium_memzero(text.data(), text.size());
  try {
    const PublicKey key = SigningKey(file).public_key();
    write_new(file.string() + ".pub", S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH, key_line(key) + "\n");
    return key;
  } catch (const Error&) {
    ::unlink(file.c_str());  // half a pair is none
    throw;
  }
}

PublicKey public_key_from(const std::string& file_or_text) {
  if (const auto key = parse_public(file_or_text)) return *key;
  std::error_code ignored;
  const bool is_file = std::filesystem::exists(file_or_text, ignored);
  if (is_file)
    if (const auto key = parse_public(read_text_file(file_or_text, kMostKeyBytes))) return *key;
  throw Error(ErrorCode::usage, is_file ? file_or_text : "--trust",
              "is neither a public key nor a file with one",
              fmt::format("expected the file KEYFILE.pub or its text, {}BASE64", kPublicWord));
}

std::string key_line(const PublicKey& key) {
  return std::string(kPublicWord) + key.text;
}

namespace {

// The parts of a seal in compact JSON; between them stand values of known length.
constexpr std::string_view kHash = ",\"hash\":\"";
constexpr std::string_view kKey = ",\"signature\":{\"key\":\"";
constexpr std::string_view kSignature = "\",\"ed25519\":\"";

constexpr std::string_view kBlanks = " \t\n\r";

// Takes `text` off the end of `from`, if it ends so.
bool take_end(std::string_view& from, std::string_view text) {
  if (!from.ends_with(text)) return false;
  from.remove_suffix(text.size());
  return true;
}

std::string_view take_end(std::string_view& from, size_t count) {
  const std::string_view end = from.substr(from.size() - std::min(count, from.size()));
  from.remove_suffix(end.size());
  return end;
}

// The end of a string that begins at `at`, behind its closing quote.
size_t end_of_string(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at)
    if (json[at] == '\\') ++at;
  return std::min(json.size(), at + 1);
}

// The end of the value that begins at `at`: a string, a bracket's contents, or up to a separator.
size_t end_of_value(std::string_view json, size_t at) {
  size_t depth = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      at = end_of_string(json, at);
      if (depth == 0) return at;
      continue;
    }
    const bool closes = c == '}' || c == ']';
    if (depth == 0 && (closes || c == ',')) return at;
    if (closes && --depth == 0) return at + 1;
    if (c == '{' || c == '[') ++depth;
    ++at;
  }
  return json.size();
}

}  // namespace

void seal(JsonValue& object, const SigningKey* key) {
  const std::string text = object.dump();
  const std::string hash = digest(text);
  object["hash"] = hash;
  if (key == nullptr) return;
  object["signature"] = {{"key", key->public_key().text}, {"ed25519", key->sign(hash)}};
}

Seal read_seal(std::string_view object) {
  const std::string text = without_space(object);
  std::string_view rest = text, key, signature;
  const bool is_signed = take_end(rest, "\"}}");
  if (is_signed) {
    signature = take_end(rest, kSignatureLetters);
    const bool follows_key = take_end(rest, kSignature);
    key = take_end(rest, kPublicKeyLetters);
    if (!follows_key || !take_end(rest, kKey)) return {};
  } else if (!take_end(rest, "}")) {
    return {};
  }
  if (!take_end(rest, "\"")) return {};
  const std::string_view hash = take_end(rest, kDigestDigits);
  if (!take_end(rest, kHash)) return {};
  Seal result{std::string(hash), digest(std::string(rest) + "}"), {}};
  const PublicKey signer{std::string(key)};
  if (is_signed) result.signature = {signer, is_signed_by(signer, signature, hash)};
  return result;
}

std::string distrust(const Seal& seal, const PublicKey& trusted) {
  if (!seal.signature) return "is not signed";
  if (!seal.signature->is_good) return "has a signature that is not of its contents";
  if (seal.signature->key == trusted) return "";
  return fmt::format("is signed by {}, which is not the trusted key", seal.signature->key.text);
}

std::string without_space(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (size_t at = 0; at < json.size();) {
    const size_t end = json[at] == '"' ? end_of_string(json, at) : at + 1;
    if (kBlanks.find(json[at]) == kBlanks.npos) result += json.substr(at, end - at);
    at = end;
  }
  return result;
}

std::string_view member_text(std::string_view object, std::string_view name) {
  std::string_view found;
  size_t at = object.find('{');
  while (at < object.size()) {
    const size_t quote = object.find('"', at);  // behind the bracket or the comma
    if (quote == object.npos) break;
    const size_t end = end_of_string(object, quote);
    const size_t colon = object.find(':', end);
    const size_t value = std::min(object.size(), object.find_first_not_of(kBlanks, colon + 1));
    at = end_of_value(object, value);
    if (object.substr(quote + 1, end - quote - 2) == name) found = object.substr(value, at - value);
    at = object.find(',', at);
  }
  return found;
}

std::vector<std::string_view> element_texts(std::string_view array) {
  std::vector<std::string_view> result;
  size_t at = array.find('[');
  while (at < array.size()) {
    const size_t value = array.find_first_not_of(kBlanks, at + 1);
    if (value == array.npos || array[value] == ']') break;
    at = end_of_value(array, value);
    result.push_back(array.substr(value, at - value));
    at = array.find(',', at);
  }
  return result;
}

}  // namespace tyto
