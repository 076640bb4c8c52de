#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace tyto {
namespace {

std::string hex(std::string_view text) {
  return to_hex(hash_bytes(std::as_bytes(std::span(text))));
}

// XXH3-128 with seed 0, as xxhsum -H2 prints it: caches must survive a rebuild.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(hash_bytes({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, HexIsPadded) {
  EXPECT_EQ(to_hex({0x1, 0xab}), "000000000000000100000000000000ab");
}

TEST(Hash, EveryByteAndTheLengthCount) {
  std::set<std::string> seen;
  std::string text(300, 'a');
  seen.insert(hex(text));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 'b';
    seen.insert(hex(changed));
    seen.insert(hex(std::string_view(text).substr(0, i)));
  }
  EXPECT_EQ(seen.size(), 601u);
}

TEST(Hash, HashesCompareByBothHalves) {
  EXPECT_EQ((Hash128{1, 2}), (Hash128{1, 2}));
  EXPECT_NE((Hash128{1, 2}), (Hash128{2, 1}));
  EXPECT_LT((Hash128{1, 9}), (Hash128{2, 0}));
}

}  // namespace
}  // namespace tyto
