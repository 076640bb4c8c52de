#include "device/cpu/interpreter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/matmul.h"
#include "device/cpu/operations.h"
#include "program/kernels.h"

namespace tyto::cpu {
namespace {

uint16_t slot_of(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

// Nothing has to be widened first; matrices and ids are read as they are.
bool all_f32(const Program& program, const Launch& launch) {
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const ArgKind kind = arg_spec(launch, i).kind;
    const bool is_exact = kind == ArgKind::matrix || kind == ArgKind::integers;
    if (!is_exact && program.slots[slot_of(launch, i)].dtype != DType::f32) return false;
  }
  return true;
}

bool is_matmul(const Program& program, size_t index) {
  return index < program.launches.size() && program.launches[index].kernel == Kernel::matmul &&
         all_f32(program, program.launches[index]);
}

// A matmul on the same activations, which it leaves as they are.
bool joins(const Program& program, size_t first, size_t index) {
  return is_matmul(program, index) &&
         slot_of(program.launches[index], 0) == slot_of(program.launches[first], 0) &&
         slot_of(program.launches[index], 2) != slot_of(program.launches[first], 0);
}

bool is(const Program& program, size_t index, Kernel kernel) {
  return index < program.launches.size() && program.launches[index].kernel == kernel &&
         all_f32(program, program.launches[index]);
}

// swiglu of what the two products before it gave in their argument `y`.
bool gates(const Program& program, size_t index, size_t y) {
  if (!is(program, index, Kernel::swiglu)) return false;
  const Launch& gate = program.launches[index - 2];
  const Launch& up = program.launches[index - 1];
  const Launch& swiglu = program.launches[index];
  return slot_of(swiglu, 0) == slot_of(gate, y) && slot_of(swiglu, 1) == slot_of(up, y) &&
         slot_of(swiglu, 2) != slot_of(gate, 0);
}

// add of what the matmul before it gave.
bool adds(const Program& program, size_t index) {
  if (!is(program, index, Kernel::add)) return false;
  const Launch& matmul = program.launches[index - 1];
  const Launch& add = program.launches[index];
  return add.args.size() == 2 && slot_of(add, 1) == slot_of(matmul, 2) &&
         slot_of(add, 0) != slot_of(matmul, 0) && slot_of(add, 0) != slot_of(matmul, 2);
}

// Two products of the same experts with the same activations, or one and the sum over them.
size_t fused_experts(const Program& program, size_t first) {
  const Launch& product = program.launches[first];
  const auto same = [&](size_t arg) {
    return slot_of(program.launches[first + 1], arg) == slot_of(product, arg);
  };
  if (slot_of(product, 3) == slot_of(product, 0)) return 1;
  if (is(program, first + 1, Kernel::expert_matmul) && same(0) && same(2) && !same(3) &&
      slot_of(program.launches[first + 1], 3) != slot_of(product, 0) &&
      gates(program, first + 2, 3))
    return 3;
  if (!is(program, first + 1, Kernel::mix_experts)) return 1;
  const Launch& mix = program.launches[first + 1];
  const bool is_apart =
      slot_of(mix, 2) != slot_of(product, 0) && slot_of(mix, 2) != slot_of(product, 3);
  return slot_of(mix, 0) == slot_of(product, 3) && is_apart ? 2 : 1;
}

void run_fused_experts(std::span<const Operation> operations) {
  const Operation& first = operations.front();
  const Operation& last = operations.back();
  std::array<MatmulTarget, 2> targets = {expert_target(first)};
  ExpertGroup group = expert_group(first);
  if (last.kernel == Kernel::swiglu) {
    targets[1] = expert_target(operations[1]);
    group.gated = last.data(2);
    group.activation = last.shape.activation;
  } else {
    group.weights = last.data(1);
    group.mixed = last.data(2);
  }
  group.targets = std::span(targets).first(last.kernel == Kernel::swiglu ? 2 : 1);
  *first.experts_read = multiply_experts(group, first.pool, first.loops);
}

}  // namespace

size_t fused_launches(const Program& program, size_t first) {
  if (is(program, first, Kernel::expert_matmul)) return fused_experts(program, first);
  if (!is_matmul(program, first) ||
      slot_of(program.launches[first], 2) == slot_of(program.launches[first], 0))
    return 1;
  size_t matmuls = 1;
  while (matmuls < kMostFused && joins(program, first, first + matmuls)) ++matmuls;
  if (matmuls == 2 && gates(program, first + 2, 2)) return 3;
  if (matmuls == 1 && adds(program, first + 1)) return 2;
  return matmuls;
}

void run_fused(std::span<const Operation> operations) {
  const Operation& first = operations.front();
  if (first.kernel == Kernel::expert_matmul) return run_fused_experts(operations);
  const Operation& last = operations.back();
  MatmulGroup group{first.data(0), first.call.rows, first.args[1].cols, {}, takes_blocks(first)};
  std::array<MatmulTarget, kMostFused> targets;
  size_t matmuls = 0;
  for (const Operation& op : operations)
    if (op.kernel == Kernel::matmul) targets[matmuls++] = matmul_target(op);
  group.targets = std::span(targets).first(matmuls);
  if (last.kernel == Kernel::add) {
    group.epilogue = Epilogue::add;
    group.other = last.data(0);
  } else if (last.kernel == Kernel::swiglu) {
    group.epilogue = Epilogue::swiglu;
    group.other = last.data(2);
    group.activation = last.shape.activation;
  }
  multiply(group, first.pool, first.loops);
}

namespace {

bool type_fits(ArgKind kind, DType type) {
  if (kind == ArgKind::ids) return type == DType::i32;
  if (kind == ArgKind::integers) return type == DType::i32 || type == DType::i8;
  if (kind == ArgKind::matrix) return type != DType::i32;
  if (kind == ArgKind::cache) return is_float(type) || type == DType::q8_0;
  if (kind == ArgKind::state) return type == DType::f32;
  return is_float(type);
}

bool is_exact(ArgKind kind) {
  return kind == ArgKind::ids || kind == ArgKind::matrix || kind == ArgKind::integers;
}

// Rows whose values follow each other, wherever each row begins.
bool has_whole_rows(const Pattern& pattern, uint64_t cols) {
  const Pattern simple = simplified(pattern);
  return simple.is_contiguous() ||
         (simple.dims.size() == 2 && simple.dims[1] == Pattern::Dim{cols, 1});
}

uint64_t row_stride(const Slot& slot, const Pattern& simple) {
  const bool is_apart = !simple.is_contiguous();
  return row_bytes(slot.dtype, is_apart ? simple.dims[0].stride : slot.cols);
}

void check_cache(const Program& program, const Launch& launch, size_t first,
                 const std::string& where) {
  const LaunchShape& shape = launch.shape;
  const Slot& k = program.slots[launch.args[first].slot];
  const Slot& v = program.slots[launch.args[first + 1].slot];
  if (k.dtype != v.dtype || k.cols != shape.head_dim || v.cols != shape.head_dim)
    fail_input(where, "{}: the two caches differ", launch.name);
  if (shape.head_dim % info(k.dtype).block_values != 0)
    fail_input(where, "{}: head_dim {} does not fill whole blocks of a {} cache", launch.name,
               shape.head_dim, info(k.dtype).name);
  if (shape.kv_group > 1 && info(k.dtype).block_values > 1)
    fail_input(where, "{}: a {} cache cannot have heads in groups", launch.name,
               info(k.dtype).name);
  if (shape.page % kSplitPositions != 0)
    fail_input(where, "{}: pages of {} positions are not multiples of {}", launch.name, shape.page,
               kSplitPositions);
  if (shape.page > 0 && k.dtype == DType::bf16)
    fail_input(where, "{}: a bf16 cache cannot be in pages", launch.name);
}

void check_launch(const Program& program, const Launch& launch, const std::string& where) {
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Slot& slot = program.slots[launch.args[i].slot];
    const ArgSpec arg = arg_spec(launch, i);
    if (!type_fits(arg.kind, slot.dtype))
      fail_input(where, "{}: slot {} cannot be {}", launch.name, slot.name, info(slot.dtype).name);
    const bool takes_i8 = launch.kernel == Kernel::matmul_i8 || launch.kernel == Kernel::matmul_q8;
    if (slot.dtype == DType::i8 && !takes_i8)
      fail_input(where, "{}: slot {} cannot be i8", launch.name, slot.name);
    if (arg.writes != launch.args[i].writes)
      fail_input(where, "{}: slot {} has a wrong writes flag", launch.name, slot.name);
    if (arg.writes && slot.kind == SlotKind::weight)
      fail_input(where, "{}: writes the weight {}", launch.name, slot.name);
  }
  const LaunchShape& shape = launch.shape;
  const size_t cache = cache_arg(launch);
  const bool has_heads =
      cache != kNoArg || launch.kernel == Kernel::rope || launch.kernel == Kernel::prompt_attention;
  if (has_heads && (shape.head_dim == 0 || shape.head_dim % 2 != 0 || shape.head_dim > kMaxHeadDim))
    fail_input(where, "{}: head_dim {} is not usable", launch.name, shape.head_dim);
  const bool shares_heads = cache != kNoArg || launch.kernel == Kernel::prompt_attention;
  if (shares_heads && shape.kv_heads == 0)
    fail_input(where, "{}: {} heads share none", launch.name, shape.heads);
  if (cache != kNoArg) check_cache(program, launch, cache, where);
}

// Values of one argument that a call reads or writes, seen as runs of equal length and stride. The
// widened copy holds the runs back to back.
struct Extent {
  size_t runs = 1;
  size_t values = 0;  // per run
  size_t stride = 0;  // values from one run to the next in storage
  size_t first = 0;   // value in storage where the first run begins
};

uint64_t end_row(const Segment& segment) {
  return uint64_t{segment.first_row} + segment.rows;
}

uint64_t gathered_end(const Call& call) {
  uint64_t end = 0;
  for (const Segment& segment : call.segments()) end = std::max(end, end_row(segment));
  return end;
}

// A cache is only widened where it is one piece, which holds one sequence.
Extent extent_of(const Slot& slot, const Launch& launch, const ArgSpec& arg, const Call& call) {
  if (arg.kind == ArgKind::vector) return {1, slot.cols, 0, 0};
  if (arg.kind == ArgKind::rows) return {1, call.rows * slot.cols, 0, 0};
  if (arg.kind == ArgKind::gathered) return {1, gathered_end(call) * slot.cols, 0, 0};
  const LaunchShape& shape = launch.shape;
  const size_t stride = size_t{shape.context} * shape.head_dim;
  if (arg.writes)
    return {shape.kv_heads, size_t{call.rows} * shape.head_dim, stride,
            size_t{call.only.position} * shape.head_dim};
  return {shape.kv_heads, size_t{call.only.end()} * shape.head_dim, stride, 0};
}

constexpr size_t kGrain = 16384;

// Values [begin, end) of a slot from where its pattern puts them, and back.
void gather(const InnerLoops& loops, const Slot& slot, const Pattern& pattern,
            const std::byte* storage, uint64_t begin, uint64_t end, float* out) {
  const uint64_t width = row_bytes(slot.dtype, 1);
  const auto visit = [&](const Stretch& stretch) {
    float* target = out + (stretch.first - begin);
    const std::byte* source = storage + stretch.at * width;
    if (stretch.stride == 1) return loops.widen(slot.dtype, source, target, stretch.count);
    for (uint64_t i = 0; i < stretch.count; ++i)
      loops.widen(slot.dtype, source + i * stretch.stride * width, target + i, 1);
  };
  for_each_stretch(pattern, begin, end, std::cref(visit));  // a reference: nothing is allocated
}

void scatter(const InnerLoops& loops, const Slot& slot, const Pattern& pattern, const float* in,
             uint64_t begin, uint64_t end, std::byte* storage) {
  const uint64_t width = row_bytes(slot.dtype, 1);
  const auto visit = [&](const Stretch& stretch) {
    const float* source = in + (stretch.first - begin);
    std::byte* target = storage + stretch.at * width;
    if (stretch.stride == 1) return loops.narrow(slot.dtype, source, target, stretch.count);
    for (uint64_t i = 0; i < stretch.count; ++i)
      loops.narrow(slot.dtype, source + i, target + i * stretch.stride * width, 1);
  };
  for_each_stretch(pattern, begin, end, std::cref(visit));
}

// Why a segment's positions are not all in a cache.
std::optional<std::string> position_problem(const Program& program, const Launch& launch,
                                            const Segment& segment) {
  const LaunchShape& shape = launch.shape;
  const uint64_t positions = uint64_t{segment.position} + segment.rows;
  if (shape.page == 0 && positions > shape.context)
    return fmt::format("{}: position {} of {}", launch.name, positions, shape.context);
  if (shape.page == 0) return std::nullopt;
  const uint64_t needed = (positions + shape.page - 1) / shape.page;
  const uint64_t there = program.slots[launch.args[cache_arg(launch)].slot].rows /
                         (uint64_t{shape.kv_heads} * shape.page);
  const std::span<const uint32_t> pages = segment.pages_of(shape.window);
  if (pages.size() < needed)
    return fmt::format("{}: {} positions in {} pages", launch.name, positions, pages.size());
  const bool is_passed = shape.window > 0 && segment.position >= shape.window;
  const uint64_t first = is_passed ? (segment.position + 1 - shape.window) / shape.page : 0;
  for (uint64_t i = first; i < needed; ++i)
    if (pages[i] >= there) return fmt::format("{}: page {} of {}", launch.name, pages[i], there);
  return std::nullopt;
}

// Why a segment's states are not all there.
std::optional<std::string> state_problem(const Program& program, const Launch& launch,
                                         const Segment& segment) {
  const uint64_t there =
      program.slots[launch.args[state_arg(launch)].slot].rows / launch.shape.state_rows;
  const auto is_there = [&](uint32_t state) { return state < there; };
  if (segment.state_from != kNoState && !is_there(segment.state_from))
    return fmt::format("{}: state {} of {}", launch.name, segment.state_from, there);
  if (!is_there(segment.state_to))
    return fmt::format("{}: state {} of {}", launch.name, segment.state_to, there);
  uint32_t before = 0;
  for (const KeptState& kept : segment.kept) {
    if (!is_there(kept.state))
      return fmt::format("{}: state {} of {}", launch.name, kept.state, there);
    if (kept.rows <= before || kept.rows >= segment.rows)
      return fmt::format("{}: a state after row {} of {}", launch.name, kept.rows, segment.rows);
    before = kept.rows;
  }
  return std::nullopt;
}

// Why a kernel that tells sequences apart cannot take a call's segments.
std::optional<std::string> segment_problem(const Program& program, const Launch& launch,
                                           const Call& call) {
  const bool is_prompt = launch.kernel == Kernel::prompt_attention;
  const bool has_cache = cache_arg(launch) != kNoArg, has_state = state_arg(launch) != kNoArg;
  if (!is_prompt && !has_cache && !has_state) return std::nullopt;
  const bool takes_several = has_state || (has_cache && launch.shape.page > 0);
  if (call.segments().size() > 1 && !takes_several)
    return fmt::format("{}: {} sequences at once", launch.name, call.segments().size());
  for (const Segment& segment : call.segments()) {
    if (end_row(segment) > call.rows)
      return fmt::format("{}: row {} of a call of {}", launch.name, end_row(segment), call.rows);
    if (is_prompt && segment.position != 0)
      return fmt::format("{}: a prompt from position {}", launch.name, segment.position);
    if (has_state)
      if (auto problem = state_problem(program, launch, segment)) return problem;
    if (!has_cache) continue;
    if (auto problem = position_problem(program, launch, segment)) return problem;
  }
  return std::nullopt;
}

}  // namespace

void check_launches(const Program& program, const std::string& where) {
  try {
    check(program);
  } catch (const Error& error) {
    fail_input(where, "{}", error.what());
  }
  for (const Launch& launch : program.launches) check_launch(program, launch, where);
}

std::optional<std::string> pattern_problem(const Program& program, size_t slot,
                                           const Pattern& pattern) {
  if (simplified(pattern).is_contiguous()) return std::nullopt;
  for (const Launch& launch : program.launches)
    for (size_t i = 0; i < launch.args.size(); ++i) {
      if (launch.args[i].slot != slot) continue;
      const ArgKind kind = arg_spec(launch, i).kind;
      if (kind == ArgKind::matrix && has_whole_rows(pattern, program.slots[slot].cols)) continue;
      const bool has_blocks = info(program.slots[slot].dtype).block_values > 1;
      if (is_exact(kind) || has_blocks)
        return fmt::format("is not contiguous, as {} needs it", launch.name);
    }
  return std::nullopt;
}

Interpreter::Interpreter(const Program& program, const std::vector<Pattern>& patterns,
                         const InnerLoops& loops)
    : program_(program), loops_(loops), packed_(program.slots.size()), widened_(kMostArgs) {
  TYTO_ASSERT(patterns.empty() || patterns.size() == program.slots.size());
  patterns_.resize(program.slots.size());
  for (size_t i = 0; i < patterns.size(); ++i) patterns_[i] = simplified(patterns[i]);
  for (const Launch& launch : program.launches) compiled_.push_back(compile(launch));
  groups_ = find_groups();
  fused_operations_.reserve(kMostFused);
  unread_bytes_.resize(groups_.size());
}

Interpreter::Compiled Interpreter::compile(const Launch& launch) const {
  Compiled result;
  result.launch = &launch;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const uint16_t slot = launch.args[i].slot;
    result.args.push_back({slot, arg_spec(launch, i), is_widened(launch, i),
                           row_bytes(program_.slots[slot].dtype, patterns_[slot].offset)});
  }
  result.has_matrix = launch.args.size() > 1 && result.args[1].spec.kind == ArgKind::matrix;
  if (result.has_matrix) {
    const uint16_t matrix = launch.args[1].slot;
    result.matrix_stride = row_stride(program_.slots[matrix], patterns_[matrix]);
  }
  const size_t cache = cache_arg(launch);
  result.widens_cache = cache != kNoArg && result.args[cache].is_widened;
  result.counts_experts = launch.kernel == Kernel::expert_matmul;
  if (result.counts_experts) result.expert_bytes = expert_bytes(program_, launch);
  return result;
}

// f32, and f16 and q8_0 caches, are computed on in place where they lie in one piece; a matrix is
// widened by its kernel.
bool Interpreter::is_widened(const Launch& launch, size_t arg) const {
  const ArgKind kind = arg_spec(launch, arg).kind;
  const uint16_t slot = launch.args[arg].slot;
  const DType type = program_.slots[slot].dtype;
  if (is_exact(kind)) return false;
  if (!patterns_[slot].is_contiguous()) return true;
  return type != DType::f32 && (kind != ArgKind::cache || type == DType::bf16);
}

std::byte* Interpreter::begin_of(size_t slot, std::span<std::byte* const> buffers) const {
  return buffers[slot] + row_bytes(program_.slots[slot].dtype, patterns_[slot].offset);
}

std::optional<std::string> Interpreter::why_not(std::span<std::byte* const> buffers,
                                                const Call& call) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i] == nullptr) return fmt::format("slot {} has no buffer", program_.slots[i].name);
    if (reinterpret_cast<uintptr_t>(buffers[i]) % 4 != 0)
      return fmt::format("slot {} is not at a multiple of 4 bytes", program_.slots[i].name);
  }
  if (call.rows == 0) return "a call of no rows";
  uint64_t rows_of_all = 0;
  for (const Segment& segment : call.segments()) rows_of_all += segment.rows;
  if (rows_of_all != call.rows)
    return fmt::format("segments of {} rows in a call of {}", rows_of_all, call.rows);
  for (const Launch& launch : program_.launches) {
    for (size_t i = 0; i < launch.args.size(); ++i) {
      const Slot& slot = program_.slots[launch.args[i].slot];
      const ArgKind kind = arg_spec(launch, i).kind;
      const uint64_t end = kind == ArgKind::gathered ? gathered_end(call) : call.rows;
      const bool per_row = kind == ArgKind::rows || kind == ArgKind::gathered ||
                           kind == ArgKind::ids || kind == ArgKind::integers;
      if (per_row && end > slot.rows)
        return fmt::format("{}: row {} of slot {}, which has {}", launch.name, end, slot.name,
                           slot.rows);
    }
    if (auto problem = segment_problem(program_, launch, call)) return problem;
    if (launch.kernel != Kernel::embed) continue;
    const int32_t* ids = reinterpret_cast<const int32_t*>(begin_of(launch.args[0].slot, buffers));
    const uint64_t rows = program_.slots[launch.args[1].slot].rows;
    for (uint32_t t = 0; t < call.rows; ++t)
      if (ids[t] < 0 || static_cast<uint64_t>(ids[t]) >= rows)
        return fmt::format("{}: token {} is not in a table of {}", launch.name, ids[t], rows);
  }
  return std::nullopt;
}

// The argument as its kernel takes it.
Operand Interpreter::load(const Compiled& compiled, size_t arg, std::byte* storage,
                          const Call& call, ThreadPool& pool) {
  const Argument& argument = compiled.args[arg];
  const Slot& slot = program_.slots[argument.slot];
  if (!argument.is_widened) return {storage + argument.offset, slot.dtype, slot.rows, slot.cols};
  const Pattern& pattern = patterns_[argument.slot];
  const Extent extent = extent_of(slot, *compiled.launch, argument.spec, call);
  std::vector<float>& values = widened_[arg];
  if (values.size() < extent.runs * extent.values) values.resize(extent.runs * extent.values);
  const Operand wide{reinterpret_cast<std::byte*>(values.data()), DType::f32, slot.rows, slot.cols};
  if (!argument.spec.reads) return wide;
  for (size_t run = 0; run < extent.runs; ++run) {
    const uint64_t first = extent.first + run * extent.stride;
    float* out = values.data() + run * extent.values;
    pool.parallel_for(extent.values, kGrain, [&](size_t begin, size_t end) {
      gather(loops_, slot, pattern, storage, first + begin, first + end, out + begin);
    });
  }
  return wide;
}

void Interpreter::store(const Compiled& compiled, size_t arg, std::byte* storage, const Call& call,
                        ThreadPool& pool) {
  const Argument& argument = compiled.args[arg];
  if (!argument.spec.writes || !argument.is_widened) return;
  const Slot& slot = program_.slots[argument.slot];
  const Extent extent = extent_of(slot, *compiled.launch, argument.spec, call);
  for (size_t run = 0; run < extent.runs; ++run) {
    const uint64_t first = extent.first + run * extent.stride;
    const float* in = widened_[arg].data() + run * extent.values;
    pool.parallel_for(extent.values, kGrain, [&](size_t begin, size_t end) {
      scatter(loops_, slot, patterns_[argument.slot], in + begin, first + begin, first + end,
              storage);
    });
  }
}

Operation Interpreter::operation(const Compiled& compiled, std::span<std::byte* const> buffers,
                                 const Call& call, ThreadPool& pool, Numerics numerics) {
  const Launch& launch = *compiled.launch;
  Operation result{launch.kernel, launch.shape, call, pool, loops_, numerics, launch.args.size()};
  result.experts_read = &experts_read_;
  if (compiled.has_matrix) {
    result.matrix_stride = compiled.matrix_stride;
    result.packed = packed_[compiled.args[1].slot];  // null unless it is a product
  }
  for (size_t i = 0; i < compiled.args.size(); ++i)
    result.args[i] = load(compiled, i, buffers[compiled.args[i].slot], call, pool);
  return result;
}

// Launches that run as one must find their arguments where they lie.
std::vector<LaunchGroup> Interpreter::find_groups() const {
  std::vector<LaunchGroup> groups;
  for (size_t first = 0; first < program_.launches.size(); first += groups.back().count) {
    LaunchGroup group{first, fused_launches(program_, first)};
    for (size_t i = first; i < first + group.count; ++i)
      if (std::ranges::any_of(compiled_[i].args, &Argument::is_widened)) group.count = 1;
    groups.push_back(group);
  }
  return groups;
}

std::span<const Operation> Interpreter::operations(const LaunchGroup& group,
                                                   std::span<std::byte* const> buffers,
                                                   const Call& call, ThreadPool& pool,
                                                   Numerics numerics) {
  fused_operations_.clear();
  for (size_t i = group.first; i < group.first + group.count; ++i)
    fused_operations_.push_back(operation(compiled_[i], buffers, call, pool, numerics));
  return fused_operations_;
}

// Rounds the widened values in blocks of positions, the last of which has rows that the call does
// not attend to.
void Interpreter::share_exponents(const Compiled& compiled, std::byte* storage, const Call& call) {
  constexpr size_t kValues = 2;
  const Argument& argument = compiled.args[kValues];
  const LaunchShape& shape = compiled.launch->shape;
  const size_t dim = shape.head_dim, end = call.only.end(), context = shape.context;
  std::vector<float> rows(kBfp16Block * dim);
  for (size_t head = 0; head < shape.kv_heads; ++head)
    for (size_t first = 0; first < end; first += kBfp16Block) {
      const size_t begin = head * context + first;
      const size_t count = std::min(kBfp16Block, context - first);
      const size_t attended = std::min(kBfp16Block, end - first);
      gather(loops_, program_.slots[argument.slot], patterns_[argument.slot], storage, begin * dim,
             (begin + count) * dim, rows.data());
      float* const out = widened_[kValues].data() + (head * end + first) * dim;
      for (size_t i = 0; i < dim; ++i) {
        float block[kBfp16Block] = {};
        for (size_t row = 0; row < count; ++row) block[row] = rows[row * dim + i];
        round_to_bfp16(block, count);
        for (size_t row = 0; row < attended; ++row) out[row * dim + i] = block[row];
      }
    }
}

void Interpreter::run_alone(const Compiled& compiled, std::span<std::byte* const> buffers,
                            const Call& call, ThreadPool& pool, Numerics numerics) {
  Operation made = operation(compiled, buffers, call, pool, numerics);
  // A widened cache holds just the positions of this call, each head's run after the other's.
  if (compiled.widens_cache) {
    const bool appends = made.kernel == Kernel::kv_append;
    made.shape.context = appends ? call.rows : call.only.end();
    if (appends) made.call.only.position = 0;
    if (made.kernel == Kernel::attention && numerics == Numerics::bfp16_cache && call.rows == 1)
      share_exponents(compiled, buffers[compiled.args[2].slot], call);
  }
  cpu::run(made);
  for (size_t i = 0; i < compiled.args.size(); ++i)
    store(compiled, i, buffers[compiled.args[i].slot], call, pool);
}

// The experts that a call's rows could have taken and did not. Those that run together are read
// together.
uint64_t Interpreter::unread_bytes(const LaunchGroup& group, const Call& call) const {
  uint64_t bytes = 0;
  for (size_t i = group.first; i < group.first + group.count; ++i)
    if (const Compiled& compiled = compiled_[i]; compiled.counts_experts)
      bytes +=
          (most_experts(program_, *compiled.launch, call) - experts_read_) * compiled.expert_bytes;
  return bytes;
}

void Interpreter::run(std::span<std::byte* const> buffers, const Call& call, ThreadPool& pool,
                      Numerics numerics, std::span<uint64_t> ends_ns) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].count > 1)
      run_fused(operations(groups_[i], buffers, call, pool, numerics));
    else
      run_alone(compiled_[groups_[i].first], buffers, call, pool, numerics);
    if (!ends_ns.empty()) ends_ns[i] = now_ns();
    unread_bytes_[i] = unread_bytes(groups_[i], call);
  }
}

}  // namespace tyto::cpu
