// The one line of a terminal on which work reports itself, and a meter for downloads. Other output
// to the terminal erases the line first; shell/terminal.h does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace tyto {

struct ProgressState {
  std::string_view what;
  uint64_t done = 0, total = 0;  // total 0: unknown
  double seconds = 0;            // since the work began
};

// "loading weights [#####....]  55%  12 s left" in at most `columns` columns. The time that is left
// is shown for work that takes more than a few seconds.
std::string progress_text(const ProgressState& state, size_t columns);

// Draws the line on stderr, ten times a second at most; work that is done erases it. For any
// thread.
void draw_progress(std::string_view what, uint64_t done, uint64_t total);

// Shows what is being done until something is printed, for work that cannot say how far it is.
// Nothing happens where stderr is not a terminal.
void announce(std::string_view what);

// Nothing where no line is drawn. Async-signal-safe, for any thread.
void erase_progress() noexcept;

// On stderr: a bar where that is a terminal; elsewhere a line every few seconds.
class DownloadMeter {
 public:
  DownloadMeter();

  // What is waited for while there is nothing to count; on a terminal alone.
  void say(const std::string& line);
  void show(std::string_view what, uint64_t done, uint64_t total);
  void clear();  // before anything else is written there

 private:
  struct Sample {
    std::chrono::steady_clock::time_point time;
    uint64_t done = 0;
  };

  void draw(uint64_t done, uint64_t total);
  void draw_line(std::string line);
  std::string speed(uint64_t left) const;  // and the time that is left

  bool is_terminal_;
  std::string what_;
  std::deque<Sample> samples_;
  std::chrono::steady_clock::time_point shown_;
  size_t drawn_ = 0;  // columns
};

// 9 -> "0:09", 75 -> "1:15", 3700 -> "1:01:40"
std::string clock_time(double seconds);

}  // namespace tyto
