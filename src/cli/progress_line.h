// The one line of a terminal on which work reports itself. A writer of anything else to the
// terminal erases it first; cli/terminal.h does.
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

// "loading weights [#####....]  55%  12 s left" in at most `columns`. How long it still takes is
// said of work that takes more than a few seconds.
std::string progress_text(const ProgressState& state, size_t columns);

// Draws the line on stderr, ten times a second at most; work that is done erases it. For any
// thread.
void draw_progress(std::string_view what, uint64_t done, uint64_t total);

// For work that cannot say how far it is: what is being done, until something is printed. Nothing
// where stderr is no terminal.
void announce(std::string_view what);

// Nothing where no line is drawn. Async-signal-safe, for any thread.
void erase_progress() noexcept;

}  // namespace tyto
