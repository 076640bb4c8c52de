#include "program/pattern.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

// Where each value lies, by the definition.
std::vector<uint64_t> places(const Pattern& pattern, uint64_t values) {
  std::vector<uint64_t> result;
  for (uint64_t v = 0; v < values; ++v) {
    uint64_t at = pattern.offset, rest = v;
    if (pattern.dims.empty()) at += v;
    for (size_t d = pattern.dims.size(); d-- > 0;) {
      at += rest % pattern.dims[d].size * pattern.dims[d].stride;
      rest /= pattern.dims[d].size;
    }
    result.push_back(at);
  }
  return result;
}

std::vector<uint64_t> walked(const Pattern& pattern, uint64_t begin, uint64_t end) {
  std::vector<uint64_t> result;
  uint64_t next = begin;
  for_each_stretch(pattern, begin, end, [&](const Stretch& stretch) {
    EXPECT_EQ(stretch.first, next);
    next += stretch.count;
    for (uint64_t i = 0; i < stretch.count; ++i) result.push_back(stretch.at + i * stretch.stride);
  });
  return result;
}

TEST(Pattern, StretchesOfAnyRangeFollowTheDefinition) {
  const Pattern patterns[] = {
      {}, {7, {}}, transposed(4, 6), rows_apart(3, 4, 6, 10), {5, {{2, 100}, {3, 4}, {4, 20}}}};
  for (const Pattern& pattern : patterns) {
    const std::vector<uint64_t> all = places(pattern, 24);
    for (uint64_t begin = 0; begin <= 24; ++begin)
      for (uint64_t end = begin; end <= 24; ++end)
        EXPECT_EQ(walked(pattern, begin, end),
                  std::vector<uint64_t>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                        all.begin() + static_cast<std::ptrdiff_t>(end)));
  }
}

TEST(Pattern, SimplifiedSaysTheSame) {
  EXPECT_EQ(simplified({3, {{4, 8}, {8, 1}}}), (Pattern{3, {}}));
  EXPECT_EQ(simplified({0, {{1, 77}, {4, 10}, {1, 5}, {8, 1}}}), rows_apart(0, 4, 8, 10));
  EXPECT_EQ(simplified({0, {{6, 3}}}), (Pattern{0, {{6, 3}}}));
  const Pattern cache = {9, {{2, 400}, {5, 16}, {4, 4}, {4, 1}}};
  EXPECT_EQ(simplified(cache).dims.size(), 2u);
  EXPECT_EQ(places(simplified(cache), 160), places(cache, 160));
  EXPECT_EQ(end_of(cache, 160), 9u + 400 + 64 + 12 + 3 + 1);
}

}  // namespace
}  // namespace tyto
