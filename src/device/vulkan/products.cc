#include "device/vulkan/products.h"

#include "device/vulkan/weight_form.h"

namespace tyto::vulkan {
namespace {

constexpr size_t kMostProducts = 3;

uint16_t slot_of(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

bool is(const Program& program, size_t index, Kernel kernel) {
  return index < program.launches.size() && program.launches[index].kernel == kernel;
}

WeightForm form_of(const Program& program, const Launch& matmul) {
  return weight_form(program.slots[slot_of(matmul, 1)].dtype);
}

// Over whole rows, not over heads.
bool is_row_norm(const Program& program, size_t index) {
  if (!is(program, index, Kernel::rmsnorm)) return false;
  const Launch& launch = program.launches[index];
  return program.slots[slot_of(launch, 0)].cols == program.slots[slot_of(launch, 1)].cols &&
         !launch.shape.bf16_sums;
}

// What comes before the products, if the products are all that want it.
size_t match_norm(const Program& program, Products& found) {
  size_t at = found.first;
  if (is(program, at, Kernel::gather_rows)) {
    found.gather = &program.launches[at++];
    if (!is_row_norm(program, at) ||
        slot_of(program.launches[at], 0) != slot_of(*found.gather, 1) ||
        !is_dead_after(program, slot_of(*found.gather, 1), at))
      return found.first;
  }
  if (is_row_norm(program, at)) found.norm = &program.launches[at++];
  return at;
}

void match_ending(const Program& program, Products& found) {
  const size_t at = found.first + found.count;
  if (at >= program.launches.size()) return;
  const Launch& next = program.launches[at];
  const auto y = [&](size_t i) { return slot_of(*found.matmuls[i], 2); };
  const bool is_pair = found.matmuls.size() == 2 && found.matmuls[0]->args.size() == 3 &&
                       found.matmuls[1]->args.size() == 3 &&
                       form_of(program, *found.matmuls[0]) == form_of(program, *found.matmuls[1]);
  if (is_pair && next.kernel == Kernel::swiglu && slot_of(next, 0) == y(0) &&
      slot_of(next, 1) == y(1)) {
    const uint16_t result = slot_of(next, 2);
    for (size_t i : {0, 1})
      if (y(i) != result && !is_dead_after(program, y(i), at)) return;
    found.ending = Ending::swiglu;
    found.result = result;
  } else if (found.matmuls.size() == 1 && next.kernel == Kernel::add && next.args.size() == 2 &&
             slot_of(next, 1) == y(0) && slot_of(next, 0) != found.x &&
             is_dead_after(program, y(0), at)) {
    found.ending = Ending::add;
    found.result = slot_of(next, 0);
  } else {
    return;
  }
  ++found.count;
}

}  // namespace

bool is_dead_after(const Program& program, uint16_t slot, size_t last) {
  if (program.slots[slot].kind != SlotKind::scratch) return false;
  for (size_t i = last + 1; i < program.launches.size(); ++i) {
    bool is_written = false;
    for (const Arg& arg : program.launches[i].args) {
      if (arg.slot != slot) continue;
      if (arg.reads) return false;
      is_written = arg.writes;
    }
    if (is_written) return true;
  }
  return true;
}

Products match_products(const Program& program, size_t first, bool takes_norm) {
  Products found{.first = first};
  size_t at = takes_norm ? match_norm(program, found) : first;
  if (!is(program, at, Kernel::matmul)) return {};
  found.x = slot_of(program.launches[at], 0);
  const uint16_t multiplied = found.x;
  while (is(program, at, Kernel::matmul) && slot_of(program.launches[at], 0) == multiplied &&
         found.matmuls.size() < kMostProducts)
    found.matmuls.push_back(&program.launches[at++]);
  found.count = at - first;
  if (found.norm != nullptr) {
    const bool is_its =
        slot_of(*found.norm, 2) == multiplied && slot_of(*found.norm, 0) != multiplied;
    if (!is_its || !is_dead_after(program, multiplied, at - 1)) return {};
    found.x = slot_of(found.gather != nullptr ? *found.gather : *found.norm, 0);
  } else if (found.gather != nullptr) {
    return {};
  }
  match_ending(program, found);
  return found;
}

}  // namespace tyto::vulkan
