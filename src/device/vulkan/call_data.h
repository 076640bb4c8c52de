// What changes from call to call, as the kernels read it: 32-bit words in one small buffer.
//
//   word 0    rows of the call                word 2  where the table of segments begins
//   word 1    segments                        word 3  where the table of tiles begins
//   from 4    a row each: segment, position, the row that gather_rows takes, where the list of its
//             pages begins: all that a kernel needs of a row, without a second look
//   segments  first row, rows, position, where the list of pages begins
//   tiles     rows of one segment each, at most kTileRows: segment, first row, rows, 0
//   lists     numbers of pages
#pragma once

#include <cstdint>
#include <span>

#include "program/call.h"

namespace tyto::vulkan {

// Rows of a prompt that one workgroup of attention takes.
constexpr uint32_t kTileRows = 64;

struct CallSize {
  uint32_t tiles = 0;
  uint64_t words = 0;
};
// `page` is the positions of a page; 0: the program touches no cache.
CallSize call_size(const Call& call, uint32_t page);

// `to` has room for the words of call_size(); tables are as long as that says.
void write_call(const Call& call, uint32_t page, std::span<uint32_t> to);

}  // namespace tyto::vulkan
