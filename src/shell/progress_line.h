// The one line of a terminal on which work reports itself. Other output to the terminal erases it
// first; shell/terminal.h does.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace tyto
