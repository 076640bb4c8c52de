#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include "base/error.h"
#include "base/round_up.h"
#include "device/vnpu/machine/device_memory.h"
#include "device/vnpu/machine/machine.h"

namespace xrt {

// What stands behind the handles of the XRT headers.
inline namespace vnpu {

// XRT reports misuse of its interface as a system error too, mostly EINVAL.
[[noreturn]] inline void fail_usage(const std::string& what, int error = EINVAL) {
  throw std::system_error(error, std::generic_category(), what);
}

struct device_impl {};  // the one Machine; a handle is proof that it was opened

struct image_impl {
  explicit image_impl(tyto::vxrt::Image image) : loaded(std::move(image)) {}
  tyto::vxrt::LoadedImage loaded;
};

struct hw_context_impl {
  explicit hw_context_impl(std::shared_ptr<tyto::vxrt::LoadedImage> image) {
    tyto::vxrt::Machine::get().open(context, std::move(image));
  }
  ~hw_context_impl() { tyto::vxrt::Machine::get().close(context); }
  hw_context_impl(const hw_context_impl&) = delete;
  hw_context_impl& operator=(const hw_context_impl&) = delete;

  tyto::vxrt::Context context;
};

// One buffer, or a window into another. The heap's and the host's pages are anonymous mappings,
// zero until touched.
struct bo_impl {
  bo_impl(size_t bytes, void* user_pointer, bool in_heap, uint32_t group);
  bo_impl(std::shared_ptr<bo_impl> whole, size_t bytes, size_t begin);
  ~bo_impl();
  bo_impl(const bo_impl&) = delete;
  bo_impl& operator=(const bo_impl&) = delete;

  std::shared_ptr<bo_impl> parent;  // a sub-buffer shares its parent's memory
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::shared_ptr<tyto::vxrt::DeviceMemory> memory;  // shared with windows into the buffer
  size_t offset = 0;                                 // a window's in the whole buffer
  size_t size = 0;
  uint64_t address = 0;
  uint32_t group = 0;  // the bank of memory
  bool is_user_memory = false;
  bool is_heap = false;
  std::byte* synced = nullptr;  // hostile: what host and device were when they were last the same
  std::vector<std::shared_ptr<bo_impl>>
      clones;  // in other groups, shared with the runs they are set on
};

struct kernel_impl {
  std::shared_ptr<hw_context_impl> context;        // shared with the hw_context it was made from
  const tyto::vxrt::LoadedImage* image = nullptr;  // loaded into the context
  tyto::vxrt::LoadedInstance* instance = nullptr;  // one that the image has
};

struct run_argument {
  std::shared_ptr<bo_impl> buffer;  // shared with the caller's bo
  uint64_t scalar = 0;
  bool is_scalar = false;
};

struct run_impl {
  explicit run_impl(std::shared_ptr<kernel_impl> of);
  ~run_impl();
  run_impl(const run_impl&) = delete;
  run_impl& operator=(const run_impl&) = delete;

  run_argument& argument(int index);
  const run_argument* find(size_t index) const {
    return index < arguments.size() ? &arguments[index] : nullptr;
  }
  // Until a wait has seen the end, whatever the device is doing, where it is hostile.
  bool is_in_progress() const;
  // Fixes buffers and call for the next submission. EINVAL: more buffers than a command takes.
  void prepare();
  // That XRT patches with the address of an argument.
  uint64_t descriptors(size_t index) const {
    const auto& known = job->instance->descriptors;
    return index < known.size() ? known[index] : 0;
  }

  std::shared_ptr<kernel_impl> kernel;  // shared with the kernel and its other runs
  std::vector<run_argument> arguments;
  std::unique_ptr<tyto::vxrt::Job> job = std::make_unique<tyto::vxrt::Job>();
  std::shared_ptr<bo_impl> scratchpad;  // in the heap; none where the image has none
  uint64_t heap_bytes = 0;
  const bool is_hostile = tyto::vxrt::Machine::get().is_hostile();
  std::atomic<bool> is_done = true;  // as far as the caller knows

 private:
  void bind(size_t index, const run_argument* argument, uint64_t span_bytes);
  void reach_beyond(size_t index, const bo_impl* buffer, uint64_t needed);
  void prepare_call(size_t first_scalar);
  void prepare_instructions();
  void prepare_scratchpad(const tyto::DecodeParameters& parameters);
};

}  // namespace vnpu

// xrt::bo and xrt::ext::bo.

inline namespace vnpu {
namespace {

using tyto::vxrt::Machine;

constexpr size_t kPage = 4096;
constexpr uint32_t kExtGroup = 0;  // for buffers that are made without one

std::byte* map_zeroed(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail_usage(fmt::format("mmap of {} bytes", bytes), ENOMEM);
  // Pages of 2 MB where there are any: a model's worth of 4 KB faults takes a second.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// Device addresses are names, not memory; pages apart and never used twice.
uint64_t next_address(size_t bytes) {
  static std::atomic<uint64_t> next = uint64_t{1} << 32;
  return next.fetch_add(tyto::round_up(bytes + kPage, kPage));
}

std::shared_ptr<bo_impl> allocate(bool has_owner, size_t size, bo::flags flags, uint32_t group) {
  if (!has_owner) fail_usage("bo of no device");
  if (flags != bo::flags::host_only && flags != bo::flags::cacheable)
    fail_usage(fmt::format("bad BO type: flags {:#x}", static_cast<uint32_t>(flags)));
  return std::make_shared<bo_impl>(size, nullptr, flags == bo::flags::cacheable, group);
}

std::shared_ptr<bo_impl> adopt(bool has_owner, void* pointer, size_t size) {
  if (!has_owner) fail_usage("bo of no device");
  if (pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % kPage != 0)
    fail_usage("user pointer is not aligned to 4 KiB");
  if (size % kPage != 0) fail_usage(fmt::format("{} bytes are not whole pages", size));
  if (Machine::get().is_hostile())
    if (const auto problem = tyto::vxrt::why_not_pinned(pointer, size))
      fail_usage("DRM_IOCTL_AMDXDNA_CREATE_BO: " + *problem, EFAULT);
  return std::make_shared<bo_impl>(size, pointer, false, kExtGroup);
}

void check_range(const bo& buffer, size_t bytes, size_t offset, const char* what) {
  if (offset > buffer.size() || bytes > buffer.size() - offset)
    fail_usage(
        fmt::format("{} of {} bytes at {} in a buffer of {}", what, bytes, offset, buffer.size()));
}

void sync_lines(const bo_impl& buffer, bool to_device, size_t bytes, size_t offset) {
  const bo_impl* whole = &buffer;
  while (whole->parent) whole = whole->parent.get();
  const tyto::vxrt::CachedBuffer lines{whole->host, whole->device, whole->synced, whole->size};
  const uint64_t begin = buffer.offset + offset, end = begin + bytes;
  const tyto::vxrt::Flush flush = to_device ? tyto::vxrt::flush_to_device(lines, begin, end)
                                            : tyto::vxrt::flush_from_device(lines, begin, end);
  if (flush.wrote_back) whole->memory->touch(flush.begin, flush.end);
  if (flush.lost > 0)
    Machine::get().offend(fmt::format(
        "a sync {} of {} bytes at {} in a buffer of {} overwrote {} bytes that the device had "
        "written with the host's cache lines",
        to_device ? "to the device" : "from the device", bytes, begin, whole->size, flush.lost));
}

bo_impl& impl(const std::shared_ptr<bo_impl>& handle) {
  if (!handle) fail_usage("empty bo");
  return *handle;
}

}  // namespace

bo_impl::bo_impl(size_t bytes, void* user_pointer, bool in_heap, uint32_t in_group)
    : memory(std::make_shared<tyto::vxrt::DeviceMemory>()),
      size(bytes),
      address(next_address(bytes)),
      group(in_group),
      is_user_memory(user_pointer != nullptr),
      is_heap(in_heap) {
  if (bytes == 0) fail_usage("bo of no bytes");
  Machine& machine = Machine::get();
  is_heap ? machine.take_heap(bytes) : machine.pin(bytes);
  try {
    host = is_user_memory ? static_cast<std::byte*>(user_pointer) : map_zeroed(bytes);
    // A user's pages are a mapped file's, which is not written: there is nothing to forget to sync.
    device = is_user_memory ? host : map_zeroed(bytes);
    if (machine.is_hostile() && !is_user_memory) synced = map_zeroed(bytes);
  } catch (...) {
    if (device != nullptr && device != host) ::munmap(device, bytes);
    if (host != nullptr && !is_user_memory) ::munmap(host, bytes);
    is_heap ? machine.return_heap(bytes) : machine.unpin(bytes);
    throw;
  }
}

bo_impl::bo_impl(std::shared_ptr<bo_impl> whole, size_t bytes, size_t begin)
    : parent(std::move(whole)),
      host(parent->host + begin),
      device(parent->device + begin),
      memory(parent->memory),
      offset(parent->offset + begin),
      size(bytes),
      address(parent->address + begin),
      group(parent->group),
      is_heap(parent->is_heap),
      synced(parent->synced != nullptr ? parent->synced + begin : nullptr) {}

bo_impl::~bo_impl() {
  if (parent) return;
  if (device != host) ::munmap(device, size);
  if (synced != nullptr) ::munmap(synced, size);
  if (!is_user_memory) ::munmap(host, size);
  Machine& machine = Machine::get();
  is_heap ? machine.return_heap(size) : machine.unpin(size);
}

bo::bo(const xrt::device& device, size_t size, flags type, memory_group group)
    : handle_(allocate(static_cast<bool>(device), size, type, group)) {}

bo::bo(const bo& parent, size_t size, size_t offset) {
  impl(parent.handle_);
  if (size == 0) fail_usage("bo of no bytes");
  check_range(parent, size, offset, "sub-buffer");
  handle_ = std::make_shared<bo_impl>(parent.handle_, size, offset);
}

void* bo::map_host() {
  return impl(handle_).host;
}
size_t bo::size() const {
  return impl(handle_).size;
}
uint64_t bo::address() const {
  return impl(handle_).address;
}
memory_group bo::get_memory_group() const {
  return impl(handle_).group;
}

void bo::sync(xclBOSyncDirection direction) {
  sync(direction, size(), 0);
}

void bo::sync(xclBOSyncDirection direction, size_t bytes, size_t offset) {
  const bo_impl& buffer = impl(handle_);
  check_range(*this, bytes, offset, "sync");
  if (direction != XCL_BO_SYNC_BO_TO_DEVICE && direction != XCL_BO_SYNC_BO_FROM_DEVICE)
    fail_usage("unknown sync direction");
  const bool to_device = direction == XCL_BO_SYNC_BO_TO_DEVICE;
  Machine::get().count_sync(to_device, bytes);
  if (buffer.synced != nullptr) return sync_lines(buffer, to_device, bytes, offset);
  std::byte* target = (to_device ? buffer.device : buffer.host) + offset;
  if (buffer.device != buffer.host && bytes > 0)
    std::memcpy(target, (to_device ? buffer.host : buffer.device) + offset, bytes);
  if (to_device) buffer.memory->touch(buffer.offset + offset, buffer.offset + offset + bytes);
}

namespace ext {

bo::bo(const device& device, size_t size)
    : xrt::bo(allocate(static_cast<bool>(device), size, flags::host_only, kExtGroup)) {}
bo::bo(const device& device, void* user_pointer, size_t size)
    : xrt::bo(adopt(static_cast<bool>(device), user_pointer, size)) {}

}  // namespace ext
}  // namespace vnpu

// xrt::device, elf, xclbin, hw_context.

inline namespace vnpu {
namespace {

using tyto::vxrt::ImageForm;
using tyto::vxrt::LoadedImage;

// Images that register_xclbin made known to the device, for hw_context to find by id.
struct Registry {
  std::mutex mutex;
  std::map<uuid, std::weak_ptr<image_impl>> images;
};

Registry& registry() {
  static Registry registered;
  return registered;
}

std::shared_ptr<image_impl> load(std::span<const std::byte> bytes, ImageForm form) {
  const std::string where = "image in memory";
  tyto::vxrt::Image image = tyto::vxrt::parse_image(bytes, where);
  if (image.form != form)
    tyto::fail_input(where, "is an {} image", form == ImageForm::elf ? "xclbin" : "ELF");
  return std::make_shared<image_impl>(std::move(image));
}

const LoadedImage& loaded(const std::shared_ptr<image_impl>& handle) {
  if (!handle) fail_usage("empty image handle");
  return handle->loaded;
}

uuid uuid_of(const std::shared_ptr<image_impl>& handle) {
  const tyto::Hash128& hash = loaded(handle).image.hash;
  std::array<uint8_t, 16> bytes;
  std::memcpy(bytes.data(), &hash.high, 8);
  std::memcpy(bytes.data() + 8, &hash.low, 8);
  return uuid(bytes);
}

std::shared_ptr<hw_context_impl> open_context(const device& device,
                                              const std::shared_ptr<image_impl>& image) {
  if (!device) fail_usage("hw_context of no device");
  loaded(image);
  return std::make_shared<hw_context_impl>(std::shared_ptr<LoadedImage>(image, &image->loaded));
}

std::shared_ptr<hw_context_impl> open_context(const device& device, const uuid& id) {
  Registry& known = registry();
  std::shared_ptr<image_impl> image;
  {
    std::lock_guard lock(known.mutex);
    const auto found = known.images.find(id);
    if (found != known.images.end()) image = found->second.lock();
  }
  if (!image) fail_usage("no xclbin is registered with id " + id.to_string());
  return open_context(device, image);
}

}  // namespace

std::string uuid::to_string() const {
  std::string text;
  for (uint8_t byte : bytes_) text += fmt::format("{:02x}", byte);
  for (size_t dash : {20, 16, 12, 8}) text.insert(dash, "-");
  return text;
}

device::device(unsigned index) {
  if (index != 0) fail_usage(fmt::format("no device with index {}", index));
  handle_ = std::make_shared<device_impl>();
}

device::device(const std::string& address) {
  if (address != tyto::vxrt::kAddress) fail_usage("no device at " + address);
  handle_ = std::make_shared<device_impl>();
}

uuid device::register_xclbin(const xclbin& image) {
  const uuid id = image.get_uuid();
  Registry& known = registry();
  std::lock_guard lock(known.mutex);
  known.images[id] = image.get_handle();
  return id;
}

elf::elf(const void* data, size_t size)
    : handle_(load({static_cast<const std::byte*>(data), size}, ImageForm::elf)) {}

xclbin::xclbin(const std::vector<char>& data)
    : handle_(load(std::as_bytes(std::span(data)), ImageForm::xclbin)) {}
uuid xclbin::get_uuid() const {
  return uuid_of(handle_);
}

hw_context::hw_context(const device& device, const elf& elf)
    : handle_(open_context(device, elf.get_handle())) {}
hw_context::hw_context(const device& device, const uuid& id) : handle_(open_context(device, id)) {}

}  // namespace vnpu

// xrt::kernel, ext::kernel and run.

inline namespace vnpu {
namespace {

using tyto::vxrt::ImageForm;
using tyto::vxrt::Machine;

constexpr size_t kMostArguments = 4095;  // as the driver has it
constexpr int kInstructions = 1;         // argument of an xclbin's kernel

run_impl& impl(const std::shared_ptr<run_impl>& handle) {
  if (!handle) fail_usage("empty run");
  return *handle;
}

uint32_t group_of_argument(int argument) {
  const tyto::vxrt::Hardware hardware = Machine::get().hardware();
  return argument == kInstructions ? hardware.instruction_group : hardware.host_group;
}

// XRT says so in its log, and nowhere else: what the caller writes to the buffer from now on does
// not reach the kernel, and what the kernel writes does not reach the caller.
std::shared_ptr<bo_impl> clone(bo_impl& buffer, uint32_t group) {
  auto copy = std::make_shared<bo_impl>(buffer.size, nullptr, buffer.is_heap, group);
  std::memcpy(copy->host, buffer.device, buffer.size);
  std::memcpy(copy->device, buffer.device, buffer.size);
  if (copy->synced != nullptr) std::memcpy(copy->synced, buffer.device, buffer.size);
  Machine::get().count_clone();
  buffer.clones.push_back(copy);
  return copy;
}

// "kernel:instance"; the kernel alone will do where the image holds one instance.
std::shared_ptr<kernel_impl> find_kernel(const hw_context& context, const std::string& name,
                                         ImageForm form) {
  if (!context) fail_usage("kernel of no hw_context");
  const tyto::vxrt::LoadedImage* image = context.get_handle()->context.image.get();
  if (image == nullptr || image->image.form != form)
    fail_usage(fmt::format("kernel {}: the context holds no {}", name,
                           form == ImageForm::elf ? "ELF" : "xclbin"));
  const std::string known = form == ImageForm::elf ? "main" : "MLIR_AIE";
  auto kernel = std::make_shared<kernel_impl>();
  kernel->context = context.get_handle();
  kernel->image = image;
  if (name.starts_with(known + ":")) kernel->instance = image->find(name.substr(known.size() + 1));
  if (name == known && image->instances.size() == 1)
    kernel->instance = image->instances.front().get();
  if (kernel->instance == nullptr)
    fail_usage(fmt::format("no kernel {}: the image has {} of {}, the first {}:{}", name,
                           image->instances.size(), known, known,
                           image->image.instances.front().name));
  return kernel;
}

}  // namespace

kernel::kernel(const hw_context& context, const std::string& name)
    : handle_(find_kernel(context, name, ImageForm::xclbin)) {}

int kernel::group_id(int argument) const {
  if (!handle_ || argument < 0) fail_usage(fmt::format("group_id of argument {}", argument));
  return static_cast<int>(group_of_argument(argument));
}

ext::kernel::kernel(const hw_context& context, const std::string& name)
    : xrt::kernel(find_kernel(context, name, ImageForm::elf)) {}

// Every run of an ELF has a copy of the control code, which it patches.
run_impl::run_impl(std::shared_ptr<kernel_impl> of) : kernel(std::move(of)) {
  const tyto::vxrt::Image& image = kernel->image->image;
  if (image.form == ImageForm::elf) {
    const uint64_t given = Machine::get().limits().run_heap_bytes;
    heap_bytes = given > 0 ? given : image.file_bytes;
    Machine::get().take_heap(heap_bytes);
  }
  if (const auto& words = kernel->instance->instance.scratchpad)
    scratchpad = std::make_shared<bo_impl>(words->parameters.words * sizeof(uint32_t), nullptr,
                                           true, kExtGroup);
  job->image = kernel->image;
  job->instance = kernel->instance;
  job->context = &kernel->context->context;
  Machine::get().count_run(1);
}

run_impl::~run_impl() {
  if (is_hostile && !is_done)
    Machine::get().give_up(std::move(job));
  else
    Machine::get().abort(*job);
  if (heap_bytes > 0) Machine::get().return_heap(heap_bytes);
  Machine::get().count_run(-1);
}

bool run_impl::is_in_progress() const {
  return is_hostile ? !is_done : Machine::get().is_in_flight(*job);
}

run_argument& run_impl::argument(int index) {
  if (index < 0 || static_cast<size_t>(index) >= kMostArguments)
    fail_usage(fmt::format("no argument {}", index));
  if (arguments.size() <= static_cast<size_t>(index))
    arguments.resize(static_cast<size_t>(index) + 1);
  return arguments[static_cast<size_t>(index)];
}

void run_impl::bind(size_t index, const run_argument* argument, uint64_t span_bytes) {
  const uint64_t needed = job->instance->reach[index];
  if (needed == 0) return;  // dead: whatever was given is not looked at
  const bo_impl* buffer = argument != nullptr ? argument->buffer.get() : nullptr;
  tyto::vxrt::Binding& bound = job->arguments[index];
  if (buffer != nullptr) bound = {buffer->device, buffer->memory.get(), buffer->offset};
  if (needed > span_bytes)
    job->bad_argument =
        fmt::format("argument {} spans {} bytes, DMA reaches {}", index, needed, span_bytes);
  else if (buffer != nullptr && buffer->size >= needed)
    return;
  else if (is_hostile)
    reach_beyond(index, buffer, needed);
  else if (buffer == nullptr)
    job->bad_argument = fmt::format("argument {} was given no buffer", index);
  else
    job->bad_argument =
        fmt::format("argument {} needs {} bytes, its buffer has {}", index, needed, buffer->size);
}

// A window goes on into the buffer it is of, like every other buffer into what lies behind.
void run_impl::reach_beyond(size_t index, const bo_impl* buffer, uint64_t needed) {
  uint64_t bytes = 0;
  for (const bo_impl* whole = buffer; whole != nullptr; whole = whole->parent.get())
    bytes = whole->size - (buffer->offset - whole->offset);
  const uint64_t size = buffer != nullptr ? buffer->size : 0;
  job->guards.push_back(std::make_unique<tyto::vxrt::GuardMemory>(
      index, job->arguments[index], size, std::min(bytes, needed), needed));
  job->arguments[index] = job->guards.back()->binding();
}

void run_impl::prepare() {
  const tyto::vxrt::Instance& instance = job->instance->instance;
  const tyto::vxrt::Limits limits = Machine::get().limits();
  job->keeps.clear();
  for (const run_argument& argument : arguments)
    if (argument.buffer) job->keeps.push_back(argument.buffer);
  if (job->keeps.size() > limits.argument_buffers)
    fail_usage(
        fmt::format("{} argument buffers, at most {}", job->keeps.size(), limits.argument_buffers));
  job->keeps.push_back(kernel);
  if (scratchpad) job->keeps.push_back(scratchpad);
  job->bad_argument.clear();
  job->guards.clear();
  job->arguments.assign(instance.arguments.size(), {});
  job->call = instance.fixed_call;
  const bool is_elf = job->image->image.form == ImageForm::elf;
  const size_t first = is_elf ? 0 : tyto::vxrt::kXclbinFirstArgument;
  for (size_t i = 0; i < instance.arguments.size(); ++i)
    bind(i, find(first + i), limits.slot_span_bytes);
  if (!is_elf)
    prepare_instructions();
  else if (instance.takes_call)
    prepare_call(instance.arguments.size());
  else if (instance.scratchpad)
    prepare_scratchpad(instance.scratchpad->parameters);
}

// The control code reads the buffer; that the length was given as a scalar, too, is XRT's rule for
// an argument that a program has.
void run_impl::prepare_scratchpad(const tyto::DecodeParameters& parameters) {
  const run_argument* length = find(parameters.scalar);
  if (length == nullptr || !length->is_scalar)
    job->bad_argument = fmt::format("argument {} was given no length", parameters.scalar);
  job->words = {reinterpret_cast<const uint32_t*>(scratchpad->device), parameters.words};
}

void run_impl::prepare_call(size_t first_scalar) {
  uint32_t scalars[tyto::vxrt::kCallScalars] = {1, 0, 0};
  for (size_t i = 0; i < tyto::vxrt::kCallScalars; ++i) {
    const run_argument* argument = find(first_scalar + i);
    if (argument == nullptr) continue;
    if (argument->is_scalar) scalars[i] = static_cast<uint32_t>(argument->scalar);
    if (argument->buffer)
      job->bad_argument = fmt::format("argument {} is a scalar", first_scalar + i);
  }
  job->call = tyto::call_of(scalars[0], scalars[1], scalars[2]);
}

void run_impl::prepare_instructions() {
  const run_argument *opcode = find(0), *words = find(1), *count = find(2);
  job->words = {};
  if (opcode == nullptr || !opcode->is_scalar || opcode->scalar != tyto::vxrt::kXclbinOpcode)
    job->bad_argument = "argument 0 is not opcode 3";
  else if (words == nullptr || !words->buffer || !words->buffer->is_heap)
    job->bad_argument = "argument 1 is not a cacheable buffer of instructions";
  else if (words->buffer->offset % sizeof(uint32_t) != 0)
    job->bad_argument = "argument 1 is not at a multiple of 4 bytes";
  else if (count == nullptr || !count->is_scalar ||
           count->scalar > words->buffer->size / sizeof(uint32_t))
    job->bad_argument = "argument 2 is not the number of instruction words";
  else
    job->words = {reinterpret_cast<const uint32_t*>(words->buffer->device), count->scalar};
}

run::run(const kernel& kernel) {
  if (!kernel) fail_usage("run of no kernel");
  handle_ = std::make_shared<run_impl>(kernel.get_handle());
}

void run::set_arg(int index, const bo& buffer) {
  if (!buffer) fail_usage(fmt::format("argument {} is an empty bo", index));
  run_impl& self = impl(handle_);
  const bool is_elf = self.job->image->image.form == ImageForm::elf;
  run_argument& argument = self.argument(index);
  // The first time XRT patches the whole code as it copies it.
  if (is_elf && argument.buffer && argument.buffer != buffer.get_handle())
    Machine::get().count_patches(*self.job->context, self.descriptors(static_cast<size_t>(index)));
  argument = {buffer.get_handle(), 0, false};
  if (!self.is_hostile) return;
  // XRT 2.23 and later, after it has taken the buffer; for an ELF alone, whose control code it
  // would patch.
  if (is_elf && self.is_in_progress())
    throw std::runtime_error("xrt::run::set_arg called while command is still in progress");
  // An ELF says nothing about memory groups.
  if (!is_elf && argument.buffer->group != group_of_argument(index))
    argument.buffer = clone(*argument.buffer, group_of_argument(index));
}

void run::set_scalar(int index, const void* value, size_t size) {
  run_argument argument{nullptr, 0, true};
  std::memcpy(&argument.scalar, value, std::min(size, sizeof argument.scalar));
  impl(handle_).argument(index) = std::move(argument);
}

bo run::get_ctrl_scratchpad_bo() const {
  run_impl& self = impl(handle_);
  if (!self.scratchpad) fail_usage("no control scratchpad memory is present");
  return bo(self.scratchpad);
}

void run::start() {
  run_impl& self = impl(handle_);
  if (self.is_in_progress()) fail_usage("bad command state, can't launch");
  if (self.is_hostile) Machine::get().check_offences();
  self.prepare();
  self.is_done = false;
  Machine::get().submit(*self.job);
}

ert_cmd_state run::wait(const std::chrono::milliseconds& timeout) const {
  run_impl& self = impl(handle_);
  if (!Machine::get().wait(*self.job, timeout.count())) return ERT_CMD_STATE_TIMEOUT;
  self.is_done = true;
  if (self.is_hostile) Machine::get().check_offences();
  return Machine::get().state(*self.job);
}

ert_cmd_state run::state() const {
  run_impl& self = impl(handle_);
  const ert_cmd_state state = Machine::get().state(*self.job);
  if (state != ERT_CMD_STATE_NEW && !Machine::get().is_in_flight(*self.job)) self.is_done = true;
  return state;
}

}  // namespace vnpu
}  // namespace xrt
