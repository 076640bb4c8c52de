// xrt::device, elf, xclbin, hw_context.
#include <fmt/format.h>
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/vnpu/machine/loaded_image.h"
#include "device/vnpu/xrt/objects.h"

namespace xrt {
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
}  // namespace xrt
