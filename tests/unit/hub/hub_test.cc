#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/spelling.h"
#include "hub/cache_layout.h"
#include "hub/http.h"
#include "hub/hub_api.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

TEST(Http, OriginIsSchemeHostAndPort) {
  EXPECT_TRUE(is_same_origin("https://hub.example", "https://HUB.example:443/a?b"));
  EXPECT_FALSE(is_same_origin("https://hub.example", "http://hub.example"));
  EXPECT_FALSE(is_same_origin("https://hub.example", "https://hub.example:8443"));
  EXPECT_FALSE(is_same_origin("https://hub.example", "https://cdn.hub.example"));
  EXPECT_FALSE(is_same_origin("https://hub.example", "https://hub.example.evil"));
  EXPECT_FALSE(is_same_origin("https://hub.example", "https://hub.example@evil"));
  EXPECT_FALSE(is_same_origin("not an address", "not an address"));
}

TEST(Http, TokensGoToTheHubAlone) {
  Hub hub;
  hub.endpoint = "https://hub.example";
  hub.token = "secret";
  EXPECT_EQ(token_for(hub, "https://hub.example/a/b"), "secret");
  for (const char* other : {"http://hub.example/a", "https://hub.example:444/a",
                            "https://cdn.example/a", "https://hub.example.evil/a"})
    EXPECT_EQ(token_for(hub, other), "") << other;
}

TEST(Http, LinksAreFollowedWithinHttp) {
  const std::string url = "https://hub.example/a/b?c";
  EXPECT_EQ(linked_url(url, "/d"), "https://hub.example/d");
  EXPECT_EQ(linked_url(url, "https://cdn.example/x?y=1"), "https://cdn.example/x?y=1");
  EXPECT_EQ(linked_url("http://hub.example", "https://hub.example/x"), "https://hub.example/x");
  const std::pair<const char*, const char*> kRefused[] = {
      {"http://hub.example/x", "leads from https to http"},
      {"file:///etc/passwd", "which is not HTTP"},
      {"ftp://x/y", "which is not HTTP"},
      {"https://user:word@hub.example/", "leads to https://***@hub.example/, which is not HTTP"},
      {"//", "leads to something that is not an address"},
      {"https://", "leads to something that is not an address"},
  };
  for (const auto& [bad, words] : kRefused) EXPECT_ERROR(linked_url(url, bad), words) << bad;
  // A signature in an address is enough to read the file.
  try {
    linked_url(url, "http://cdn.example/x?Signature=secret");
    ADD_FAILURE() << "from https to http";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("http://cdn.example/x?***"), std::string::npos);
  }
}

TEST(Http, PathsAreEscaped) {
  EXPECT_EQ(escaped_path("a b/c#?%é"), "a%20b/c%23%3F%25%C3%A9");
}

TEST(SafePath, StaysBelow) {
  for (const char* good : {"a", "a/b.gguf", ".gitattributes", "..a/b..", "a b"})
    EXPECT_TRUE(stays_below(good)) << good;
  for (const char* bad : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b",
                          ".git", ".git/config", "a/.git/b", "a\nb", "a\x7f"})
    EXPECT_FALSE(stays_below(bad)) << bad;
  EXPECT_FALSE(stays_below(std::string(241, 'a')));
  EXPECT_FALSE(stays_below(std::string_view("a\0b", 3)));
}

TEST(RepoNames, AreOfTwoParts) {
  EXPECT_EQ(parse_repo_name("org/model").repo, "org/model");
  EXPECT_EQ(parse_repo_name("org/model").asked, "");
  const RepoName name = parse_repo_name("hf:Org-1/model_2.5:sub/file.gguf");
  EXPECT_EQ(name.repo, "Org-1/model_2.5");
  EXPECT_EQ(name.asked, "sub/file.gguf");
  for (const char* bad : {"", "model", "/model", "org/", "a/b/c", "../b", "a/..", "a/b:", "a/b--c",
                          "a/-b", "a b/c", "https://hub.example/a/b", "ollama:llama3"})
    EXPECT_ERROR(parse_repo_name(bad), "is not the name of a repository") << bad;
}

TEST(RepoNames, AreTakenFromAddresses) {
  for (const char* page :
       {"https://huggingface.co/org/model", "https://huggingface.co/org/model/",
        "https://huggingface.co/org/model?library=x#how-to", "huggingface.co/org/model",
        "https://hf.co/org/model", "https://huggingface.co/org/model/tree/main"})
    EXPECT_EQ(parse_repo_name(page).repo, "org/model") << page;
  EXPECT_EQ(parse_repo_name("hf.co/org/model:Q4_K_M").asked, "Q4_K_M");
  EXPECT_EQ(parse_repo_name("https://huggingface.co/org/model/tree/v2").revision, "v2");
  const RepoName file =
      parse_repo_name("https://huggingface.co/org/model/resolve/main/sub/x.gguf?download=true");
  EXPECT_EQ(file.repo, "org/model");
  EXPECT_EQ(file.asked, "sub/x.gguf");
  EXPECT_EQ(file.revision, "main");
  EXPECT_EQ(parse_repo_name("http://mirror:81/a/b", "http://mirror:81").repo, "a/b");
  for (const char* bad :
       {"https://huggingface.co/", "https://huggingface.co/datasets/org/data",
        "https://example.org/a/b", "https://huggingface.co/org/model/discussions"})
    EXPECT_ERROR(parse_repo_name(bad), "is not the name of a repository") << bad;
}

// The hashes are those of `sha256sum` and of `git hash-object`.
TEST(BlobHash, IsTheHubs) {
  const auto path = std::filesystem::temp_directory_path() / "tyto_blob_hash_test";
  std::ofstream(path) << "hello\n";
  EXPECT_EQ(blob_hash(path, 64),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(blob_hash(path, 40), "ce013625030ba8dba906f756967f9e9ca394464a");
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(blob_hash(path, 40), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  std::filesystem::remove(path);
}

HttpAnswer answer(unsigned status, const std::string& retry_after = "") {
  HttpAnswer result{.status = status};
  if (!retry_after.empty()) result.headers["retry-after"] = retry_after;
  return result;
}

TEST(Attempts, WaitLongerEachTimeAndThenEnd) {
  Attempts attempts(3);
  for (const int wanted : {500, 1000, 2000})
    EXPECT_EQ(attempts.after(answer(500), "x").count(), wanted);
  EXPECT_ERROR(attempts.after(answer(500), "x"), "the answer was 500, after 4 tries");
  attempts.start_anew();
  EXPECT_EQ(attempts.after(answer(500), "x").count(), 500);
}

TEST(Attempts, FollowRetryAfter) {
  Attempts attempts(9);
  EXPECT_EQ(attempts.after(answer(429, "7"), "x").count(), 7000);
  EXPECT_EQ(attempts.after(answer(503, "Wed, 21 Oct 2015 07:28:00 GMT"), "x").count(), 0);
  EXPECT_EQ(attempts.after(answer(429, "soon"), "x").count(), 2000);
  EXPECT_ERROR(attempts.after(answer(429, "301"), "x"), "it asks to wait 301 s");
  EXPECT_ERROR(attempts.after(answer(429, "Wed, 21 Oct 2099 07:28:00 GMT"), "x"),
               "and Tyto waits 300 at most");
}

TEST(Attempts, AreForWhatMayPass) {
  for (const unsigned status : {408u, 429u, 500u, 503u})
    EXPECT_TRUE(is_worth_a_retry(answer(status)));
  for (const unsigned status : {400u, 401u, 403u, 404u, 416u})
    EXPECT_FALSE(is_worth_a_retry(answer(status)));
  HttpAnswer cut{.status = 206, .failure = "cut"};
  EXPECT_TRUE(is_worth_a_retry(cut));
  cut.can_pass = false;
  EXPECT_FALSE(is_worth_a_retry(cut));
}

}  // namespace
}  // namespace tyto
