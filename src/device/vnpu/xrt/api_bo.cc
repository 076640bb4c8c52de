// xrt::bo and xrt::ext::bo.
#include <fmt/format.h>
#include <sys/mman.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/xrt_bo.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/round_up.h"
#include "device/vnpu/machine/cache_lines.h"
#include "device/vnpu/machine/user_pages.h"
#include "device/vnpu/xrt/objects.h"

namespace xrt {
inline namespace vnpu {
namespace {

using tyto::vxrt::Machine;

constexpr size_t kPage = 4096;
constexpr uint32_t kExtGroup = 0;  // of buffers that are made without one

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
    // A user's pages are a mapped file's, which nobody writes: there is nothing to forget to sync.
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
}  // namespace xrt
