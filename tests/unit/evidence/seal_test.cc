#include "evidence/seal.h"
#include "base/json_value.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// RFC 7693's function with 32 bytes of output, as Python's hashlib gives it.
TEST(Digest, IsBlake2b) {
  EXPECT_EQ(digest(""), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(digest("abc"), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

JsonValue sealed(const SigningKey* key = nullptr) {
  JsonValue object = {{"b", 0.1}, {"a", "x \" { \\"}, {"hashes", {{{"hash", "f"}}}}};
  seal(object, key);
  return object;
}

TEST(Seal, HoldsHoweverTheTextIsLaidOut) {
  for (const std::string& text : {sealed().dump(), sealed().dump(2), "\n\t" + sealed().dump(8)}) {
    const Seal seal = read_seal(text);
    EXPECT_TRUE(seal.is_whole()) << text;
    EXPECT_FALSE(seal.signature.has_value());
  }
}

TEST(Seal, BreaksWithEveryChange) {
  const std::string good = sealed().dump();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '5' ? '6' : '5';
    EXPECT_FALSE(read_seal(bad).is_whole()) << bad;
  }
  JsonValue moved = {{"a", "x \" { \\"}, {"b", 0.1}};
  moved.update(sealed());
  EXPECT_FALSE(read_seal(moved.dump()).is_whole());
  for (const char* none : {"", "{}", "{\"hash\":\"\"}", "\"}}", "[1]"})
    EXPECT_TRUE(read_seal(none).stated.empty()) << none;
  EXPECT_FALSE(read_seal("{}").is_whole());
}

TEST(Seal, MembersAreFoundAsTheyStand) {
  const std::string text = R"({ "a" : {"b":"}\"{"} , "b":[1, {"a":2}],"c": 1e9 ,"d":"x","d":"y" })";
  EXPECT_EQ(member_text(text, "a"), R"({"b":"}\"{"})");
  EXPECT_EQ(member_text(text, "b"), R"([1, {"a":2}])");
  EXPECT_EQ(member_text(text, "d"), "\"y\"");
  EXPECT_EQ(member_text(text, "e"), "");
  for (const char* broken : {"", "{", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1", "\"", "}"})
    member_text(broken, "a");
}

class Keys : public testing::Test {
 protected:
  Keys() : folder_(fs::temp_directory_path() / fmt::format("tyto-keys-{}", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Keys() override { fs::remove_all(folder_); }
  std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(error.what()) + " " + error.hint;
    }
    return "no error";
  }
  const fs::path folder_;
  const fs::path file_ = folder_ / "key";
};

TEST_F(Keys, SignWhatTheyWereMadeFor) {
  const PublicKey made = make_key(file_);
  const SigningKey key(file_);
  EXPECT_EQ(key.public_key(), made);
  EXPECT_EQ(public_key_from(file_.string() + ".pub"), made);
  EXPECT_EQ(public_key_from(key_line(made)), made);
  const Seal good = read_seal(sealed(&key).dump(2));
  EXPECT_TRUE(good.is_whole());
  ASSERT_TRUE(good.signature && good.signature->is_good);
  EXPECT_EQ(distrust(good, made), "");
  EXPECT_EQ(distrust(read_seal(sealed().dump()), made), "is not signed");

  const PublicKey other = make_key(folder_ / "other");
  EXPECT_NE(distrust(good, other).find("not the trusted key"), std::string::npos);
  // Changed with its hash computed again, which needs no secret: the signature tells.
  JsonValue forged = sealed(&key);
  const JsonValue signature = forged["signature"];
  forged.erase("hash");
  forged.erase("signature");
  forged["b"] = 0.2;
  seal(forged, nullptr);
  forged["signature"] = signature;
  const Seal bad = read_seal(forged.dump());
  EXPECT_TRUE(bad.is_whole());
  EXPECT_FALSE(bad.signature->is_good);
  EXPECT_NE(distrust(bad, made).find("not of its contents"), std::string::npos);
}

TEST_F(Keys, AreTheirOwnersAlone) {
  make_key(file_);
  struct stat status = {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_NE(error_of([&] { make_key(file_); }).find("never overwritten"), std::string::npos);
  ::chmod(file_.c_str(), 0640);
  EXPECT_NE(error_of([&] { SigningKey key(file_); }).find("chmod 600"), std::string::npos);
  std::ofstream(folder_ / "b.pub") << "mine";
  EXPECT_NE(error_of([&] { make_key(folder_ / "b"); }).find("b.pub"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "b"));
}

TEST_F(Keys, WhatIsNoneIsRefusedWithoutBeingShown) {
  std::ofstream(file_) << "tyto-ed25519-secret not-base64";
  ::chmod(file_.c_str(), 0600);
  const std::string error = error_of([&] { SigningKey key(file_); });
  EXPECT_NE(error.find("is not a signing key"), std::string::npos);
  EXPECT_EQ(error.find("not-base64"), std::string::npos);
  for (const std::string& bad : {std::string("tyto-ed25519-public AAAA"), file_.string()})
    EXPECT_NE(error_of([&] { public_key_from(bad); }).find("neither a public key"),
              std::string::npos);
}

}  // namespace
}  // namespace tyto
