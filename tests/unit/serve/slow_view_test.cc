// A text that takes long to make.
#include "serve/api/answer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace tyto::api {
namespace {

using namespace std::chrono_literals;

// What a caller is told: the text, or the error behind a "!".
std::string told_by(SlowView& view) {
  std::promise<std::string> told;
  view.ask([&](const std::string& text, const std::optional<Error>& error) {
    told.set_value(error ? std::string("!") + error->what() : text);
  });
  return told.get_future().get();
}

TEST(SlowView, ALateTextIsAnErrorUntilItIsThereAndMadeOnce) {
  std::promise<void> may_end;
  std::atomic<int> made = 0;
  SlowView view(
      [&, waits = may_end.get_future().share()] {
        waits.wait();
        ++made;
        return std::string("late");
      },
      1h, 10ms);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(told_by(view).starts_with("!")) << i;
  may_end.set_value();
  std::string told = "!";
  while (told.starts_with("!")) told = told_by(view);
  EXPECT_EQ(told, "late");
  EXPECT_EQ(told_by(view), "late");  // kept
  EXPECT_EQ(made, 1);
}

TEST(SlowView, EndsWithoutWhatHangs) {
  std::promise<void> may_end;
  std::atomic<bool> is_over = false;
  {
    SlowView view(
        [&, waits = may_end.get_future().share()] {
          waits.wait();
          is_over = true;
          return std::string("too late");
        },
        1h, 10ms);
    EXPECT_TRUE(told_by(view).starts_with("!"));
  }
  EXPECT_FALSE(is_over);
  may_end.set_value();
  while (!is_over) std::this_thread::yield();
}

}  // namespace
}  // namespace tyto::api
