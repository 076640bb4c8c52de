// What one submission to a device took, as the device counted it.
#pragma once

#include <cstdint>

namespace tyto {

struct Completion {
  // When the parts ended, each beginning where the one before ended: bytes to the device, handing
  // over, computing, bytes back. Where the memory is the host's, nothing moves, and a device that
  // computes inside submit() is done when it is submitted.
  uint64_t start_ns = 0;
  uint64_t uploaded_ns = 0;
  uint64_t submitted_ns = 0;
  uint64_t completed_ns = 0;
  uint64_t end_ns = 0;

  uint64_t device_ns = 0;      // the device was busy; modelled where the device is virtual
  uint64_t submitting_ns = 0;  // of the host, inside the driver's submission
  uint64_t waited_ns = 0;      // of the host, for completions
  uint64_t preparing_ns = 0;   // the host made commands and kernels, before the start
  uint64_t submissions = 1;    // more where one call of a program is several of the hardware's
  uint64_t launches = 0;       // kernels inside
  uint64_t bytes = 0;          // declared by the launches
  uint64_t flops = 0;
  uint64_t row_sums = 0;  // of products, compared on the host
  uint64_t uploaded_bytes = 0;
  uint64_t downloaded_bytes = 0;
};

// The part of a completion that `rows` of a call's `of` rows account for, from row `first` on. The
// shares of all rows add up to the whole, but for submissions and launches, in which each took
// part.
Completion share_of(const Completion& whole, uint64_t first, uint64_t rows, uint64_t of);

}  // namespace tyto
