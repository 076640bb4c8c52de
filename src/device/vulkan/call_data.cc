#include "device/vulkan/call_data.h"

#include <algorithm>

#include "base/error.h"

namespace tyto::vulkan {
namespace {

constexpr uint64_t kHeaderWords = 4, kRowWords = 4;

uint32_t pages_of(const Segment& segment, uint32_t page) {
  return page == 0 ? 0 : (segment.end() + page - 1) / page;
}

}  // namespace

CallSize call_size(const Call& call, uint32_t page) {
  CallSize size;
  uint64_t pages = 0;
  for (const Segment& segment : call.segments()) {
    size.tiles += (segment.rows + kTileRows - 1) / kTileRows;
    pages += pages_of(segment, page);
  }
  size.words = kHeaderWords + kRowWords * (call.segments().size() + call.rows + size.tiles) + pages;
  return size;
}

void write_call(const Call& call, uint32_t page, std::span<uint32_t> to) {
  const std::span<const Segment> segments = call.segments();
  const uint64_t segments_at = kHeaderWords + kRowWords * call.rows;
  const uint64_t tiles_at = segments_at + kRowWords * segments.size();
  uint64_t pages_at = tiles_at + kRowWords * call_size(call, page).tiles;
  const auto put = [&](uint64_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    to[at] = a, to[at + 1] = b, to[at + 2] = c, to[at + 3] = d;
  };
  put(0, call.rows, static_cast<uint32_t>(segments.size()), static_cast<uint32_t>(segments_at),
      static_cast<uint32_t>(tiles_at));
  uint64_t row_at = kHeaderWords, tile_at = tiles_at;
  uint32_t row = 0;  // of the call; of gather_rows' result where first_row is that of its source
  for (uint32_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    put(segments_at + kRowWords * i, segment.first_row, segment.rows, segment.position,
        static_cast<uint32_t>(pages_at));
    for (uint32_t t = 0; t < segment.rows; ++t, row_at += kRowWords)
      put(row_at, i, segment.position + t, segment.first_row + t, static_cast<uint32_t>(pages_at));
    for (uint32_t t = 0; t < segment.rows; t += kTileRows, tile_at += kRowWords)
      put(tile_at, i, row + t, std::min(kTileRows, segment.rows - t), 0);
    const uint32_t pages = pages_of(segment, page);
    TYTO_ASSERT(pages <= segment.pages.size() || page == 0);
    std::copy_n(segment.pages.begin(), pages, to.begin() + static_cast<int64_t>(pages_at));
    pages_at += pages;
    row += segment.rows;
  }
}

}  // namespace tyto::vulkan
