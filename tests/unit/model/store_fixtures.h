// Stores as other tools leave them, in a home that is made for one test.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "unit/model/model_fixtures.h"

namespace tyto::test {

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      saved_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
    }
    clear();
    ::setenv("HOME", home_.c_str(), 1);
    ::setenv("OLLAMA_MODELS", ollama_.c_str(), 1);  // or the system's own store would be seen
  }
  void TearDown() override {
    clear();
    for (size_t i = 0; i < saved_.size(); ++i)
      if (saved_[i]) ::setenv(kNames[i], saved_[i]->c_str(), 1);
  }
  static void clear() {
    for (const char* name : kNames) ::unsetenv(name);
  }

  // Files of a revision link to blobs.
  std::filesystem::path add_snapshot(const std::string& repo,
                                     const std::vector<std::string>& files) const {
    std::string folder = "models--" + repo;
    folder.replace(folder.find('/'), 1, "--");
    const std::filesystem::path repository = hub_ / folder;
    const std::filesystem::path snapshot = repository / "snapshots" / std::string(40, 'a');
    write_file(repository / "refs/main", std::string(40, 'a'));
    for (const std::string& file : files) {
      write_file(repository / "blobs" / ("blob-" + std::to_string(file.size()) + file), "12345");
      std::filesystem::create_directories(snapshot);
      std::filesystem::create_symlink("../../blobs/blob-" + std::to_string(file.size()) + file,
                                      snapshot / file);
    }
    return snapshot;
  }

  static std::string digest_of(const std::string& what) {
    std::string digits(64, '0');
    for (size_t i = 0; i < what.size() && i < 32; ++i)
      digits.replace(2 * i, 2, fmt::format("{:02x}", static_cast<unsigned char>(what[i])));
    return "sha256:" + digits;
  }
  static std::string ollama_manifest(const std::string& layers) {
    return R"({"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",)"
           R"("config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":")" +
           digest_of("config") + R"(","size":487},"layers":[)" + layers + "]}";
  }
  static std::string layer(const std::string& kind, const std::string& digest) {
    return R"({"mediaType":"application/vnd.ollama.image.)" + kind + R"(","digest":")" + digest +
           R"(","size":5})";
  }
  std::filesystem::path add_ollama(const std::string& manifest, const std::string& content) const {
    write_file(ollama_ / "manifests" / manifest,
               ollama_manifest(layer("model", digest_of(content)) + "," +
                               layer("template", digest_of("template")) + "," +
                               layer("license", digest_of("license"))));
    std::string blob = digest_of(content);
    blob[6] = '-';
    write_file(ollama_ / "blobs" / blob, "12345");
    return ollama_ / "blobs" / blob;
  }

  static constexpr const char* kNames[] = {
      "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",      "XDG_CACHE_HOME",
      "HOME",         "LLAMA_CACHE",           "OLLAMA_MODELS"};
  std::vector<std::optional<std::string>> saved_;
  Scratch scratch_;
  std::filesystem::path home_ = scratch_ / "home";
  std::filesystem::path hub_ = home_ / ".cache/huggingface/hub";
  std::filesystem::path ollama_ = scratch_ / "ollama";
};

}  // namespace tyto::test
