#include "device/vnpu/images/instance_builder.h"

#include "base/error.h"

namespace tyto::vxrt {
namespace {

SlotKind kind_of(AirRole role) {
  switch (role) {
    case AirRole::input:
      return SlotKind::input;
    case AirRole::output:
      return SlotKind::output;
    case AirRole::inout:
      return SlotKind::inout;
    case AirRole::weight:
      return SlotKind::weight;
    case AirRole::kv:
      return SlotKind::kv;
    default:
      return SlotKind::scratch;
  }
}

}  // namespace

InstanceBuilder::InstanceBuilder(const AirProgram& abi, size_t first) : abi_(abi), first_(first) {
  const size_t colon = abi.entry.find(':');
  instance_.name = colon == std::string::npos ? abi.name : abi.entry.substr(colon + 1);
  instance_.program.name = abi.name;
  for (size_t i = first; i < abi.arguments.size(); ++i)
    instance_.arguments.push_back(
        {abi.arguments[i].bytes(), abi.arguments[i].role == AirRole::dead});
}

InstanceBuilder::SlotIndex InstanceBuilder::add(const Slot& slot, const SlotPlace& place) {
  instance_.program.slots.push_back(slot);
  instance_.places.push_back(place);
  return static_cast<SlotIndex>(instance_.program.slots.size() - 1);
}

InstanceBuilder::SlotIndex InstanceBuilder::part(const std::string& name, SlotKind kind,
                                                 size_t argument, uint64_t rows, uint64_t cols,
                                                 const Pattern& pattern) {
  return add({name, kind, abi_.arguments[argument].dtype, rows, cols},
             {static_cast<int32_t>(argument - first_), pattern});
}

// The tables of air_abi.h were written from the same facts: where the two differ, one is wrong.
InstanceBuilder::SlotIndex InstanceBuilder::whole(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.role != AirRole::dead && known.elements() == rows * cols);
  return part(known.name, kind_of(known.role), argument, rows, cols, {});
}

InstanceBuilder::SlotIndex InstanceBuilder::turned(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.rows == cols && known.cols == rows);
  return part(known.name, SlotKind::weight, argument, rows, cols, transposed(rows, cols));
}

InstanceBuilder::SlotIndex InstanceBuilder::q4nx(const std::string& name, size_t argument,
                                                 uint64_t rows, uint64_t cols, uint64_t offset,
                                                 const Q4nxPlace& place) {
  return add({name, SlotKind::weight, DType::bf16, rows, cols},
             {static_cast<int32_t>(argument - first_), {offset, {}}, Encoding::q4nx, place});
}

InstanceBuilder::SlotIndex InstanceBuilder::scratch(const std::string& name, DType dtype,
                                                    uint64_t rows, uint64_t cols) {
  return add({name, SlotKind::scratch, dtype, rows, cols}, {});
}

void InstanceBuilder::launch(Kernel kernel, Role role, std::vector<SlotIndex> slots,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  Launch launch{kernel, layer_name(name(role), layer_), {}, shape, role, layer_};
  for (SlotIndex slot : slots) launch.args.push_back({slot, true, false});
  launch.args.back() = {slots.back(), false, true};
  instance_.program.launches.push_back(std::move(launch));
  instance_.needs.push_back(needs);
}

void InstanceBuilder::append(SlotIndex k, SlotIndex v, SlotIndex k_cache, SlotIndex v_cache,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  launch(Kernel::kv_append, Role::kv_append, {k, v, k_cache, v_cache}, needs, shape);
  instance_.program.launches.back().args[2] = {k_cache, false, true};
}

Instance InstanceBuilder::take(uint32_t tokens, uint32_t launches) {
  TYTO_ASSERT(launches == abi_.launches);
  instance_.takes_call = false;
  instance_.fixed_call = call_of(tokens);
  instance_.launches = launches;
  return std::move(instance_);
}

}  // namespace tyto::vxrt
