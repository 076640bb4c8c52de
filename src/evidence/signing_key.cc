#include "evidence/signing_key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace tyto {
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
    throw Error(ErrorCode::input, file.string(), "is no signing key",
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
              "is no public key and no file with one",
              fmt::format("expected the file KEYFILE.pub or its text, {}BASE64", kPublicWord));
}

std::string key_line(const PublicKey& key) {
  return std::string(kPublicWord) + key.text;
}

}  // namespace tyto
