#include "device/vnpu/images/image.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "device/cpu/interpreter.h"
#include "device/npu/formats/q4nx_layout.h"
#include "device/vnpu/machine/dma.h"

namespace tyto::vxrt {
namespace {

// So that sums and products of byte counts stay in 64 bits.
constexpr uint64_t kMostValues = uint64_t{1} << 32;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr uint64_t kMostPhaseRows = uint64_t{1} << 28;
constexpr size_t kMostDims = 8;

uint64_t q4nx_bytes(const Q4nxPlace& place) {
  return place.phase_rows / kQ4nxBlockRows * (place.phase_cols / kQ4nxBlockCols) *
         kQ4nxBlockElements * 2;
}

void check_slot(const Slot& slot, const std::string& where) {
  if (slot.rows == 0 || slot.cols == 0 || slot.rows > kMostValues || slot.cols > kMostValues ||
      slot.rows > kMostValues / slot.cols)
    fail_input(where, "slot {} has bad size {} x {}", slot.name, slot.rows, slot.cols);
  if (slot.cols % info(slot.dtype).block_values != 0)
    fail_input(where, "slot {}: {} values are not whole blocks of {}", slot.name, slot.cols,
               info(slot.dtype).name);
}

void check_pattern(const Slot& slot, const Pattern& pattern, const std::string& where) {
  if (pattern.offset > kMostBytes || pattern.dims.size() > kMostDims)
    fail_input(where, "slot {} has a bad pattern", slot.name);
  uint64_t values = 1;
  for (const Pattern::Dim& dim : pattern.dims) {
    if (dim.size == 0 || dim.size > kMostValues / values || dim.stride > kMostBytes / dim.size)
      fail_input(where, "slot {} has a bad pattern", slot.name);
    values *= dim.size;
  }
  if (!pattern.dims.empty() && values != slot.rows * slot.cols)
    fail_input(where, "slot {} has {} values, its pattern {}", slot.name, slot.rows * slot.cols,
               values);
  const uint32_t block = info(slot.dtype).block_values;
  if (block > 1 && (!pattern.is_contiguous() || pattern.offset % block != 0))
    fail_input(where, "slot {}: blocks of {} must be contiguous", slot.name, info(slot.dtype).name);
}

// What the launches do with a slot.
struct Use {
  bool is_written = false;
  bool is_matmul_weight = false;
  bool is_other = false;
};

std::vector<Use> uses_of(const Program& program) {
  std::vector<Use> uses(program.slots.size());
  for (const Launch& launch : program.launches)
    for (size_t i = 0; i < launch.args.size(); ++i) {
      Use& use = uses[launch.args[i].slot];
      use.is_written = use.is_written || launch.args[i].writes;
      (launch.kernel == Kernel::matmul && i == 1 ? use.is_matmul_weight : use.is_other) = true;
    }
  // Those may be transposed, as the GEMM kernel itself reads B as (K, N), or 4-bit blocks.
  for (Use& use : uses) use.is_matmul_weight = use.is_matmul_weight && !use.is_other;
  return uses;
}

void check_q4nx(const Instance& instance, size_t slot_index, const Use& use,
                const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const Q4nxPlace& q4nx = instance.places[slot_index].q4nx;
  if (slot.dtype != DType::bf16 || !use.is_matmul_weight)
    fail_input(where, "slot {} is q4nx, but not the weight of a matmul", slot.name);
  if (!instance.places[slot_index].pattern.dims.empty())
    fail_input(where, "slot {}: q4nx has no pattern", slot.name);
  const bool has_size = q4nx.phase_rows > 0 && q4nx.phase_cols > 0 &&
                        q4nx.phase_rows <= kMostPhaseRows &&
                        q4nx.phase_cols <= kMostValues / q4nx.phase_rows;
  if (!has_size || q4nx.phase_rows % kQ4nxPassRows != 0 || q4nx.phase_cols % kQ4nxBlockCols != 0)
    fail_input(where, "slot {}: a phase of {} x {} is not whole blocks for 16 cores", slot.name,
               q4nx.phase_rows, q4nx.phase_cols);
  const uint64_t last = slot.rows - 1;
  if (slot.cols > q4nx.phase_cols || slot.rows > q4nx.phase_rows || q4nx.chunk_rows == 0 ||
      q4nx.chunk_stride > q4nx.phase_rows ||
      q4nx.chunk_stride < std::min(q4nx.chunk_rows, slot.rows) ||
      q4nx.first_row >= q4nx.phase_rows ||
      q4nx.first_row + last / q4nx.chunk_rows * q4nx.chunk_stride + last % q4nx.chunk_rows >=
          q4nx.phase_rows)
    fail_input(where, "slot {} is not inside its phase of {} x {}", slot.name, q4nx.phase_rows,
               q4nx.phase_cols);
}

// Whether no two values lie in one place: each stride steps over all that the smaller ones cover.
bool is_injective(const Pattern& pattern) {
  std::vector<Pattern::Dim> dims = pattern.dims;
  std::sort(dims.begin(), dims.end(),
            [](const Pattern::Dim& a, const Pattern::Dim& b) { return a.stride < b.stride; });
  uint64_t covered = 1;
  for (const Pattern::Dim& dim : dims) {
    if (dim.size == 1) continue;
    if (dim.stride < covered) return false;
    covered += (dim.size - 1) * dim.stride;
  }
  return true;
}

// Whether the kernels can take the values from where they are, and the DMAs bring them.
void check_access(const Instance& instance, size_t slot_index, const Use& use,
                  const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const Pattern& pattern = instance.places[slot_index].pattern;
  const bool is_weight = use.is_matmul_weight;
  if (!is_weight)
    if (const auto problem = cpu::pattern_problem(instance.program, slot_index, pattern))
      fail_input(where, "slot {} {}", slot.name, *problem);
  // A transposed weight is walked along its columns, tile by tile.
  Pattern walked = pattern;
  if (is_weight && !walked.dims.empty() && walked.dims.back().stride != 1)
    std::stable_sort(
        walked.dims.begin(), walked.dims.end(),
        [](const Pattern::Dim& a, const Pattern::Dim& b) { return a.stride > b.stride; });
  if (const auto problem = dma_problem(walked, slot.dtype))
    fail_input(where, "slot {} {}", slot.name, *problem);
  if (use.is_written && !is_injective(pattern))
    fail_input(where, "slot {} is written with values on top of each other", slot.name);
}

void check_place(const Instance& instance, size_t slot_index, const Use& use,
                 const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const SlotPlace& place = instance.places[slot_index];
  check_pattern(slot, place.pattern, where);
  if (place.encoding == Encoding::q4nx) check_q4nx(instance, slot_index, use, where);
  if (place.argument < 0) {
    if (slot.kind != SlotKind::scratch)
      fail_input(where, "slot {} is neither scratch nor an argument", slot.name);
    if (place != SlotPlace{}) fail_input(where, "slot {}: private scratch has no place", slot.name);
    return;
  }
  if (static_cast<size_t>(place.argument) >= instance.arguments.size() ||
      instance.arguments[static_cast<size_t>(place.argument)].dead)
    fail_input(where, "slot {} is in bad argument {}", slot.name, place.argument);
  const uint64_t bytes = instance.arguments[static_cast<size_t>(place.argument)].bytes;
  if (reach(slot, place) > bytes)
    fail_input(where, "slot {} reaches byte {} of argument {}, which has {}", slot.name,
               reach(slot, place), place.argument, bytes);
  check_access(instance, slot_index, use, where);
}

// Two launches may write the same values, or different ones, but not some of each other's.
// Patterns are compared by the range they span: no image interleaves what it writes.
void check_overlaps(const Instance& instance, std::span<const Use> uses, const std::string& where) {
  const auto& slots = instance.program.slots;
  struct Range {
    int32_t argument;
    uint64_t begin, end;
    size_t slot;
    auto operator<=>(const Range&) const = default;
  };
  std::vector<Range> written;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotPlace& place = instance.places[i];
    if (place.argument < 0 || !uses[i].is_written) continue;
    written.push_back({place.argument, row_bytes(slots[i].dtype, place.pattern.offset),
                       reach(slots[i], place), i});
  }
  std::sort(written.begin(), written.end());
  const auto is_same = [&](const Range& a, const Range& b) {
    return simplified(instance.places[a.slot].pattern) ==
               simplified(instance.places[b.slot].pattern) &&
           slots[a.slot].dtype == slots[b.slot].dtype &&
           slots[a.slot].rows * slots[a.slot].cols == slots[b.slot].rows * slots[b.slot].cols;
  };
  // By ascending begin, what overlaps any earlier range overlaps the one that reaches furthest.
  size_t furthest = 0;
  for (size_t i = 1; i < written.size(); ++i) {
    const Range &last = written[furthest], &next = written[i];
    const bool overlaps = next.argument == last.argument && next.begin < last.end;
    if (overlaps && !is_same(next, last))
      fail_input(where, "slots {} and {} are written and overlap", slots[last.slot].name,
                 slots[next.slot].name);
    if (!overlaps || next.end > last.end) furthest = i;
  }
}

void check_needs(const Instance& instance, uint32_t columns, const std::string& where) {
  const auto& launches = instance.program.launches;
  const auto& needs = instance.needs;
  if (!needs.empty() && needs.size() != launches.size())
    fail_input(where, "needs of {} launches, but {} launches", needs.size(), launches.size());
  const uint64_t l2 = uint64_t{kL2BytesPerColumn} * columns;
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].l1_bytes > kL1Bytes)
      fail_input(where, "launch {} needs {} bytes of L1, a tile has {}", launches[i].name,
                 needs[i].l1_bytes, kL1Bytes);
    if (needs[i].l2_bytes > l2)
      fail_input(where, "launch {} needs {} bytes of L2, {} columns have {}", launches[i].name,
                 needs[i].l2_bytes, columns, l2);
  }
}

void check_stream(const Instance& instance, const std::string& where) {
  const InstructionStream& stream = *instance.stream;
  constexpr uint32_t kStreamHeader = 2, kMostWords = 1u << 24;
  if (stream.words < kStreamHeader || stream.words > kMostWords)
    fail_input(where, "a stream of {} instruction words", stream.words);
  uint32_t next = kStreamHeader;
  bool has_live = false;
  for (const InstructionStream::Patch& patch : stream.patches) {
    if (patch.index < next || patch.index >= stream.words)
      fail_input(where, "bad instruction word {}", patch.index);
    next = patch.index + 1;
    has_live = has_live || patch.slope == 1;
  }
  if ((stream.window != 0) != has_live)
    fail_input(where, "a window of {} positions and {} words to set", stream.window,
               stream.patches.size());
}

void check_instance(const Instance& instance, const Image& image, const std::string& where) {
  if (instance.name.empty() || instance.name.find(':') != std::string::npos)
    fail_input(where, "instance name '{}' is not usable", instance.name);
  const auto& slots = instance.program.slots;
  if (slots.size() > UINT16_MAX) fail_input(where, "{} slots are too many", slots.size());
  for (const Slot& slot : slots) check_slot(slot, where);
  cpu::check_launches(instance.program, where);
  if (instance.places.size() != slots.size())
    fail_input(where, "{} slots, but {} places", slots.size(), instance.places.size());
  for (const ImageArgument& argument : instance.arguments)
    if (argument.bytes > kMostBytes)
      fail_input(where, "an argument of {} bytes is too large", argument.bytes);
  const std::vector<Use> uses = uses_of(instance.program);
  for (size_t i = 0; i < slots.size(); ++i) check_place(instance, i, uses[i], where);
  check_overlaps(instance, uses, where);
  check_needs(instance, image.columns, where);
  const bool is_xclbin = image.form == ImageForm::xclbin;
  if (instance.stream.has_value() != (is_xclbin && !instance.takes_call))
    fail_input(
        where,
        "an xclbin that takes no call must have a stream of instructions, no other image may");
  if (instance.stream) check_stream(instance, where);
}

}  // namespace

uint64_t reach(const Slot& slot, const SlotPlace& place) {
  if (place.encoding == Encoding::q4nx) return place.pattern.offset * 2 + q4nx_bytes(place.q4nx);
  return row_bytes(slot.dtype, end_of(place.pattern, slot.rows * slot.cols));
}

Image make_image(const std::string& name, const Program& program, Scratch scratch) {
  Instance instance;
  instance.name = name;
  instance.program = program;
  for (const Slot& slot : program.slots) {
    const bool is_private = slot.kind == SlotKind::scratch && scratch == Scratch::is_private;
    SlotPlace place;
    if (!is_private) {
      place.argument = static_cast<int32_t>(instance.arguments.size());
      instance.arguments.push_back({slot.bytes(), false});
    }
    instance.places.push_back(std::move(place));
  }
  Image image;
  image.instances.push_back(std::move(instance));
  return image;
}

Image combined(std::span<const Image> images) {
  Image result;
  for (const Image& image : images) {
    if (image.form != ImageForm::elf || image.platform != images.front().platform ||
        image.columns != images.front().columns)
      fail_input("images", "are not ELFs for one partition");
    result.platform = image.platform;
    result.columns = image.columns;
    result.instances.insert(result.instances.end(), image.instances.begin(), image.instances.end());
  }
  return result;
}

void check_image(const Image& image, const std::string& where) {
  if (image.columns == 0 || image.columns > 255)
    fail_input(where, "{} columns are not possible", image.columns);
  constexpr uint8_t kPlatforms[] = {64, 69, 70, 75, 86, 105};
  if (std::find(std::begin(kPlatforms), std::end(kPlatforms), image.platform) ==
      std::end(kPlatforms))
    fail_input(where, "platform {} is not known", image.platform);
  if (image.instances.empty()) fail_input(where, "has no instance");
  if (image.form == ImageForm::xclbin && image.instances.size() != 1)
    fail_input(where, "an xclbin of {} instances", image.instances.size());
  std::set<std::string> names;
  for (const Instance& instance : image.instances) {
    check_instance(instance, image, where);
    if (!names.insert(instance.name).second)
      fail_input(where, "two instances are called {}", instance.name);
  }
}

}  // namespace tyto::vxrt
