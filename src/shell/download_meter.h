// How far a download is, how fast it goes and how long it will take.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace tyto {

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
