// Names that -m takes, with stores in a home of the test's own.
#include "model/stores/stores.h"

#include <cstdlib>
#include <optional>

#include "model/stores/local_models.h"
#include "unit/model/store_fixtures.h"

namespace tyto::test {
namespace {

namespace fs = std::filesystem;

using FindModel = StoreTest;

TEST_F(FindModel, PathsThatExistAreTaken) {
  write_file(scratch_ / "m.gguf", "");
  EXPECT_EQ(find_model((scratch_ / "m.gguf").string()), scratch_ / "m.gguf");
  EXPECT_EQ(find_model(scratch_.path().string()), scratch_.path());
}

TEST_F(FindModel, RepositoriesAreFoundInEveryCache) {
  const struct {
    const char* variable;
    std::string value, hub;
  } caches[] = {
      {"HF_HUB_CACHE", (scratch_ / "one").string(), "one"},
      {"HUGGINGFACE_HUB_CACHE", (scratch_ / "old").string(), "old"},
      {"HF_HOME", (scratch_ / "two").string(), "two/hub"},
      {"XDG_CACHE_HOME", (scratch_ / "three").string(), "three/huggingface/hub"},
      {"HOME", (scratch_ / "four").string(), "four/.cache/huggingface/hub"},
      {"LLAMA_CACHE", (scratch_ / "five").string(), "five"},
  };
  for (const auto& cache : caches) {
    clear();
    ::setenv(cache.variable, cache.value.c_str(), 1);
    const fs::path repository = scratch_ / (cache.hub + "/models--org--My.Model-1B");
    EXPECT_NE(error_of([] { find_model("org/My.Model-1B"); }), "no error");
    write_file(repository / "snapshots/abc123/config.json", "{}");
    EXPECT_EQ(find_model("org/My.Model-1B"), repository / "snapshots/abc123");  // the only one
    write_file(repository / "snapshots/def456/config.json", "{}");
    EXPECT_MESSAGE([] { find_model("org/My.Model-1B"); }, "several revisions");
    write_file(repository / "refs/main", "def456\n");
    EXPECT_EQ(find_model("org/My.Model-1B"), repository / "snapshots/def456");
    EXPECT_EQ(find_model("hf:org/My.Model-1B"), repository / "snapshots/def456");
  }
}

TEST_F(FindModel, FilesOfARepositoryByNameAndQuantisation) {
  const fs::path snapshot = add_snapshot(
      "org/repo-GGUF", {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf", "config.json"});
  for (const char* name : {"org/repo-GGUF:Q8_0", "org/repo-GGUF:q8_0", "hf:org/repo-GGUF:Q8_0",
                           "hf:org/repo-GGUF/m-Q8_0.gguf", "repo-GGUF:q8_0", "m-Q8_0.gguf",
                           "m-Q8_0", "org/repo-GGUF:m-Q8_0.gguf"})
    EXPECT_EQ(find_model(name), snapshot / "m-Q8_0.gguf") << name;
  EXPECT_EQ(find_model("org/repo-GGUF"), snapshot / "m-Q4_K_M.gguf");  // the usual one of several
  EXPECT_MESSAGE([] { find_model("org/repo-GGUF:Q2_K"); },
                 "org/repo-GGUF:Q2_K: of this repository Q4_K_M, Q8_0 is on this machine, and not "
                 "what is asked for | `tyto pull org/repo-GGUF:Q2_K` fetches it");
}

TEST_F(FindModel, PartsThatAreMissingAreNamed) {
  add_snapshot("org/big", {"x-00001-of-00003.gguf", "x-00003-of-00003.gguf"});
  EXPECT_MESSAGE([] { find_model("org/big"); }, "part 2 of 3 is not there | `tyto pull org/big`");
  const fs::path whole =
      add_snapshot("org/two", {"x-00001-of-00002.gguf", "x-00002-of-00002.gguf"});
  EXPECT_EQ(find_model("org/two"), whole / "x-00001-of-00002.gguf");
}

TEST_F(FindModel, NamesOfOllama) {
  const fs::path small = add_ollama("registry.ollama.ai/library/llama3.2/1b", "1b");
  const fs::path latest = add_ollama("registry.ollama.ai/library/llama3.2/latest", "latest");
  const fs::path mine = add_ollama("registry.ollama.ai/me/tiny/latest", "mine");
  const fs::path hub = add_ollama("hf.co/org/repo-GGUF/Q4_K_M", "hub");
  for (const char* name : {"ollama:llama3.2:1b", "llama3.2:1b", "library/llama3.2:1b",
                           "ollama:registry.ollama.ai/library/llama3.2:1b", "LLAMA3.2:1B"})
    EXPECT_EQ(find_model(name), small) << name;
  for (const char* name : {"ollama:llama3.2", "ollama:llama3.2:latest", "llama3.2"})
    EXPECT_EQ(find_model(name), latest) << name;
  for (const char* name : {"ollama:me/tiny", "me/tiny", "tiny", "tiny:latest"})
    EXPECT_EQ(find_model(name), mine) << name;
  EXPECT_EQ(find_model("ollama:hf.co/org/repo-GGUF:Q4_K_M"), hub);
  EXPECT_MESSAGE([] { find_model("ollama:llama3.2:3b"); },
                 "ollama:llama3.2:3b: is not in Ollama's store | most like it here: ");
  EXPECT_MESSAGE([] { find_model("ollama:llama3.2:3b"); },
                 "to download it: ollama pull llama3.2:3b");
}

TEST_F(FindModel, ShortNames) {
  const fs::path small = add_ollama("registry.ollama.ai/library/llama3.2/1b", "1b");
  for (const char* name : {"llama3.2", "ollama:llama3.2", "Llama-3.2"})
    EXPECT_EQ(find_model(name), small) << name;
  const fs::path hub = add_snapshot("org/Qwen_Qwen3-4B-GGUF", {"q-Q8_0.gguf", "q-Q4_K_M.gguf"});
  for (const char* name : {"qwen3", "qwen3:4b", "qwen3-4b", "qwen3-4b-gguf", "Qwen_Qwen3-4B"})
    EXPECT_EQ(find_model(name), hub / "q-Q4_K_M.gguf") << name;  // the usual type
  EXPECT_EQ(find_model("qwen3-4b-gguf:q8_0"), hub / "q-Q8_0.gguf");
  for (const char* name :
       {"llama3", "llama", "qwen3:8b", "qwen", "ollama", "hf:llama3.2", "-", "4b"})
    EXPECT_FALSE(is_local_model(name)) << name;
  add_ollama("registry.ollama.ai/library/llama3.2/3b", "3b");
  EXPECT_MESSAGE([] { find_model("llama3.2"); },
                 "llama3.2: 2 models have this name | name one of ollama:llama3.2:1b, "
                 "ollama:llama3.2:3b");
}

TEST(ShortNames, AreTheBeginningOfTheNameButForTheVariant) {
  struct Row {
    const char *short_name, *name;
  };
  const Row rows[] = {
      {"llama3.2", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
      {"llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
      {"gemma3:4b", "bartowski/google_gemma-3-4b-it-GGUF:Q4_K_M"},
      {"qwen3", "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M"},
      {"qwen3", "Qwen/Qwen3-4B-Instruct-2507"},
      {"gpt-oss", "bartowski/openai_gpt-oss-20b-GGUF:MXFP4"},
      {"mixtral", "x/Mixtral-8x7B-Instruct"},
      {"me/tiny", "ollama:me/tiny:1b"},
  };
  for (const auto& [short_name, name] : rows)
    EXPECT_TRUE(is_short_for(short_name, name)) << short_name << " " << name;
  const Row others[] = {
      {"llama3", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
      {"phi4", "bartowski/microsoft_Phi-4-mini-instruct-GGUF:Q4_K_M"},
      {"llama3.2:11b", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
      {"qwen", "Qwen/Qwen3-8B-GGUF"},
      {"bartowski", "bartowski/x-GGUF"},
      {"ollama", "ollama:llama3.2:1b"},
      {"hf:llama3.2", "ollama:llama3.2:1b"},
      {"", "ollama:llama3.2:1b"},
  };
  for (const auto& [short_name, name] : others)
    EXPECT_FALSE(is_short_for(short_name, name)) << short_name << " " << name;
}

TEST_F(FindModel, AbsentModelsThatAreRecommendedHaveALineToCopy) {
  EXPECT_MESSAGE([] { find_model("gemma3:4b"); },
                 "gemma3:4b: no such model here | to download it: tyto pull "
                 "bartowski/google_gemma-3-4b-it-GGUF:Q4_K_M");
  EXPECT_MESSAGE([] { find_model("llama3.2"); },
                 "to download one: tyto pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M, or tyto "
                 "pull bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M");
}

TEST_F(FindModel, WordsThatAreLocalModels) {
  add_ollama("registry.ollama.ai/library/llama3.2/1b", "1b");
  add_snapshot("org/repo-GGUF", {"m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  write_file(scratch_ / "a.gguf", "x");
  write_file(scratch_ / "weights", "GGUF...");
  write_file(scratch_ / "notes.txt", "text");
  write_file(scratch_ / "checkpoint/config.json", "{}");
  fs::create_directories(scratch_ / "folder");
  for (const char* name : {"llama3.2:1b", "ollama:llama3.2:1b", "org/repo-GGUF",
                           "org/repo-GGUF:Q4_K_M", "repo-GGUF:Q8_0"})
    EXPECT_TRUE(is_local_model(name)) << name;
  for (const char* name : {"a.gguf", "weights", "checkpoint"})
    EXPECT_TRUE(is_local_model((scratch_ / name).string())) << name;
  for (const char* name : {"notes.txt", "folder", "absent.gguf"})
    EXPECT_FALSE(is_local_model((scratch_ / name).string())) << name;
  for (const char* name : {"", "hello", "llama3.2:3b", "org/other", "tell me about llama3.2:1b"})
    EXPECT_FALSE(is_local_model(name)) << name;
}

TEST_F(FindModel, NamesOfTheOtherStores) {
  write_file(home_ / ".lmstudio/models/pub/Repo/Repo-Q4_0.gguf", "x");
  write_file(home_ / ".cache/llama.cpp/org_repo_tiny-q8_0.gguf", "x");
  const fs::path studio = home_ / ".lmstudio/models/pub/Repo/Repo-Q4_0.gguf";
  for (const char* name : {"lmstudio:pub/Repo", "lmstudio:pub/Repo/Repo-Q4_0.gguf",
                           "lmstudio:pub/Repo:Q4_0", "Repo:Q4_0", "pub/Repo", "Repo-Q4_0.gguf"})
    EXPECT_EQ(find_model(name), studio) << name;
  for (const char* name : {"llama.cpp:org_repo_tiny-q8_0", "org_repo_tiny-q8_0.gguf"})
    EXPECT_EQ(find_model(name), home_ / ".cache/llama.cpp/org_repo_tiny-q8_0.gguf") << name;
}

TEST_F(FindModel, AmbiguousNamesListWhatTheyMayMean) {
  add_ollama("registry.ollama.ai/one/tiny/latest", "one");
  add_ollama("registry.ollama.ai/two/tiny/latest", "two");
  EXPECT_MESSAGE([] { find_model("tiny"); },
                 "tiny: 2 models have this name | name one of ollama:one/tiny:latest, "
                 "ollama:two/tiny:latest");
  for (int i = 0; i < 20; ++i)
    add_ollama(fmt::format("registry.ollama.ai/user{}/tiny/latest", i), std::to_string(i));
  EXPECT_MESSAGE([] { find_model("tiny"); }, "22 models have this name");
  EXPECT_MESSAGE([] { find_model("tiny"); }, " and 14 more");
}

TEST_F(FindModel, AbsentModelsAreFollowedByTheNearest) {
  add_ollama("registry.ollama.ai/library/llama3.2/1b", "1b");
  add_ollama("registry.ollama.ai/library/qwen3/4b", "4b");
  write_file(scratch_ / "models/llama-q8_0.gguf", "x");
  const std::string repository = error_of([] { find_model("meta-llama/Llama-3.2-1B-Instruct"); });
  EXPECT_PRED_FORMAT2(contains, repository, "no such model here");
  EXPECT_PRED_FORMAT2(contains, repository, "most like it here: llama3.2:1b; ");
  EXPECT_PRED_FORMAT2(contains, repository, "tyto pull meta-llama/Llama-3.2-1B-Instruct");
  EXPECT_EQ(repository.find("qwen"), std::string::npos);
  EXPECT_MESSAGE([] { find_model("lama3.2"); },
                 "most like it here: llama3.2:1b; to download one: tyto pull");
  const std::string mistyped = (scratch_ / "models/lama-q8_0.gguf").string();
  EXPECT_MESSAGE([&] { find_model(mistyped); }, (scratch_ / "models/llama-q8_0.gguf").string());
  for (const char* name :
       {"model.gguf", "./models/x", "/no/such", "a/b/c", "dir/file.gguf", "../x", "a/b:c", ":", "/",
        "hf:", "ollama:", "lmstudio:/", "llama.cpp:..", "hf:../..", "ollama:../../etc/passwd"}) {
    if (fs::exists(name)) continue;
    EXPECT_NE(error_of([&] { find_model(name); }), "no error") << name;
  }
  EXPECT_MESSAGE([] { find_model(""); }, "the name is empty");
}

TEST_F(FindModel, WithoutAHomeThereAreNoStores) {
  clear();
  ::setenv("OLLAMA_MODELS", scratch_.path().c_str(), 1);  // not the machine's
  EXPECT_MESSAGE([] { find_model("org/repo"); }, "to download it: tyto pull org/repo");
}

TEST_F(FindModel, UnfinishedDownloadsAreNotOpened) {
  add_ollama("registry.ollama.ai/library/half/latest", "half");
  fs::remove(find_model("ollama:half"));
  EXPECT_MESSAGE([] { find_model("ollama:half"); },
                 "ollama:half: incomplete, the download was not finished");
  write_file(hub_ / "models--org--begun/blobs/abc.incomplete", "1");
  EXPECT_MESSAGE([] { find_model("org/begun"); },
                 "org/begun: incomplete, the download was not finished | `tyto pull org/begun` "
                 "fetches the rest");
}

TEST_F(FindModel, RefsCannotLeaveTheCache) {
  write_file(hub_ / "models--a--b/refs/main", "../../x");
  EXPECT_MESSAGE([] { find_model("a/b"); }, "\"../../x\" is not a revision");
  write_file(hub_ / "models--a--b/refs/main", "gone");
  EXPECT_MESSAGE([] { find_model("a/b"); }, "tyto pull a/b");
}

TEST_F(FindModel, ShortestNamesMeanOneModel) {
  add_snapshot("one/repo-GGUF", {"m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  add_snapshot("two/repo-GGUF", {"m-Q4_K_M.gguf"});
  add_ollama("registry.ollama.ai/library/llama3.2/1b", "1b");
  const Listing listing = local_models();
  const ModelNames names(listing.models);
  std::vector<std::string> shown;
  for (const LocalModel& model : listing.models) {
    shown.push_back(names.shortest(model));
    EXPECT_EQ(find_model(shown.back()), model.path) << shown.back();
    EXPECT_EQ(find_model(model.name), model.path) << model.name;
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"one/repo-GGUF:Q4_K_M", "repo-GGUF:Q8_0",
                                             "two/repo-GGUF:Q4_K_M", "llama3.2:1b"}));
}

}  // namespace
}  // namespace tyto::test
