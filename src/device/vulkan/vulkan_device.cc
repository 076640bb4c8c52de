#include "device/vulkan/vulkan_device.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "device/vulkan/kernel_shapes.h"
#include "program/kernels.h"
#include "trace/trace.h"

namespace tyto::vulkan {
namespace {

// Recordings are small, but every length of a prompt makes one.
constexpr size_t kMostRecordings = 64;

VkMemoryBarrier memory_barrier(VkAccessFlags from, VkAccessFlags to) {
  auto barrier = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = from;
  barrier.dstAccessMask = to;
  return barrier;
}

CallForm form_of(const Call& call) {
  const auto segments = call.segments();
  CallForm form{.rows = row_bucket(call.rows), .tiles = call_size(call, 0).tiles};
  form.has_single_rows =
      std::ranges::all_of(segments, [](const Segment& s) { return s.rows == 1; });
  if (form.rows <= kFewRows) form.tiles = 1;
  return form;
}

bool is_vector(const Program& program, uint16_t slot) {
  for (const Launch& launch : program.launches)
    for (size_t i = 0; i < launch.args.size(); ++i)
      if (launch.args[i].slot == slot && arg_spec(launch, i).kind == ArgKind::matrix) return false;
  return true;
}

std::vector<LaunchGroup> groups_of(const Lowered& lowered) {
  std::vector<LaunchGroup> groups;
  for (const Dispatch& dispatch : lowered.dispatches)
    if (groups.empty() || groups.back().first != dispatch.launches.first)
      groups.push_back(dispatch.launches);
  return groups;
}

}  // namespace

VulkanExecutable::VulkanExecutable(std::shared_ptr<Gpu> gpu, Program program,
                                   std::span<const TensorView> weights, Trace& trace)
    : gpu_(std::move(gpu)),
      program_(std::move(program)),
      trace_(trace),
      device_(trace.device_index("vulkan")),
      prepare_name_(trace.name({.label = "prepare kernels"})),
      weights_(program_.slots.size()),
      buffers_(program_.slots.size()),
      fence_(gpu_->context->new_fence()) {
  for (const Launch& launch : program_.launches) {
    if (cache_arg(launch) == kNoArg) continue;
    cache_launches_.push_back(&launch);
    page_ = launch.shape.page;
  }
  store_weights(weights);
  // Launches become at most a few dispatches; two more for both ends.
  query_count_ = static_cast<uint32_t>(4 * program_.launches.size() + 2);
  auto create = structure<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
  create.queryType = VK_QUERY_TYPE_TIMESTAMP;
  create.queryCount = query_count_;
  const Context& context = *gpu_->context;
  check(context.api.vkCreateQueryPool(context.device, &create, nullptr, &queries_),
        "making a query pool");
}

VulkanExecutable::~VulkanExecutable() {
  const Context& context = *gpu_->context;
  try {
    if (is_pending_) wait_for_fence(std::chrono::seconds(10));
  } catch (const Error&) {  // lost, so nothing of it can be given back
  }
  if (context.is_lost) return;
  forget_recordings();
  context.api.vkDestroyQueryPool(context.device, queries_, nullptr);
  context.api.vkDestroyFence(context.device, fence_, nullptr);
}

void VulkanExecutable::store_weights(std::span<const TensorView> weights) {
  for (uint16_t i = 0; i < program_.slots.size(); ++i) {
    if (program_.slots[i].kind != SlotKind::weight) continue;
    weights_[i] = is_vector(program_, i)
                      ? gpu_->weights.vector(weights[i])
                      : gpu_->weights.matrix(weights[i], weight_form(weights[i].dtype));
  }
  gpu_->transfers.finish();
}

void VulkanExecutable::bind(uint16_t slot, const Buffer& buffer) {
  TYTO_ASSERT(slot < buffers_.size() && program_.slots[slot].kind != SlotKind::weight);
  buffers_[slot] = buffer;
  forget_recordings();
}

void VulkanExecutable::forget_recordings() {
  const Context& context = *gpu_->context;
  for (auto& [form, recording] : recordings_)
    for (VkCommandBuffer commands : {recording.commands, recording.timed})
      if (commands != VK_NULL_HANDLE)
        context.api.vkFreeCommandBuffers(context.device, context.commands, 1, &commands);
  recordings_.clear();
}

uint64_t VulkanExecutable::address(Operand operand, const Recording& recording) const {
  if (operand == kNothing) return 0;
  if (operand == kCallData) return call_data_->address;
  const size_t slots = program_.slots.size();
  if (operand >= slots) return recording.temporaries[operand - slots]->address;
  return weights_[operand] ? weights_[operand]->address
                           : slot_memory(buffers_[operand]).memory.address;
}

// The commands for a call. The first call of a form makes them, and compiles the kernels that no
// form before it had: that time is neither an upload's nor the GPU's, so it is an event of its own.
VulkanExecutable::Recording& VulkanExecutable::recording_for(const Call& call) {
  const CallForm form = form_of(call);
  const uint64_t bytes = call_size(call, page_).words * sizeof(uint32_t);
  const bool has_room = call_data_ && call_data_->size >= bytes;
  is_timed_ = trace_.recording() && gpu_->context->facts.timestamp_ns > 0;
  const auto found = recordings_.find(form);
  if (has_room && found != recordings_.end() &&
      (!is_timed_ || found->second.timed != VK_NULL_HANDLE))
    return found->second;
  Span span(trace_, EventKind::host, prepare_name_, call.segments().front().position, call.rows);
  const uint64_t start = now_ns();
  if (!has_room) make_room_for_call(bytes);
  if (!recordings_.contains(form)) add_recording(form);
  Recording& recording = recordings_.at(form);
  if (is_timed_) recording.timed = record(recording, form, true);
  gpu_->pipelines.save();
  done_.preparing_ns = now_ns() - start;
  return recording;
}

// The buffer has room to grow: a recording holds its address.
void VulkanExecutable::make_room_for_call(uint64_t bytes) {
  forget_recordings();
  call_data_ = std::make_unique<Memory>(
      gpu_->context, std::bit_ceil(std::max<uint64_t>(bytes, 4096)), MemoryKind::host_write);
}

void VulkanExecutable::add_recording(const CallForm& form) {
  if (recordings_.size() >= kMostRecordings) forget_recordings();
  gpu_->transfers.finish();  // zeroes of new buffers
  Recording recording;
  recording.lowered = lower(program_, form, gpu_->context->facts);
  recording.groups = groups_of(recording.lowered);
  recording.names = launch_names(trace_, program_, recording.groups);
  // Dispatches that use temporaries run one after another, whichever recording they are of.
  for (size_t i = 0; i < recording.lowered.temporaries.size(); ++i) {
    if (temporaries_.size() <= i) temporaries_.emplace_back();
    if (!temporaries_[i] || temporaries_[i]->size < recording.lowered.temporaries[i]) {
      temporaries_[i] = std::make_shared<Memory>(gpu_->context, recording.lowered.temporaries[i],
                                                 MemoryKind::gpu);
      gpu_->transfers.zero(*temporaries_[i]);
      gpu_->transfers.finish();
    }
    recording.temporaries.push_back(temporaries_[i]);
  }
  recording.commands = record(recording, form, false);
  recordings_.emplace(form, std::move(recording));
}

VkCommandBuffer VulkanExecutable::record(const Recording& recording, const CallForm& form,
                                         bool is_timed) {
  Context& context = *gpu_->context;
  const Api& api = context.api;
  VkCommandBuffer commands = context.new_command_buffer();
  const auto begin =
      structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  check(api.vkBeginCommandBuffer(commands, &begin), "recording");
  const bool has_clock = context.facts.timestamp_ns > 0;
  if (has_clock) {
    api.vkCmdResetQueryPool(commands, queries_, 0, query_count_);
    api.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries_, 0);
  }
  // What earlier submissions wrote was made available by their fences; here it becomes visible.
  const VkMemoryBarrier before =
      memory_barrier(VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                     VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  api.vkCmdPipelineBarrier(
      commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &before, 0, nullptr, 0, nullptr);
  record_dispatches(commands, recording, is_timed);
  if (has_clock)
    api.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, 1);
  record_downloads(commands, form.rows);
  check(api.vkEndCommandBuffer(commands), "recording");
  return commands;
}

// A barrier only where a dispatch touches what one before it wrote, or writes what one before it
// read.
void VulkanExecutable::record_dispatches(VkCommandBuffer commands, const Recording& recording,
                                         bool is_timed) {
  const Context& context = *gpu_->context;
  const Api& api = context.api;
  std::set<Operand> read, written;
  VkPipeline bound = VK_NULL_HANDLE;
  uint32_t query = 2;
  for (const Dispatch& dispatch : recording.lowered.dispatches) {
    const auto writes = [&](Operand operand) {
      return std::ranges::find(dispatch.writes, operand) != dispatch.writes.end();
    };
    const bool must_wait = std::ranges::any_of(dispatch.operands, [&](Operand operand) {
      return written.contains(operand) || (writes(operand) && read.contains(operand));
    });
    if (must_wait) {
      const VkMemoryBarrier barrier = memory_barrier(
          VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
      api.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                               VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, nullptr, 0,
                               nullptr);
      read.clear();
      written.clear();
    }
    for (const Operand operand : dispatch.operands)
      if (operand < kCallData) (writes(operand) ? written : read).insert(operand);
    const VkPipeline pipeline = gpu_->pipelines.get(dispatch.kernel);
    if (pipeline != bound)
      api.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound = pipeline);
    std::byte constants[kPushConstantBytes];
    size_t used = 0;
    const auto put = [&](const auto& value) {
      TYTO_ASSERT(used + sizeof value <= sizeof constants);
      std::memcpy(constants + used, &value, sizeof value);
      used += sizeof value;
    };
    for (const Operand operand : dispatch.operands) put(address(operand, recording));
    for (const uint32_t value : dispatch.values) put(value);
    api.vkCmdPushConstants(commands, context.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                           static_cast<uint32_t>(used), constants);
    api.vkCmdDispatch(commands, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
    if (is_timed)
      api.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, query++);
  }
  TYTO_ASSERT(query <= query_count_);
}

// Outputs to where the host sees them, and what the host reads made visible to it.
void VulkanExecutable::record_downloads(VkCommandBuffer commands, uint32_t rows) {
  const Api& api = gpu_->context->api;
  VkMemoryBarrier before = memory_barrier(VK_ACCESS_SHADER_WRITE_BIT,
                                          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_HOST_READ_BIT);
  api.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                           VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                           &before, 0, nullptr, 0, nullptr);
  bool has_copied = false;
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.kind != SlotKind::output) continue;
    const SlotMemory& memory = slot_memory(buffers_[i]);
    if (!memory.mirror) continue;
    const VkBufferCopy region{
        0, 0, std::min<uint64_t>(rows, slot.rows) * row_bytes(slot.dtype, slot.cols)};
    api.vkCmdCopyBuffer(commands, memory.memory.buffer, memory.mirror->buffer, 1, &region);
    has_copied = true;
  }
  if (!has_copied) return;
  const VkMemoryBarrier after =
      memory_barrier(VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT);
  api.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0,
                           1, &after, 0, nullptr, 0, nullptr);
}

void VulkanExecutable::upload_inputs(const Call& call) {
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.kind != SlotKind::input && slot.kind != SlotKind::inout) continue;
    const uint64_t bytes =
        std::min<uint64_t>(call.rows, slot.rows) * row_bytes(slot.dtype, slot.cols);
    sync_slot(buffers_[i], Sync::to_device, 0, bytes);
    if (!gpu_->context->facts.has_host_memory) done_.uploaded_bytes += bytes;
  }
}

void VulkanExecutable::download_outputs() {
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.kind != SlotKind::output && slot.kind != SlotKind::inout) continue;
    const uint64_t bytes =
        std::min<uint64_t>(call_.rows, slot.rows) * row_bytes(slot.dtype, slot.cols);
    const bool is_recorded = slot.kind == SlotKind::output && slot_memory(buffers_[i]).mirror;
    if (!is_recorded) sync_slot(buffers_[i], Sync::from_device, 0, bytes);
    if (!gpu_->context->facts.has_host_memory) done_.downloaded_bytes += bytes;
  }
}

void VulkanExecutable::prepare(const Call& call) {
  TYTO_ASSERT(!is_pending_);
  recording_for(call);
}

void VulkanExecutable::submit(const Call& call) {
  TYTO_ASSERT(!is_pending_);
  done_ = {};
  call_ = call;
  transfers_before_ = gpu_->transfers.submissions();
  current_ = &recording_for(call);
  done_.start_ns = now_ns();
  write_call(call, page_,
             {reinterpret_cast<uint32_t*>(call_data_->mapped), call_size(call, page_).words});
  upload_inputs(call);
  done_.uploaded_ns = now_ns();
  gpu_->context->submit(is_timed_ ? current_->timed : current_->commands, fence_);
  is_pending_ = true;
  done_.submitted_ns = now_ns();
  done_.submitting_ns = done_.submitted_ns - done_.uploaded_ns;
}

// A thread that waits for the driver is woken some 20 us late, one that polls is busy all the time.
// A call takes about as long as the last of its form, so this naps nearly that long and polls the
// rest; a call that has ended earlier is found between two naps.
void VulkanExecutable::poll_fence(uint64_t timeout_ns) {
  const Context& context = *gpu_->context;
  constexpr uint64_t kPollNs = 150'000;
  const uint64_t start = done_.submitted_ns, expected = std::min(current_->device_ns, timeout_ns);
  if (nap_ns(0, expected) == 0) return;
  // Linux lets others sleep up to 50 us longer than they asked for.
  thread_local const int slack = ::prctl(PR_SET_TIMERSLACK, 1000UL);
  (void)slack;
  while (now_ns() < start + expected + kPollNs &&
         context.api.vkGetFenceStatus(context.device, fence_) == VK_NOT_READY) {
    const uint64_t nap = nap_ns(now_ns() - start, expected);
    if (nap == 0) continue;
    const timespec time{0, static_cast<long>(std::min<uint64_t>(nap, 999'999'999))};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
  }
}

void VulkanExecutable::wait_for_fence(std::chrono::milliseconds timeout) {
  Context& context = *gpu_->context;
  const auto limit =
      static_cast<uint64_t>(std::max<int64_t>(std::chrono::nanoseconds(timeout).count(), 0));
  poll_fence(limit);
  const uint64_t waited = std::min(limit, now_ns() - done_.submitted_ns);
  if (!context.wait(fence_, limit - waited)) {
    context.is_lost = true;
    throw Error(ErrorCode::device, "vulkan: " + program_.name,
                fmt::format("did not end within {} ms", timeout.count()),
                "the GPU is busy with something else, or hangs");
  }
  is_pending_ = false;
  check(context.api.vkResetFences(context.device, 1, &fence_), "resetting a fence");
}

void VulkanExecutable::read_timestamps() {
  const Context& context = *gpu_->context;
  if (context.facts.timestamp_ns == 0) {
    done_.device_ns = done_.completed_ns - done_.submitted_ns;
    return;
  }
  const auto& dispatches = current_->lowered.dispatches;
  const uint32_t count = is_timed_ ? static_cast<uint32_t>(dispatches.size()) + 2 : 2;
  std::vector<uint64_t> ticks(count);
  check(context.api.vkGetQueryPoolResults(context.device, queries_, 0, count,
                                          ticks.size() * sizeof(uint64_t), ticks.data(),
                                          sizeof(uint64_t), VK_QUERY_RESULT_64_BIT),
        "reading timestamps");
  const auto since_start = [&](uint64_t tick) {
    const uint64_t passed = ticks_between(ticks[0], tick, context.facts.timestamp_bits);
    return static_cast<uint64_t>(static_cast<double>(passed) * context.facts.timestamp_ns);
  };
  done_.device_ns = current_->device_ns = since_start(ticks[1]);
  if (!is_timed_) return;
  // On the host's clock: it ended when the host saw it end, at the latest.
  const uint64_t start = std::max(done_.submitted_ns, done_.completed_ns - done_.device_ns);
  std::vector<uint64_t> ends;
  for (size_t i = 0; i < dispatches.size(); ++i) {
    const uint64_t end = start + since_start(ticks[i + 2]);
    const bool is_same_group =
        i > 0 && dispatches[i].launches.first == dispatches[i - 1].launches.first;
    if (is_same_group)
      ends.back() = std::max(ends.back(), end);
    else
      ends.push_back(ends.empty() ? end : std::max(ends.back(), end));
  }
  record_launches(trace_, program_, current_->groups, current_->names, call_, device_, start, ends);
}

// A token has hundreds of launches, and the host waits for nothing else by then.
Cost VulkanExecutable::declared_cost() {
  if (current_->cost_rows != call_.rows) {
    current_->cost_rows = call_.rows;
    current_->cost = {};
    for (const Launch& launch : program_.launches)
      if (cache_arg(launch) == kNoArg) current_->cost += cost(program_, launch, call_);
  }
  Cost declared = current_->cost;
  for (const Launch* launch : cache_launches_) declared += cost(program_, *launch, call_);
  return declared;
}

Completion VulkanExecutable::wait(std::chrono::milliseconds timeout) {
  TYTO_ASSERT(is_pending_);
  const uint64_t waiting = now_ns();
  wait_for_fence(timeout);
  done_.completed_ns = now_ns();
  done_.waited_ns = done_.completed_ns - waiting;
  read_timestamps();
  download_outputs();
  const Cost declared = declared_cost();
  done_.bytes = declared.bytes;
  done_.flops = declared.flops;
  done_.launches = current_->lowered.dispatches.size();
  done_.submissions = 1 + gpu_->transfers.submissions() - transfers_before_;
  done_.end_ns = now_ns();
  return done_;
}

namespace {

constexpr uint64_t kHeaderWords = 8, kRowWords = 4;

uint32_t pages_of(const Segment& segment, uint32_t page) {
  return page == 0 ? 0 : (segment.end() + page - 1) / page;
}

}  // namespace

CallSize call_size(const Call& call, uint32_t page) {
  CallSize size;
  uint64_t pages = 0;
  for (const Segment& segment : call.segments()) {
    size.tiles += (segment.rows + kTileRows - 1) / kTileRows;
    pages += 2 * pages_of(segment, page);  // with those for windows
  }
  size.words = kHeaderWords + kRowWords * (call.segments().size() + call.rows + size.tiles) + pages;
  return size;
}

void write_call(const Call& call, uint32_t page, std::span<uint32_t> to) {
  const std::span<const Segment> segments = call.segments();
  const uint64_t segments_at = kHeaderWords + kRowWords * call.rows;
  const uint64_t tiles_at = segments_at + kRowWords * segments.size();
  uint64_t pages_at = tiles_at + kRowWords * call_size(call, page).tiles;
  uint32_t all_pages = 0;
  for (const Segment& segment : segments) all_pages += pages_of(segment, page);
  const bool has_window = !segments.front().window_pages.empty();
  const auto put = [&](uint64_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    to[at] = a, to[at + 1] = b, to[at + 2] = c, to[at + 3] = d;
  };
  put(0, call.rows, static_cast<uint32_t>(segments.size()), static_cast<uint32_t>(segments_at),
      static_cast<uint32_t>(tiles_at));
  put(4, has_window ? all_pages : 0, 0, 0, 0);
  uint64_t row_at = kHeaderWords, tile_at = tiles_at;
  uint32_t row = 0;  // the call's; gather_rows' result's where first_row is that of its source
  for (uint32_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    put(segments_at + kRowWords * i, segment.first_row, segment.rows, segment.position,
        static_cast<uint32_t>(pages_at));
    for (uint32_t t = 0; t < segment.rows; ++t, row_at += kRowWords)
      put(row_at, i, segment.position + t, segment.first_row + t, static_cast<uint32_t>(pages_at));
    for (uint32_t t = 0; t < segment.rows; t += kTileRows, tile_at += kRowWords)
      put(tile_at, i, row + t, std::min(kTileRows, segment.rows - t), 0);
    const uint32_t pages = pages_of(segment, page);
    const auto copy = [&](std::span<const uint32_t> from, uint64_t at) {
      TYTO_ASSERT(pages <= from.size() || page == 0);
      std::copy_n(from.begin(), pages, to.begin() + static_cast<int64_t>(at));
    };
    copy(segment.pages, pages_at);
    TYTO_ASSERT(segment.window_pages.empty() != has_window);
    if (has_window) copy(segment.window_pages, pages_at + all_pages);
    pages_at += pages;
    row += segment.rows;
  }
}

uint64_t ticks_between(uint64_t first, uint64_t last, uint32_t valid_bits) {
  if (valid_bits == 0) return 0;
  const uint64_t mask = valid_bits >= 64 ? UINT64_MAX : (uint64_t{1} << valid_bits) - 1;
  return (last - first) & mask;
}

uint64_t nap_ns(uint64_t elapsed_ns, uint64_t expected_ns) {
  constexpr uint64_t kMargin = 15'000;  // a sleeping thread wakes up about that late
  if (expected_ns <= 2 * kMargin || elapsed_ns >= expected_ns - kMargin) return 0;
  return std::min(expected_ns - kMargin - elapsed_ns, std::max(kLongestNap, elapsed_ns / 32));
}

}  // namespace tyto::vulkan

namespace tyto {
namespace {

std::string described(const vulkan::GpuFacts& gpu) {
  return fmt::format("{}, {}, {}", gpu.name, name(gpu.kind), gpu.driver);
}

// Few rows are multiplied in f32; many rows in 16 bits, where the GPU has cooperative matrices.
std::string numerics(const vulkan::GpuFacts& gpu) {
  if (!gpu.multiplies_bf16 && !gpu.multiplies_f16) return "f32";
  return fmt::format("f32, many rows in {}{}{}", gpu.multiplies_bf16 ? "bf16" : "",
                     gpu.multiplies_bf16 && gpu.multiplies_f16 ? " or " : "",
                     gpu.multiplies_f16 ? "f16" : "");
}

std::vector<std::string> gpus_here() {
  std::vector<std::string> lines;
  for (const vulkan::GpuFacts& gpu : vulkan::list_gpus()) lines.push_back(described(gpu));
  return lines;
}

constexpr DeviceSetting kSettings[] = {
    {.name = "gpu",
     .value = "NAME",
     .meaning = "GPU to use: part of its name, or its number in `tyto devices`",
     .found = gpus_here,
     .changes_results = true}};

std::string wanted_gpu(const DeviceEnv& env) {
  const auto given = env.settings.find("gpu");
  return given == env.settings.end() ? "" : given->second;
}

// Nothing is kept where there is no folder for it.
std::filesystem::path pipeline_file() {
  try {
    return cache_folder() / "vulkan" / "pipelines.bin";
  } catch (const Error&) {
    return {};
  }
}

class VulkanDevice : public Device {
 public:
  explicit VulkanDevice(const DeviceEnv& env)
      : env_(env), gpu_(std::make_shared<vulkan::Gpu>(wanted_gpu(env), pipeline_file())) {
    const vulkan::GpuFacts& facts = gpu_->context->facts;
    if (facts.kind == vulkan::GpuKind::software)
      env_.trace.fallback(fmt::format("vulkan is {}: {}", facts.name, name(facts.kind)));
  }

  DeviceInfo info() const override {
    const vulkan::GpuFacts& facts = gpu_->context->facts;
    return {.name = "vulkan",
            .description = described(facts),
            .driver = facts.driver,
            .is_software = facts.kind == vulkan::GpuKind::software,
            .numerics = numerics(facts),
            .rounds_to_bf16 = facts.multiplies_bf16,
            .rows_at_once = facts.kind == vulkan::GpuKind::software ? 256u : 2048u,
            .fusion = Fusion::token,
            .candidates = 64,
            .compiles_forms = true};
  }

  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    return vulkan::why_not(program, launch);
  }

  Buffer alloc(const Slot& slot, uint32_t) override {
    return vulkan::new_slot_buffer(usable_gpu(), slot);
  }

  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    vulkan::sync_slot(buffer, direction, offset, bytes);
  }

  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    check(program);
    for (const Launch& launch : program.launches)
      if (const auto reason = why_not(program, launch))
        throw Error(ErrorCode::device, "vulkan: " + program.name,
                    fmt::format("{} cannot run here: {}", launch.name, reason->reason));
    tell_of_expanded(program);
    env_.trace.loaded(
        {"vulkan", dispatch_name(program).label, "program", to_hex(program_hash(program))});
    return std::make_unique<vulkan::VulkanExecutable>(usable_gpu(), program, weights, env_.trace);
  }

 private:
  // A GPU that was lost is opened again when it is next needed.
  const std::shared_ptr<vulkan::Gpu>& usable_gpu() {
    if (gpu_->context->is_lost)
      gpu_ = std::make_shared<vulkan::Gpu>(wanted_gpu(env_), pipeline_file());
    return gpu_;
  }

  // A weight in more bytes than its file has is nothing to keep to oneself.
  void tell_of_expanded(const Program& program) {
    for (const Launch& launch : program.launches)
      for (size_t i = 0; i < launch.args.size(); ++i) {
        const Slot& slot = program.slots[launch.args[i].slot];
        if (slot.kind != SlotKind::weight || arg_spec(launch, i).kind != ArgKind::matrix) continue;
        const std::string_view form = vulkan::name(vulkan::weight_form(slot.dtype));
        const std::string_view type = tyto::info(slot.dtype).name;
        if (form != type)
          env_.trace.fallback(fmt::format("{} weights as {} on vulkan: it has no kernels for {}",
                                          type, form, type));
      }
  }

  DeviceEnv env_;
  std::shared_ptr<vulkan::Gpu> gpu_;  // shared with buffers and executables
};

}  // namespace

std::span<const DeviceSetting> vulkan_setting_rows() {
  return kSettings;
}

std::unique_ptr<Device> open_vulkan_device(const DeviceEnv& env) {
  return std::make_unique<VulkanDevice>(env);
}

}  // namespace tyto
