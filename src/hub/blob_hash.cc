#include "hub/blob_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace tyto {

std::string blob_hash(const std::filesystem::path& path, size_t digits,
                      const std::function<void(uint64_t bytes)>& on_bytes) {
  constexpr size_t kStep = 8 << 20;
  const auto free_context = [](EVP_MD_CTX* context) { EVP_MD_CTX_free(context); };
  const std::unique_ptr<EVP_MD_CTX, decltype(free_context)> context(EVP_MD_CTX_new(), free_context);
  if (context == nullptr) throw std::bad_alloc();
  const bool is_git = digits == 40;
  TYTO_ASSERT(EVP_DigestInit_ex(context.get(), is_git ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
  const MappedFile file(path);
  if (is_git) {
    const std::string header = fmt::format("blob {}", file.bytes().size());
    EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1);
  }
  for (size_t at = 0; at < file.bytes().size(); at += kStep) {
    const auto bytes = file.bytes().subspan(at, std::min(kStep, file.bytes().size() - at));
    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
    release_mapped_pages(bytes);
    if (on_bytes) on_bytes(at + bytes.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash = {};
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), hash.data(), &size);
  std::string text;
  for (const unsigned char byte : std::span(hash).first(size)) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tyto
