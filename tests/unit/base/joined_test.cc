#include "base/spelling.h"

#include <gtest/gtest.h>

#include <ranges>
#include <vector>

#include "base/round_up.h"

namespace tyto {
namespace {

TEST(Joined, TextsWithASeparatorBetween) {
  EXPECT_EQ(joined(std::vector<std::string>{}), "");
  EXPECT_EQ(joined(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(joined(std::vector<std::string>{"", "b", ""}, "+"), "+b+");
}

TEST(Joined, MembersAndFunctionsOfTheItems) {
  struct Named {
    const char* name;
    int number;
  };
  const Named items[] = {{"one", 1}, {"two", 2}, {"three", 3}};
  EXPECT_EQ(joined(items, ", ", &Named::name), "one, two, three");
  auto odd = items | std::views::filter([](const Named& item) { return item.number % 2; });
  EXPECT_EQ(joined(odd, "; ", [](const Named& item) { return std::to_string(item.number); }),
            "1; 3");
}

TEST(RoundUp, ToTheNextMultiple) {
  EXPECT_EQ(round_up(0, 8), 0u);
  EXPECT_EQ(round_up(1, 8), 8u);
  EXPECT_EQ(round_up(16, 8), 16u);
  EXPECT_EQ(round_up(17, 5), 20u);
}

}  // namespace
}  // namespace tyto
