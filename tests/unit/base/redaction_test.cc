#include "base/redaction.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

TEST(Redaction, AddressesLoseNamePasswordAndQuery) {
  const std::pair<const char*, const char*> cases[] = {
      {"http://name:word@host:80/a", "http://***@host:80/a"},
      {"https://word@host", "https://***@host"},
      {"socks5h://n:a@b/c'd\"e@host", "socks5h://***@host"},
      {"-x=http://n:w@h/a?sig=1#f, then", "-x=http://***@h/a?***, then"},
      {"see https://cdn.example/f?Expires=1&Signature=w: it leads",
       "see https://cdn.example/f?***: it leads"},
      {"\"http://a?x=1\",\"http://b?y=2\"", "\"http://a?***\",\"http://b?***\""},
      {"http://a/?x http://n:w@b", "http://a/?*** http://***@b"},
      {"name:word@host", "***@host"},
      {"--proxy=name:word@[::1]:80", "--proxy=***@[::1]:80"},
      {"'name:w:o:r:d@host'", "'***@host'"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(redacted(text), expected);
}

TEST(Redaction, OtherTextStays) {
  for (const char* text :
       {"", "@", ":@", "a@b", "12:30 @ noon", "/models/a:b@c/m.gguf",
        "https://hub.example/org/repo#files", "config.toml:3:1: --api-key: the value is empty",
        "what? http://a/b", "hf_config", "cookies: none", "ollama:llama3.2:1b", "http://", "://",
        "authorization", "Authorization:", "a key: b"})
    EXPECT_EQ(redacted(text), text);
}

TEST(Redaction, HeadersAndTokensAreHidden) {
  EXPECT_EQ(redacted("-H Authorization: Bearer w0rd"), "-H Authorization: ***");
  EXPECT_EQ(redacted("'authorization : Basic dzByZA=='"), "'authorization : ***'");
  EXPECT_EQ(redacted("Proxy-Authorization:w0rd\nX-Api-Key: w0rd\nhost: x"),
            "Proxy-Authorization:***\nX-Api-Key: ***\nhost: x");
  EXPECT_EQ(redacted("hf_0123456789abcdefXYZ: no such file"), "***: no such file");
}

TEST(Redaction, CommandsHideSecretsAndValuesOfSecretFlags) {
  const std::vector<std::string> words = {
      "tyto",         "serve", "--api-key",      "k one", "-m",           "a b",
      "--api-key=k2", "-xk3",  "--api-key-file", "keys",  "--max-tokens", "5"};
  EXPECT_EQ(
      redacted_command(words, {"k3"}),
      "tyto serve --api-key *** -m 'a b' --api-key=*** -x*** --api-key-file keys --max-tokens 5");
  EXPECT_EQ(
      redacted_command(
          {"power", "--", "env", "HF_TOKEN=w", "curl", "-H", "Cookie: w", "--token", "w"}, {}),
      "power -- env HF_TOKEN=*** curl -H 'Cookie: ***' --token ***");
  // One that another begins with leaves nothing of it.
  EXPECT_EQ(redacted_command({"--x=abcdefgh", "abcd", ""}, {"abcd", "abcdefgh", ""}),
            "--x=*** *** ''");
  EXPECT_EQ(redacted_command({"aaa"}, {"aa"}), "***");
}

TEST(Redaction, ACommandThatWasWrittenBefore) {
  EXPECT_EQ(redacted_command_text("tyto serve --api-key word -m 'a b' --api-key='[w '\\''x]' -n 2"),
            "tyto serve --api-key *** -m 'a b' --api-key=*** -n 2");
  // One without secrets, and one whose secrets are hidden already, stays as it is.
  for (const std::string command :
       {"tyto run  -p \"it's\" \\ 'x", "", "tyto serve --api-key *** --api-key=*** -n 2",
        "tyto pull 'http://***@host/a?***' -H 'Cookie: ***'"})
    EXPECT_EQ(redacted_command_text(command), command);
}

TEST(Redaction, AnAddressOfAnyFormLosesWhatStandsBeforeTheHostAndItsQuery) {
  EXPECT_EQ(redacted_address("n:w '/o@host"), "***@host");
  EXPECT_EQ(redacted_address("https://n:w?a@b@host/x?sig=w"), "***@host/x?***");
  EXPECT_EQ(redacted_address("host/x?sig=w"), "host/x?***");
  EXPECT_EQ(redacted_address("hub.example"), "hub.example");
  EXPECT_EQ(redacted_quote("Unsupported proxy syntax in 'n:w /o@host': x"),
            "Unsupported proxy syntax in '***@host': x");
  EXPECT_EQ(redacted_quote("n:w /o@host"), "***@host");
  EXPECT_EQ(redacted_quote("Could not resolve host: hub"), "Could not resolve host: hub");
}

TEST(Redaction, WordsThatRunTogetherHideTheirSecrets) {
  const std::vector<std::string> words = {"--api-key:w",    "--api-key w", "-api-key: w",
                                          "api-key=w",      "--token",     "w",
                                          "--max-tokens:5", "a key: b",    "--"};
  const std::vector<std::string> shown = {"--api-key:***",  "--api-key ***", "-api-key:***",
                                          "api-key=***",    "--token",       "***",
                                          "--max-tokens:5", "a key: b",      "--"};
  EXPECT_EQ(redacted_words(words), shown);
}

// What is cut could no longer be told by its form.
TEST(Redaction, LongNamesAreRedactedBeforeTheyAreCut) {
  const std::string word(200, 'w');
  EXPECT_EQ(printable_name("http://n:" + word + "@host"), "http://***@host");
  EXPECT_EQ(printable_name("http://host/?sig=" + word), "http://host/?***");
}

TEST(Redaction, TakesNoLongerThanTheTextIs) {
  for (const char* piece : {"://", "@", "a:@", "cookie:", "hf_a", "?", "://?", "authorization "}) {
    std::string text = "http://";
    while (text.size() < 400'000) text += piece;
    EXPECT_FALSE(redacted(text).empty()) << piece;
  }
}

TEST(Redaction, ErrorsHoldNoPasswords) {
  const Error error(ErrorCode::input, "http://name:word@host/a?sig=word",
                    "it says hf_0123456789abcdefXYZ", "see http://name:word@host");
  EXPECT_STREQ(error.what(), "http://***@host/a?***: it says ***");
  EXPECT_EQ(error.hint, "see http://***@host");
}

}  // namespace
}  // namespace tyto
