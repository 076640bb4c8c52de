#include "device/cpu/interpreter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "device/cpu/fused_launches.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/operations.h"
#include "program/kernel_spec.h"

namespace tyto::cpu {
namespace {

// What an argument is to its kernel, and so which of its rows a call touches.
enum class Role : uint8_t {
  none,
  ids,       // i32, one per token
  matrix,    // a weight, read in its own type
  vector,    // one row of values
  rows,      // a row of values per token
  gathered,  // the rows from first_row on
  cache,     // [kv_heads, context, head_dim]
  integers,  // a row per token, i8 or i32
};

struct ArgRole {
  Role role = Role::none;
  bool reads = false;
  bool writes = false;
};

constexpr ArgRole kIds{Role::ids, true, false}, kMatrix{Role::matrix, true, false},
    kVector{Role::vector, true, false}, kIn{Role::rows, true, false}, kOut{Role::rows, false, true},
    kInOut{Role::rows, true, true}, kGathered{Role::gathered, true, false},
    kCacheIn{Role::cache, true, false}, kCacheOut{Role::cache, false, true},
    kIntegersIn{Role::integers, true, false}, kIntegersOut{Role::integers, false, true};

using Roles = std::array<ArgRole, 4>;

constexpr std::array<Roles, 14> kRoles = {{
    {kIds, kMatrix, kOut},                 // embed
    {kVector, kOut},                       // rope_table
    {kIn, kVector, kOut},                  // rmsnorm
    {kIn, kMatrix, kOut, kVector},         // matmul
    {kInOut, kIn},                         // rope
    {kIn, kIn, kCacheOut, kCacheOut},      // kv_append
    {kIn, kCacheIn, kCacheIn, kOut},       // attention
    {kInOut, kIn},                         // add
    {kIn, kIn, kOut},                      // swiglu
    {kGathered, kOut},                     // gather_rows
    {kIn, kOut},                           // cast
    {kIn, kIn, kIn, kOut},                 // prompt_attention
    {kIntegersIn, kMatrix, kIntegersOut},  // matmul_i8
    {kIn, kMatrix, kVector, kOut},         // matmul_q8
}};
constexpr Roles kOutOfPlace = {kIn, kIn, kOut};  // add and rope with a third argument

const ArgRole& role_of(const Launch& launch, size_t arg) {
  const bool may_be_in_place = launch.kernel == Kernel::add || launch.kernel == Kernel::rope;
  if (may_be_in_place && launch.args.size() == 3) return kOutOfPlace[arg];
  return kRoles[static_cast<size_t>(launch.kernel)][arg];
}

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

bool type_fits(Role role, DType type) {
  if (role == Role::ids) return type == DType::i32;
  if (role == Role::integers) return type == DType::i32 || type == DType::i8;
  if (role == Role::matrix) return type != DType::i32;
  if (role == Role::cache) return is_float(type) || type == DType::q8_0;
  return is_float(type);
}

bool is_exact(Role role) {
  return role == Role::ids || role == Role::matrix || role == Role::integers;
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

void check_launch(const Program& program, const Launch& launch, const std::string& where) {
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Slot& slot = program.slots[launch.args[i].slot];
    const ArgRole& role = role_of(launch, i);
    if (!type_fits(role.role, slot.dtype))
      fail_input(where, "{}: slot {} cannot be {}", launch.step, slot.name, info(slot.dtype).name);
    const bool takes_i8 = launch.kernel == Kernel::matmul_i8 || launch.kernel == Kernel::matmul_q8;
    if (slot.dtype == DType::i8 && !takes_i8)
      fail_input(where, "{}: slot {} cannot be i8", launch.step, slot.name);
    if (role.writes != launch.args[i].writes)
      fail_input(where, "{}: slot {} has a wrong writes flag", launch.step, slot.name);
    if (role.writes && slot.kind == SlotKind::weight)
      fail_input(where, "{}: writes the weight {}", launch.step, slot.name);
  }
  const LaunchShape& shape = launch.shape;
  const bool has_cache = launch.kernel == Kernel::attention || launch.kernel == Kernel::kv_append;
  const bool has_heads =
      has_cache || launch.kernel == Kernel::rope || launch.kernel == Kernel::prompt_attention;
  if (has_heads && (shape.head_dim == 0 || shape.head_dim % 2 != 0 || shape.head_dim > kMaxHeadDim))
    fail_input(where, "{}: head_dim {} is not usable", launch.step, shape.head_dim);
  if (!has_cache) return;
  const size_t first = launch.kernel == Kernel::attention ? 1 : 2;
  const Slot& k = program.slots[launch.args[first].slot];
  const Slot& v = program.slots[launch.args[first + 1].slot];
  if (k.dtype != v.dtype || k.cols != shape.head_dim || v.cols != shape.head_dim)
    fail_input(where, "{}: the two caches differ", launch.step);
  if (shape.head_dim % info(k.dtype).block_values != 0)
    fail_input(where, "{}: head_dim {} does not fill whole blocks of a {} cache", launch.step,
               shape.head_dim, info(k.dtype).name);
  if (shape.kv_group > 1 && info(k.dtype).block_values > 1)
    fail_input(where, "{}: a {} cache cannot have heads in groups", launch.step,
               info(k.dtype).name);
}

// Values of one argument that a call reads or writes, seen as runs of equal length and stride. The
// widened copy holds the runs back to back.
struct Extent {
  size_t runs = 1;
  size_t values = 0;  // per run
  size_t stride = 0;  // values from one run to the next in storage
  size_t first = 0;   // value in storage where the first run begins
};

Extent extent_of(const Slot& slot, const Launch& launch, Role role, bool writes, const Call& call) {
  if (role == Role::vector) return {1, slot.cols, 0, 0};
  if (role == Role::rows) return {1, call.tokens * slot.cols, 0, 0};
  if (role == Role::gathered) return {1, (size_t{call.first_row} + call.tokens) * slot.cols, 0, 0};
  const LaunchShape& shape = launch.shape;
  const size_t stride = size_t{shape.context} * shape.head_dim;
  if (writes)
    return {shape.kv_heads, size_t{call.tokens} * shape.head_dim, stride,
            size_t{call.position} * shape.head_dim};
  return {shape.kv_heads, (size_t{call.position} + call.tokens) * shape.head_dim, stride, 0};
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

bool has_matrix(Kernel kernel) {
  return kernel == Kernel::embed || kernel == Kernel::matmul || kernel == Kernel::matmul_i8 ||
         kernel == Kernel::matmul_q8;
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
      const Role role = role_of(launch, i).role;
      if (role == Role::matrix && has_whole_rows(pattern, program.slots[slot].cols)) continue;
      const bool has_blocks = info(program.slots[slot].dtype).block_values > 1;
      if (is_exact(role) || has_blocks)
        return fmt::format("is strewn, and {} takes it whole", launch.step);
    }
  return std::nullopt;
}

Interpreter::Interpreter(const Program& program, const std::vector<Pattern>& patterns,
                         const InnerLoops& loops)
    : program_(program), loops_(loops), packed_(program.slots.size()) {
  TYTO_ASSERT(patterns.empty() || patterns.size() == program.slots.size());
  patterns_.resize(program.slots.size());
  for (size_t i = 0; i < patterns.size(); ++i) patterns_[i] = simplified(patterns[i]);
  for (const Launch& launch : program.launches) {
    Step step;
    step.launch = launch;
    for (const Arg& arg : launch.args) step.slots.push_back(arg.slot);
    for (size_t i = 0; i < launch.args.size(); ++i) {
      Slot slot = program.slots[launch.args[i].slot];
      if (is_widened(step, i)) slot.dtype = DType::f32;
      step.program.slots.push_back(std::move(slot));
      step.launch.args[i].slot = static_cast<uint16_t>(i);
    }
    steps_.push_back(std::move(step));
  }
  for (size_t i = 0; i < program.launches.size(); ++i) fused_.push_back(count_fused(i));
  fused_views_.resize(kMostFused);
  fused_operations_.reserve(kMostFused);
  widened_.resize(4);
  views_.resize(4);
}

// f32, and f16 and q8_0 caches, are computed on in place where they lie in one piece; a matrix is
// widened by its kernel.
bool Interpreter::is_widened(const Step& step, size_t arg) const {
  const Role role = role_of(step.launch, arg).role;
  const DType type = program_.slots[step.slots[arg]].dtype;
  if (is_exact(role)) return false;
  if (!patterns_[step.slots[arg]].is_contiguous()) return true;
  return type != DType::f32 && (role != Role::cache || type == DType::bf16);
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
  if (call.tokens == 0) return "a call of no tokens";
  for (const Launch& launch : program_.launches) {
    for (size_t i = 0; i < launch.args.size(); ++i) {
      const Slot& slot = program_.slots[launch.args[i].slot];
      const Role role = role_of(launch, i).role;
      const uint64_t end = uint64_t{role == Role::gathered ? call.first_row : 0} + call.tokens;
      const bool per_token = role == Role::rows || role == Role::gathered || role == Role::ids ||
                             role == Role::integers;
      if (per_token && end > slot.rows)
        return fmt::format("{}: row {} of slot {}, which has {}", launch.step, end, slot.name,
                           slot.rows);
      if (role == Role::cache && uint64_t{call.position} + call.tokens > launch.shape.context)
        return fmt::format("{}: position {} of {}", launch.step, call.position + call.tokens,
                           launch.shape.context);
    }
    if (launch.kernel != Kernel::embed) continue;
    const int32_t* ids = reinterpret_cast<const int32_t*>(begin_of(launch.args[0].slot, buffers));
    const uint64_t rows = program_.slots[launch.args[1].slot].rows;
    for (uint32_t t = 0; t < call.tokens; ++t)
      if (ids[t] < 0 || static_cast<uint64_t>(ids[t]) >= rows)
        return fmt::format("{}: token {} is not in a table of {}", launch.step, ids[t], rows);
  }
  return std::nullopt;
}

void Interpreter::load(const Step& step, size_t arg, std::byte* storage, const Call& call,
                       ThreadPool& pool) {
  const Slot& slot = program_.slots[step.slots[arg]];
  const Pattern& pattern = patterns_[step.slots[arg]];
  const ArgRole& role = role_of(step.launch, arg);
  views_[arg].data = storage + row_bytes(slot.dtype, pattern.offset);
  if (!is_widened(step, arg)) return;
  const Extent extent = extent_of(slot, step.launch, role.role, role.writes, call);
  std::vector<float>& values = widened_[arg];
  if (values.size() < extent.runs * extent.values) values.resize(extent.runs * extent.values);
  views_[arg].data = reinterpret_cast<std::byte*>(values.data());
  if (!role.reads) return;
  for (size_t run = 0; run < extent.runs; ++run) {
    const uint64_t first = extent.first + run * extent.stride;
    float* out = values.data() + run * extent.values;
    pool.parallel_for(extent.values, kGrain, [&](size_t begin, size_t end) {
      gather(loops_, slot, pattern, storage, first + begin, first + end, out + begin);
    });
  }
}

void Interpreter::store(const Step& step, size_t arg, std::byte* storage, const Call& call,
                        ThreadPool& pool) {
  const Slot& slot = program_.slots[step.slots[arg]];
  const ArgRole& role = role_of(step.launch, arg);
  if (!role.writes || !is_widened(step, arg)) return;
  const Extent extent = extent_of(slot, step.launch, role.role, true, call);
  for (size_t run = 0; run < extent.runs; ++run) {
    const uint64_t first = extent.first + run * extent.stride;
    const float* in = widened_[arg].data() + run * extent.values;
    pool.parallel_for(extent.values, kGrain, [&](size_t begin, size_t end) {
      scatter(loops_, slot, patterns_[step.slots[arg]], in + begin, first + begin, first + end,
              storage);
    });
  }
}

Operation Interpreter::operation(const Step& step, const Call& call,
                                 const std::vector<Buffer>& views, ThreadPool& pool,
                                 Numerics numerics) const {
  Operation result{step.program, step.launch, call, views, pool, loops_};
  result.numerics = numerics;
  const Kernel kernel = step.launch.kernel;
  if (!has_matrix(kernel)) return result;
  const size_t matrix = step.slots[1];
  result.matrix_stride = row_stride(program_.slots[matrix], patterns_[matrix]);
  if (kernel == Kernel::matmul) result.packed = packed_[matrix];
  return result;
}

// Launches that run as one must find their arguments where they lie.
size_t Interpreter::count_fused(size_t first) const {
  const size_t count = fused_launches(program_, first);
  for (size_t i = first; i < first + count; ++i)
    for (size_t arg = 0; arg < steps_[i].slots.size(); ++arg)
      if (is_widened(steps_[i], arg)) return 1;
  return count;
}

void Interpreter::run_together(size_t first, std::span<std::byte* const> buffers, const Call& call,
                               ThreadPool& pool, Numerics numerics) {
  fused_operations_.clear();
  for (size_t i = 0; i < fused_[first]; ++i) {
    const Step& step = steps_[first + i];
    for (size_t arg = 0; arg < step.slots.size(); ++arg)
      load(step, arg, buffers[step.slots[arg]], call, pool);
    fused_views_[i] = views_;
    fused_operations_.push_back(operation(step, call, fused_views_[i], pool, numerics));
  }
  run_fused(fused_operations_);
}

void Interpreter::run_alone(size_t index, std::span<std::byte* const> buffers, const Call& call,
                            ThreadPool& pool, Numerics numerics) {
  Step& step = steps_[index];
  for (size_t i = 0; i < step.slots.size(); ++i) load(step, i, buffers[step.slots[i]], call, pool);
  // A widened cache holds just the positions of this call, each head's run after the other's.
  Call local = call;
  const Kernel kernel = step.launch.kernel;
  const size_t cache = kernel == Kernel::kv_append ? 2 : 1;
  const bool has_cache = kernel == Kernel::kv_append || kernel == Kernel::attention;
  if (has_cache && is_widened(step, cache)) {
    step.launch.shape.context =
        kernel == Kernel::attention ? call.position + call.tokens : call.tokens;
    if (kernel == Kernel::kv_append) local.position = 0;
  }
  cpu::run(operation(step, local, views_, pool, numerics));
  step.launch.shape = program_.launches[index].shape;  // stores go by the whole cache again
  for (size_t i = 0; i < step.slots.size(); ++i) store(step, i, buffers[step.slots[i]], call, pool);
}

// A recording wants the time of each launch, so then none runs together with others; the results
// are the same bits.
void Interpreter::run(std::span<std::byte* const> buffers, const Call& call, ThreadPool& pool,
                      Numerics numerics, std::span<uint64_t> ends_ns) {
  for (size_t index = 0; index < steps_.size();) {
    const size_t count = ends_ns.empty() ? fused_[index] : 1;
    if (count > 1)
      run_together(index, buffers, call, pool, numerics);
    else
      run_alone(index, buffers, call, pool, numerics);
    if (!ends_ns.empty()) ends_ns[index] = now_ns();
    index += count;
  }
}

}  // namespace tyto::cpu
