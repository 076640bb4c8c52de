// What the readers of stores make of them, good and hostile.
#include "model/stores/stores.h"

#include <sys/stat.h>

#include "model/stores/local_models.h"
#include "unit/model/store_fixtures.h"

namespace tyto::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const Listing& listing) {
  std::vector<std::string> names;
  for (const LocalModel& model : listing.models)
    names.push_back(model.why_not.empty() ? model.name : model.name + " (" + model.why_not + ")");
  return names;
}

using Names = std::vector<std::string>;
using Stores = StoreTest;

TEST_F(Stores, HuggingFaceRepositoriesOfEveryKind) {
  const fs::path gguf = add_snapshot(
      "org/repo-GGUF", {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-f16.gguf", "README.md"});
  const fs::path checkpoint = add_snapshot(
      "org/model", {"config.json", "model.safetensors", "tokenizer.json", "pytorch_model.bin"});
  const fs::path split =
      add_snapshot("org/split", {"x-Q4_0-00001-of-00002.gguf", "x-Q4_0-00002-of-00002.gguf"});
  add_snapshot("org/words", {"config.json", "tokenizer.json"});  // no weights
  write_file(hub_ / "datasets--org--text/snapshots/a/x.gguf", "");
  const Listing listing = hugging_face_models(hub_);
  EXPECT_EQ(names_of(listing), (Names{"hf:org/model", "hf:org/repo-GGUF:Q4_K_M",
                                      "hf:org/repo-GGUF:Q8_0", "hf:org/split:Q4_0"}));
  EXPECT_EQ(listing.models[0].path, checkpoint);
  EXPECT_EQ(listing.models[0].bytes, 15u);  // config, weights, tokenizer
  EXPECT_EQ(listing.models[1].path, gguf / "m-Q4_K_M.gguf");
  EXPECT_EQ(listing.models[1].bytes, 5u);
  EXPECT_EQ(listing.models[3].path, split / "x-Q4_0-00001-of-00002.gguf");
  EXPECT_EQ(listing.models[3].bytes, 10u);
  EXPECT_TRUE(listing.remarks.empty());
}

TEST_F(Stores, HuggingFaceDownloadsThatWereNotFinished) {
  write_file(hub_ / "models--org--begun/blobs/abc.incomplete", "1");
  add_snapshot("org/part", {"x-00001-of-00002.gguf"});
  const fs::path dangling = add_snapshot("org/gone", {"y.gguf"});
  fs::remove_all(hub_ / "models--org--gone/blobs");
  add_snapshot("org/shard", {"config.json", "model-00001-of-00002.safetensors"});
  EXPECT_EQ(names_of(hugging_face_models(hub_)),
            (Names{"hf:org/begun (incomplete, the download was not finished)",
                   "hf:org/gone:y.gguf (incomplete, y.gguf leads to no file)",
                   "hf:org/part:x-00001-of-00002.gguf (incomplete, x-00001-of-00002.gguf: part 2 "
                   "of 2 is not "
                   "there)",
                   "hf:org/shard (incomplete, model-00001-of-00002.safetensors: part 2 of 2 is not "
                   "there)"}));
}

TEST_F(Stores, OneBadRepositoryIsARemark) {
  write_file(hub_ / "models--a--bad/refs/main", "../../../etc");
  write_file(hub_ / "models--a--big/refs/main", std::string(10'000, 'x'));
  add_snapshot("b/good", {"m.gguf"});
  const Listing listing = hugging_face_models(hub_);
  EXPECT_EQ(names_of(listing), (Names{"hf:b/good:m.gguf"}));
  EXPECT_EQ(listing.remarks.size(), 2u);
}

TEST_F(Stores, OllamaLayers) {
  const fs::path blob = add_ollama("registry.ollama.ai/library/llama3.2/1b", "a");
  add_ollama("hf.co/org/repo/Q4_K_M", "b");
  const auto write = [&](const std::string& tag, const std::string& text) {
    write_file(ollama_ / "manifests/registry.ollama.ai/library/m" / tag, text);
  };
  const std::string model = layer("model", digest_of("a"));
  write("adapter", ollama_manifest(model + "," + layer("adapter", digest_of("b"))));
  write("cloud", ollama_manifest(""));
  write("several", ollama_manifest(model + "," + model));
  write("unfinished", ollama_manifest(layer("model", digest_of("z"))));
  const Listing listing = ollama_models(ollama_);
  EXPECT_EQ(names_of(listing),
            (Names{"ollama:hf.co/org/repo:Q4_K_M", "ollama:llama3.2:1b",
                   "ollama:m:adapter (has an adapter, which Tyto would leave out)",
                   "ollama:m:cloud (has no GGUF here, it runs elsewhere or is in parts)",
                   "ollama:m:several (has several GGUFs, which Ollama alone puts together)",
                   "ollama:m:unfinished (incomplete, the download was not finished)"}));
  EXPECT_EQ(listing.models[1].path, blob);
  EXPECT_EQ(listing.models[1].bytes, 5u);
}

TEST_F(Stores, HostileManifestsLeaveNoStore) {
  const auto write = [&](const std::string& tag, const std::string& text) {
    write_file(ollama_ / "manifests/registry.ollama.ai/library/m" / tag, text);
  };
  const char* digests[] = {"sha256:../../../../etc/passwd", "../../etc/passwd", "", "sha256:abc"};
  for (size_t i = 0; i < std::size(digests); ++i)
    write("digest" + std::to_string(i), ollama_manifest(layer("model", digests[i])));
  write("slash",
        ollama_manifest(layer("model", "sha256:" + std::string(32, '/') + std::string(32, '.'))));
  write("number",
        ollama_manifest(R"({"mediaType":"application/vnd.ollama.image.model","digest":7})"));
  write("text", "{\"layers\": \"x\"}");
  write("array", "[]");
  write("cut", "{\"layers\":[");
  write("empty", "");
  write("huge", "{\"layers\":[" + std::string(3 << 20, ' ') + "]}");
  write("deep", std::string(100'000, '['));
  ASSERT_EQ(::mkfifo((ollama_ / "manifests/registry.ollama.ai/library/m/pipe").c_str(), 0600), 0);
  write_file(ollama_ / "manifests/too/short", "{}");
  add_ollama("registry.ollama.ai/library/ok/latest", "ok");
  const Listing listing = ollama_models(ollama_);
  EXPECT_EQ(names_of(listing), (Names{"ollama:ok:latest"}));
  EXPECT_EQ(listing.remarks.size(), 13u);
  for (const std::string& remark : listing.remarks)
    EXPECT_EQ(remark.find('\n'), std::string::npos) << remark;
}

TEST_F(Stores, LlamaCppFilesAndManifests) {
  const fs::path cache = home_ / ".cache/llama.cpp";
  const std::string file = "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf";
  write_file(cache / file, "12345");
  write_file(cache / (file + ".etag"), "x");
  write_file(cache / "manifest=ggml-org=gemma-3-1b-it-GGUF=Q4_K_M.json",
             R"({"ggufFile":{"rfilename":"gemma-3-1b-it-Q4_K_M.gguf","size":5},"mmprojFile":{}})");
  write_file(cache / "manifest=broken=manifest=x.json", "{");
  write_file(cache / "manifest=no.json", "{}");
  write_file(cache / "other-q8_0.gguf", "1");
  write_file(cache / "late.gguf.downloadInProgress", "1");
  const Listing listing = llama_cpp_models(cache);
  EXPECT_EQ(names_of(listing),
            (Names{"llama.cpp:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "llama.cpp:other-q8_0",
                   "llama.cpp:late.gguf (incomplete, the download was not finished)"}));
  EXPECT_EQ(listing.models[0].path, cache / file);
  EXPECT_EQ(listing.remarks.size(), 1u);
}

TEST_F(Stores, LmStudioWhereverItsSettingsPoint) {
  const fs::path models = home_ / ".lmstudio/models";
  write_file(models / "pub/One-GGUF/One-Q4_K_M.gguf", "1");
  write_file(models / "pub/One-GGUF/mmproj-One.gguf", "1");
  write_file(models / "stray.gguf", "1");
  EXPECT_EQ(names_of(lm_studio_models(models)), (Names{"lmstudio:pub/One-GGUF:Q4_K_M"}));
  const auto folders = [&] { return lm_studio_folders(home_); };
  EXPECT_EQ(folders(), (std::vector<fs::path>{models, home_ / ".cache/lm-studio/models"}));
  write_file(home_ / ".lmstudio/settings.json", R"({"downloadsFolder": "/elsewhere"})");
  EXPECT_EQ(folders()[0], "/elsewhere");
  write_file(home_ / ".lmstudio-home-pointer", "/its/home\n");
  EXPECT_EQ(folders()[0], "/its/home/models");
  for (const char* bad :
       {"{", "[]", R"({"downloadsFolder": 7})", R"({"downloadsFolder": "../x"})"}) {
    write_file(home_ / ".lmstudio/settings.json", bad);
    EXPECT_EQ(folders().size(), 3u) << bad;
  }
}

TEST_F(Stores, AnyFolderSomeWayDown) {
  const fs::path root = scratch_ / "mine";
  write_file(root / "a.gguf", "12");
  write_file(root / "deep/er/b-00001-of-00002.gguf", "1");
  write_file(root / "deep/er/b-00002-of-00002.gguf", "1");
  write_file(root / "hf/config.json", "{}");
  write_file(root / "hf/model.safetensors", "123");
  write_file(root / "notes.txt", "x");
  write_file(root / ".git/c.gguf", "x");
  fs::create_directory_symlink("..", root / "deep/loop");
  fs::create_symlink("nowhere", root / "dangling.gguf");
  ASSERT_EQ(::mkfifo((root / "pipe.gguf").c_str(), 0600), 0);
  const Listing listing = models_below(root);
  const auto at = [&](const char* below) { return (root / below).string(); };
  EXPECT_EQ(
      names_of(listing),
      (Names{at("a.gguf"), at("dangling.gguf") + " (incomplete, dangling.gguf leads to no file)",
             at("pipe.gguf") + " (pipe.gguf is not a regular file)",
             at("deep/er/b-00001-of-00002.gguf"), at("hf")}));
  EXPECT_TRUE(listing.remarks.empty());
  EXPECT_TRUE(models_below(scratch_ / "absent").models.empty());
}

TEST_F(Stores, FoldersThatCannotBeReadAreRemarks) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  write_file(scratch_ / "mine/locked/a.gguf", "x");
  fs::permissions(scratch_ / "mine/locked", fs::perms::none);
  const Listing listing = models_below(scratch_ / "mine");
  fs::permissions(scratch_ / "mine/locked", fs::perms::owner_all);
  ASSERT_EQ(listing.remarks.size(), 1u);
  EXPECT_PRED_FORMAT2(contains, listing.remarks[0], "locked: cannot be read: Permission denied");
}

TEST_F(Stores, OfTwoModelsOfOneNameTheFirstCounts) {
  ::setenv("HF_HUB_CACHE", (scratch_ / "first").c_str(), 1);
  const fs::path second = add_snapshot("org/repo", {"m-Q8_0.gguf"});
  fs::create_directories(scratch_ / "first");
  fs::copy(hub_ / "models--org--repo", scratch_ / "first/models--org--repo",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Listing listing = local_models();
  ASSERT_EQ(names_of(listing), (Names{"hf:org/repo:Q8_0"}));
  EXPECT_NE(listing.models[0].path, second / "m-Q8_0.gguf");
}

TEST(NearestModels, TheLikestFirstAndNoMoreThanThree) {
  std::vector<LocalModel> models;
  for (const char* name : {"ollama:llama3.2:1b", "ollama:llama3.2:3b", "ollama:llama3.1:8b",
                           "hf:unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "ollama:qwen3:4b"})
    models.push_back({.name = name});
  EXPECT_EQ(nearest_models("Llama-3.2-1B-Instruct", models)[0],
            "Llama-3.2-1B-Instruct-GGUF:Q4_K_M");
  EXPECT_EQ(nearest_models("lama3.2", models).size(), 3u);
  EXPECT_EQ(nearest_models("qwen", models), (Names{"qwen3:4b"}));
  EXPECT_EQ(nearest_models("mixtral", models), Names{});
  models.push_back({.name = "tyto:owlet"});
  EXPECT_EQ(nearest_models("olwet", models), (Names{"owlet"}));
  EXPECT_EQ(nearest_models("", models), Names{});
}

}  // namespace
}  // namespace tyto::test
