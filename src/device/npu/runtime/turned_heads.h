// Arguments of an image that wants activations head by head: the host turns them around each call.
#pragma once

#include "device/npu/formats/heads_first.h"
#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {

class TurnedHeads {
 public:
  explicit TurnedHeads(ThreadPool& pool) : pool_(pool) {}

  // `turned` is what the image is given in place of `rows`.
  void add(const AirArgument& argument, std::shared_ptr<NpuBuffer> rows, xrt::bo turned);
  // Around a call, for its rows. The bytes that were moved are returned: the projections leave
  // their results on the device, so what is turned passes the host both ways.
  uint64_t give(uint32_t rows);
  uint64_t take(uint32_t rows);

 private:
  struct Part {
    HeadsFirst form;
    std::shared_ptr<NpuBuffer> rows;  // shared with the Buffer it was bound from
    xrt::bo turned;                   // shared with the other layers
  };
  static uint64_t row_bytes(const Part& part) { return part.form.cols * sizeof(uint16_t); }

  ThreadPool& pool_;
  std::vector<Part> inputs_, outputs_;
};

}  // namespace tyto::TYTO_XRT_PROVIDER
