#include "shell/download_meter.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/spelling.h"
#include "base/utf8.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kBetweenDrawings(0.1);
constexpr Seconds kBetweenLines(5);
constexpr Seconds kRateWindow(10);  // how fast it was before that says little about what is left
constexpr Seconds kShortestWindow(0.5);

size_t stderr_width() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

DownloadMeter::DownloadMeter() : is_terminal_(::isatty(STDERR_FILENO) != 0) {}

void DownloadMeter::say(const std::string& line) {
  if (is_terminal_) draw_line(printable_line(line));
}

void DownloadMeter::show(std::string_view what, uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    what_ = what;
    samples_.clear();
    shown_ = is_terminal_ ? Clock::time_point() : now;
  }
  samples_.push_back({now, done});
  while (samples_.size() > 2 && now - samples_.front().time > kRateWindow) samples_.pop_front();
  if (done >= total) return clear();
  if (now - shown_ < (is_terminal_ ? kBetweenDrawings : kBetweenLines)) return;
  shown_ = now;
  draw(done, total);
}

void DownloadMeter::draw(uint64_t done, uint64_t total) {
  constexpr size_t kBar = 20;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const std::string text =
      fmt::format("{}/{}{}", human_bytes(done), human_bytes(total), speed(total - done));
  if (!is_terminal_) return note(fmt::format("{} {:.0f}%: {}", what_, share * 100, text));
  const auto filled = static_cast<size_t>(share * kBar);
  draw_line(fmt::format("{:<8} {:3.0f}% [{}{}] {}", what_, share * 100, std::string(filled, '#'),
                        std::string(kBar - filled, '.'), text));
}

void DownloadMeter::draw_line(std::string line) {
  line.resize(std::min(line.size(), stderr_width() - 1));
  const size_t columns = line.size();
  if (columns < drawn_) line.append(drawn_ - columns, ' ');
  drawn_ = columns;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

std::string DownloadMeter::speed(uint64_t left) const {
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  const Seconds time = last.time - first.time;
  if (time < kShortestWindow || last.done <= first.done) return "";
  const double rate = static_cast<double>(last.done - first.done) / time.count();
  return fmt::format(" {}/s {} left", human_bytes(static_cast<uint64_t>(rate)),
                     clock_time(static_cast<double>(left) / rate));
}

void DownloadMeter::clear() {
  if (drawn_ > 0) std::fprintf(stderr, "\r%s\r", std::string(drawn_, ' ').c_str());
  std::fflush(stderr);
  drawn_ = 0;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 3.6e8));
  const uint64_t hours = whole / 3600;
  const uint64_t minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace tyto
