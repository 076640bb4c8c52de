#include "model/tensor_layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/round_up.h"

namespace tyto {

void check_layout(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data,
                  uint64_t alignment, const std::string& file) {
  const auto begin_of = [&](const NamedTensor* tensor) {
    return static_cast<uint64_t>(tensor->view.bytes.data() - data.data());
  };
  std::vector<const NamedTensor*> in_order;
  for (const NamedTensor& tensor : tensors) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [&](const auto* a, const auto* b) {
    return std::pair(begin_of(a), a->view.bytes.size()) <
           std::pair(begin_of(b), b->view.bytes.size());
  });
  const NamedTensor* before = nullptr;
  uint64_t end = 0;
  for (const NamedTensor* tensor : in_order) {
    const uint64_t begin = begin_of(tensor);
    const std::string where = file + ": tensor " + printable_name(tensor->name);
    if (begin < end)
      fail_input(where, "begins at byte {} of the data, inside tensor {}, which ends at byte {}",
                 begin, printable_name(before->name), end);
    if (begin > round_up(end, alignment))
      fail_input(where, "begins at byte {} of the data, but the {} bytes before it are no tensor's",
                 begin, begin - end);
    before = tensor;
    end = begin + tensor->view.bytes.size();
  }
  if (data.size() > round_up(end, alignment))
    fail_input(file,
               "the {} bytes after the last tensor, from byte {} of the data on, are no tensor's",
               data.size() - end, end);
}

}  // namespace tyto
