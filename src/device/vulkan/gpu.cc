#include "device/vulkan/gpu.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "tensor/quant.h"

namespace tyto::vulkan {
namespace {

constexpr uint64_t kTransferTimeoutNs = 60'000'000'000;

constexpr VkMemoryPropertyFlags kOwn = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kMapped =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = kMapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

// Properties that fit a kind, best first.
std::vector<VkMemoryPropertyFlags> wishes(MemoryKind kind, bool has_host_memory) {
  if (has_host_memory) return {kOwn | kCached, kOwn | kMapped, kCached};
  switch (kind) {
    case MemoryKind::gpu:
      return {kOwn};
    case MemoryKind::host_write:
      return {kOwn | kMapped, kMapped};
    case MemoryKind::host_read:
      break;
  }
  return {kCached, kMapped};
}

std::optional<uint32_t> memory_type(const Context& context, uint32_t allowed,
                                    VkMemoryPropertyFlags wanted) {
  for (uint32_t i = 0; i < context.memory.memoryTypeCount; ++i)
    if ((allowed >> i & 1) != 0 && (context.memory.memoryTypes[i].propertyFlags & wanted) == wanted)
      return i;
  return std::nullopt;
}

}  // namespace

Memory::Memory(std::shared_ptr<Context> in, uint64_t bytes, MemoryKind kind)
    : context(std::move(in)),
      size(std::max<uint64_t>((bytes + 3) / 4 * 4, 256)) {  // a fill writes whole words
  const Api& api = context->api;
  if (size > context->facts.largest_allocation)
    throw Error(
        ErrorCode::device, "vulkan",
        fmt::format("{} bytes in one piece are more than {} allocates", size, context->facts.name),
        "use a smaller -c or fewer sequences");
  auto create = structure<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  create.size = size;
  create.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  check(api.vkCreateBuffer(context->device, &create, nullptr, &buffer), "making a buffer");
  VkMemoryRequirements needs;
  api.vkGetBufferMemoryRequirements(context->device, buffer, &needs);
  auto flags = structure<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto allocate = structure<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags);
  allocate.allocationSize = needs.size;
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  bool is_mapped = false;
  for (const VkMemoryPropertyFlags wish : wishes(kind, context->facts.has_host_memory)) {
    const auto type = memory_type(*context, needs.memoryTypeBits, wish);
    if (!type) continue;
    allocate.memoryTypeIndex = *type;
    is_mapped = (wish & kMapped) == kMapped;
    result = api.vkAllocateMemory(context->device, &allocate, nullptr, &memory);
    if (result == VK_SUCCESS) break;
  }
  if (result != VK_SUCCESS) api.vkDestroyBuffer(context->device, buffer, nullptr);
  check(result, fmt::format("allocating {} bytes", size));
  check(api.vkBindBufferMemory(context->device, buffer, memory, 0), "binding memory");
  auto where = structure<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  where.buffer = buffer;
  address = api.vkGetBufferDeviceAddress(context->device, &where);
  void* seen = nullptr;
  if (is_mapped)
    check(api.vkMapMemory(context->device, memory, 0, VK_WHOLE_SIZE, 0, &seen), "mapping memory");
  mapped = static_cast<std::byte*>(seen);
}

Memory::~Memory() {
  if (context->is_lost) return;
  context->api.vkDestroyBuffer(context->device, buffer, nullptr);
  context->api.vkFreeMemory(context->device, memory, nullptr);
}

Transfers::Transfers(std::shared_ptr<Context> context) : context_(std::move(context)) {
  for (Slot& slot : slots_) {
    slot.commands = context_->new_command_buffer();
    slot.fence = context_->new_fence();
  }
}

Transfers::~Transfers() {
  for (Slot& slot : slots_) {
    try {
      wait(slot);
    } catch (const Error&) {  // it is lost: nothing of it can be given back
    }
    if (!context_->is_lost) context_->api.vkDestroyFence(context_->device, slot.fence, nullptr);
  }
}

void Transfers::wait(Slot& slot) {
  if (!slot.is_busy || context_->is_lost) return;
  if (!context_->wait(slot.fence, kTransferTimeoutNs)) {
    context_->is_lost = true;
    throw Error(ErrorCode::device, "vulkan", "a copy did not end within a minute");
  }
  check(context_->api.vkResetFences(context_->device, 1, &slot.fence), "resetting a fence");
  slot.is_busy = false;
}

// Its bytes have arrived, and it has staging memory.
Transfers::Slot& Transfers::next_slot() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % std::size(slots_);
  wait(slot);
  if (!slot.staging)
    slot.staging = std::make_unique<Memory>(context_, piece_bytes(), MemoryKind::host_read);
  return slot;
}

void Transfers::copy(Slot& slot, const Memory& from, uint64_t from_at, const Memory& to,
                     uint64_t to_at, uint64_t bytes) {
  const Api& api = context_->api;
  auto begin = structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(api.vkBeginCommandBuffer(slot.commands, &begin), "recording a copy");
  const VkBufferCopy region{from_at, to_at, bytes};
  api.vkCmdCopyBuffer(slot.commands, from.buffer, to.buffer, 1, &region);
  auto barrier = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_HOST_READ_BIT;
  api.vkCmdPipelineBarrier(slot.commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                           VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT |
                               VK_PIPELINE_STAGE_HOST_BIT,
                           0, 1, &barrier, 0, nullptr, 0, nullptr);
  check(api.vkEndCommandBuffer(slot.commands), "recording a copy");
  context_->submit(slot.commands, slot.fence);
  slot.is_busy = true;
  ++submissions_;
}

void Transfers::upload(Memory& to, uint64_t at, uint64_t bytes,
                       const std::function<void(std::span<std::byte>)>& fill) {
  TYTO_ASSERT(bytes <= piece_bytes() && at + bytes <= to.size);
  if (to.mapped != nullptr) return fill({to.mapped + at, bytes});
  Slot& slot = next_slot();
  fill({slot.staging->mapped, bytes});
  copy(slot, *slot.staging, 0, to, at, bytes);
}

void Transfers::upload(Memory& to, uint64_t at, std::span<const std::byte> bytes) {
  for (uint64_t done = 0; done < bytes.size();) {
    const uint64_t now = std::min<uint64_t>(piece_bytes(), bytes.size() - done);
    upload(to, at + done, now, [&](std::span<std::byte> piece) {
      std::memcpy(piece.data(), bytes.data() + done, now);
    });
    done += now;
  }
}

void Transfers::download(const Memory& from, uint64_t at, std::span<std::byte> to) {
  TYTO_ASSERT(at + to.size() <= from.size);
  if (from.mapped != nullptr) {
    std::memcpy(to.data(), from.mapped + at, to.size());
    return;
  }
  for (uint64_t done = 0; done < to.size();) {
    const uint64_t now = std::min<uint64_t>(piece_bytes(), to.size() - done);
    Slot& slot = next_slot();
    copy(slot, from, at + done, *slot.staging, 0, now);
    wait(slot);
    std::memcpy(to.data() + done, slot.staging->mapped, now);
    done += now;
  }
}

void Transfers::zero(Memory& memory) {
  if (memory.mapped != nullptr) {
    std::memset(memory.mapped, 0, memory.size);
    return;
  }
  const Api& api = context_->api;
  Slot& slot = next_slot();
  auto begin = structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(api.vkBeginCommandBuffer(slot.commands, &begin), "recording a fill");
  api.vkCmdFillBuffer(slot.commands, memory.buffer, 0, VK_WHOLE_SIZE, 0);
  check(api.vkEndCommandBuffer(slot.commands), "recording a fill");
  context_->submit(slot.commands, slot.fence);
  slot.is_busy = true;
  ++submissions_;
}

void Transfers::finish() {
  for (Slot& slot : slots_) wait(slot);
}

std::shared_ptr<Memory> WeightStore::matrix(const TensorView& weight, WeightForm form) {
  std::shared_ptr<Memory>& stored = stored_[{weight.bytes.data(), form, false}];
  if (stored) return stored;
  const WeightLayout layout = weight_layout(form, weight.rows, weight.cols);
  auto memory = std::make_shared<Memory>(context_, layout.bytes, MemoryKind::gpu);
  for (size_t plane = 0; plane < layout.planes.size(); ++plane) {
    const auto [offset, row_bytes] = layout.planes[plane];
    const uint64_t at_once = std::max<uint64_t>(1, Transfers::piece_bytes() / row_bytes);
    for (uint64_t row = 0; row < weight.rows; row += at_once) {
      const uint64_t rows = std::min(at_once, weight.rows - row);
      transfers_.upload(
          *memory, offset + row * row_bytes, rows * row_bytes,
          [&](std::span<std::byte> to) { write_plane(weight, form, plane, row, to); });
    }
  }
  return stored = std::move(memory);
}

std::shared_ptr<Memory> WeightStore::vector(const TensorView& weight) {
  std::shared_ptr<Memory>& stored = stored_[{weight.bytes.data(), WeightForm::f32, true}];
  if (stored) return stored;
  std::vector<float> values(weight.values());
  dequantize(weight.dtype, weight.bytes, values);
  auto memory = std::make_shared<Memory>(context_, values.size() * sizeof(float), MemoryKind::gpu);
  transfers_.upload(*memory, 0, std::as_bytes(std::span(values)));
  return stored = std::move(memory);
}

namespace {

const Shader* find_shader(std::string_view name) {
  const auto all = shaders();
  const auto found = std::ranges::find(all, name, &Shader::name);
  return found == all.end() ? nullptr : &*found;
}

// A driver looks at the header and ignores what another one, or another version, has left; a file
// that cannot be read is as none.
std::string kept(const std::filesystem::path& file) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  std::error_code ignored;
  if (file.empty() || !std::filesystem::is_regular_file(file, ignored)) return {};
  try {
    return read_replaceable_file(file, kMostBytes);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Pipelines::Pipelines(std::shared_ptr<Context> context, std::filesystem::path file)
    : context_(std::move(context)), file_(std::move(file)) {
  const std::string before = kept(file_);
  auto create = structure<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  create.initialDataSize = before.size();
  create.pInitialData = before.data();
  const Api& api = context_->api;
  if (api.vkCreatePipelineCache(context_->device, &create, nullptr, &cache_) != VK_SUCCESS) {
    create.initialDataSize = 0;
    check(api.vkCreatePipelineCache(context_->device, &create, nullptr, &cache_),
          "making a pipeline cache");
  }
}

Pipelines::~Pipelines() {
  if (context_->is_lost) return;
  const Api& api = context_->api;
  for (const auto& [key, pipeline] : pipelines_)
    api.vkDestroyPipeline(context_->device, pipeline, nullptr);
  for (const auto& [name, module] : modules_)
    api.vkDestroyShaderModule(context_->device, module, nullptr);
  api.vkDestroyPipelineCache(context_->device, cache_, nullptr);
}

bool Pipelines::has(const std::string& shader) {
  return find_shader(shader) != nullptr;
}

VkShaderModule Pipelines::module(const std::string& shader) {
  VkShaderModule& module = modules_[shader];
  if (module != VK_NULL_HANDLE) return module;
  const Shader* found = find_shader(shader);
  TYTO_ASSERT(found != nullptr);
  auto create = structure<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  create.codeSize = found->words.size_bytes();
  create.pCode = found->words.data();
  check(context_->api.vkCreateShaderModule(context_->device, &create, nullptr, &module),
        "loading kernel " + shader);
  return module;
}

VkPipeline Pipelines::get(const PipelineKey& key) {
  VkPipeline& pipeline = pipelines_[key];
  if (pipeline != VK_NULL_HANDLE) return pipeline;
  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < key.constants.size(); ++i)
    entries.push_back({i, i * static_cast<uint32_t>(sizeof(uint32_t)), sizeof(uint32_t)});
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                       key.constants.size() * sizeof(uint32_t),
                                       key.constants.data()};
  auto create =
      structure<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  create.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  create.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  create.stage.module = module(key.shader);
  create.stage.pName = "main";
  create.stage.pSpecializationInfo = &constants;
  create.layout = context_->layout;
  check(context_->api.vkCreateComputePipelines(context_->device, cache_, 1, &create, nullptr,
                                               &pipeline),
        "compiling kernel " + key.shader);
  has_new_ = true;
  return pipeline;
}

void Pipelines::save() {
  if (file_.empty() || !has_new_ || context_->is_lost) return;
  has_new_ = false;
  const Api& api = context_->api;
  size_t size = 0;
  if (api.vkGetPipelineCacheData(context_->device, cache_, &size, nullptr) != VK_SUCCESS) return;
  std::vector<std::byte> bytes(size);
  if (api.vkGetPipelineCacheData(context_->device, cache_, &size, bytes.data()) != VK_SUCCESS)
    return;
  try {
    std::filesystem::create_directories(file_.parent_path());
    AtomicFile out(file_, Replace::own_state);
    out.write(std::span(bytes).first(size));
    out.commit();
  } catch (const std::exception&) {
  }
}

namespace {

// What the host writes before each call lies where kernels can read it without a copy; a few bytes
// that it reads are written straight into its memory.
MemoryKind kind_for(const Slot& slot) {
  constexpr uint64_t kFewBytes = 64 << 10;
  if (slot.kind == SlotKind::input) return MemoryKind::host_write;
  return slot.kind == SlotKind::output && slot.bytes() <= kFewBytes ? MemoryKind::host_read
                                                                    : MemoryKind::gpu;
}

std::shared_ptr<void> reserved(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "vulkan", fmt::format("cannot reserve {} bytes", bytes),
                "lower the context with -c");
  return {memory, [bytes](void* p) { ::munmap(p, bytes); }};
}

// How cooperative matrices lie in registers is a driver's own affair; it is asked once.
uint32_t matrix_layout(Gpu& gpu) {
  Context& context = *gpu.context;
  const Api& api = context.api;
  Memory answer(gpu.context, sizeof(uint32_t), MemoryKind::host_read);
  std::memset(answer.mapped, 0, sizeof(uint32_t));
  VkCommandBuffer commands = context.new_command_buffer();
  const auto begin =
      structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  check(api.vkBeginCommandBuffer(commands, &begin), "recording");
  api.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                        gpu.pipelines.get({"coop_layout", {context.facts.subgroup_size}}));
  api.vkCmdPushConstants(commands, context.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         sizeof answer.address, &answer.address);
  api.vkCmdDispatch(commands, 1, 1, 1);
  check(api.vkEndCommandBuffer(commands), "recording");
  VkFence fence = context.new_fence();
  context.submit(commands, fence);
  constexpr uint64_t kTimeoutNs = 10'000'000'000;
  if (!context.wait(fence, kTimeoutNs)) {
    context.is_lost = true;
    throw Error(ErrorCode::device, "vulkan", "the GPU did not answer within ten seconds");
  }
  api.vkDestroyFence(context.device, fence, nullptr);
  api.vkFreeCommandBuffers(context.device, context.commands, 1, &commands);
  uint32_t layout = 0;
  std::memcpy(&layout, answer.mapped, sizeof layout);
  return layout;
}

}  // namespace

Gpu::Gpu(const std::string& wanted, const std::filesystem::path& pipeline_file)
    : context(std::make_shared<Context>(wanted)),
      transfers(context),
      pipelines(context, pipeline_file),
      weights(context, transfers) {
  if (context->facts.multiplies_f16) context->facts.matrix_layout = matrix_layout(*this);
}

// Where loading a program failed bytes may still travel, to memory that must outlive that.
Gpu::~Gpu() {
  try {
    transfers.finish();
  } catch (const Error&) {  // it is lost: nothing of it can be given back
  }
}

Buffer new_slot_buffer(const std::shared_ptr<Gpu>& gpu, const Slot& slot) {
  auto slot_memory = std::shared_ptr<SlotMemory>(
      new SlotMemory{gpu, Memory(gpu->context, slot.bytes(), kind_for(slot))});
  Memory& memory = slot_memory->memory;
  // A cache that the host can see is committed as it is touched; kernels read no position that was
  // not written.
  if (slot.kind != SlotKind::kv || memory.mapped == nullptr) gpu->transfers.zero(memory);
  gpu->transfers.finish();
  std::byte* seen = memory.mapped;
  if (seen == nullptr && slot.kind == SlotKind::output) {
    slot_memory->mirror =
        std::make_unique<Memory>(gpu->context, slot.bytes(), MemoryKind::host_read);
    seen = slot_memory->mirror->mapped;
  } else if (seen == nullptr) {
    slot_memory->shadow = reserved(memory.size);
    seen = static_cast<std::byte*>(slot_memory->shadow.get());
  }
  return {.data = seen, .size = slot.bytes(), .handle = std::move(slot_memory)};
}

SlotMemory& slot_memory(const Buffer& buffer) {
  return *static_cast<SlotMemory*>(buffer.handle.get());
}

void sync_slot(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) {
  SlotMemory& slot = slot_memory(buffer);
  if (slot.memory.mapped != nullptr || bytes == 0) return;
  TYTO_ASSERT(offset + bytes <= buffer.size);
  Transfers& transfers = slot.gpu->transfers;
  if (direction == Sync::from_device)
    return transfers.download(slot.memory, offset, buffer.bytes().subspan(offset, bytes));
  transfers.upload(slot.memory, offset, std::as_bytes(buffer.bytes().subspan(offset, bytes)));
  transfers.finish();
}

}  // namespace tyto::vulkan
