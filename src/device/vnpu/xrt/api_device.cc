// xrt::device, elf, xclbin, hw_context.
#include <fmt/format.h>
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_version.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/vnpu/machine/loaded_image.h"
#include "device/vnpu/machine/machine_names.h"
#include "device/vnpu/xrt/objects.h"

namespace xrt {
inline namespace vnpu {
namespace {

using tyto::vxrt::ImageForm;
using tyto::vxrt::LoadedImage;
using tyto::vxrt::Machine;

constexpr const char* kBdf = "ffff:00:00.0";  // a PCI domain no real machine uses
constexpr const char* kElfKernel = "main";

// Images that register_xclbin made known to the device, for hw_context to find by id.
struct Registry {
  std::mutex mutex;
  std::map<uuid, std::weak_ptr<image_impl>> images;
};

Registry& registry() {
  static Registry registered;
  return registered;
}

std::shared_ptr<image_impl> load(tyto::vxrt::Image image, ImageForm form,
                                 const std::string& where) {
  if (image.form != form)
    tyto::fail_input(where, "is an {} image", form == ImageForm::elf ? "xclbin" : "ELF");
  return std::make_shared<image_impl>(std::move(image));
}

std::shared_ptr<image_impl> load_bytes(const void* data, size_t size) {
  const std::span bytes(static_cast<const std::byte*>(data), size);
  return load(tyto::vxrt::parse_image(bytes, "image in memory"), ImageForm::elf, "image in memory");
}

const LoadedImage& loaded(const std::shared_ptr<image_impl>& handle) {
  if (!handle) fail_usage("empty image handle");
  return handle->loaded;
}

size_t argument_count(const tyto::vxrt::Instance& instance) {
  return instance.arguments.size() + (instance.takes_call ? tyto::vxrt::kCallScalars : 0);
}

uuid uuid_of(const std::shared_ptr<image_impl>& handle) {
  const tyto::Hash128& hash = loaded(handle).image.hash;
  std::array<uint8_t, 16> bytes;
  std::memcpy(bytes.data(), &hash.high, 8);
  std::memcpy(bytes.data() + 8, &hash.low, 8);
  return uuid(bytes);
}

std::shared_ptr<hw_context_impl> open_context(const device& device) {
  if (!device) fail_usage("hw_context of no device");
  return std::make_shared<hw_context_impl>();
}

std::shared_ptr<hw_context_impl> open_context(const device& device,
                                              const std::shared_ptr<image_impl>& image) {
  loaded(image);
  auto context = open_context(device);
  Machine::get().configure(context->context, std::shared_ptr<LoadedImage>(image, &image->loaded));
  return context;
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

device::device(int index) : device(static_cast<unsigned>(index)) {}

device::device(const std::string& bdf) {
  if (bdf != kBdf && bdf != "0") fail_usage("no device at " + bdf);
  handle_ = std::make_shared<device_impl>();
}

uuid device::register_xclbin(const xclbin& image) {
  const uuid id = image.get_uuid();
  Registry& known = registry();
  std::lock_guard lock(known.mutex);
  known.images[id] = image.get_handle();
  return id;
}

std::string device::get_info_text(info::device what) const {
  if (!handle_) fail_usage("get_info of no device");
  const tyto::vxrt::Hardware hardware = Machine::get().hardware();
  const std::string_view name = *tyto::vxrt::device_name(hardware.machine);
  switch (what) {
    case info::device::bdf:
      return kBdf;
    case info::device::name:
      return fmt::format("{} (virtual)", name);
    case info::device::platform:
      return fmt::format(
          R"json({{"platforms":[{{"static_region":{{"name":"{} (virtual)","total_columns":"{}"}},)json"
          R"json("status":{{"power_mode":"default"}}}}]}})json",
          name, hardware.limits.columns);
    case info::device::host:
      return fmt::format(R"json({{"xrt":{{"version":"{}.{} (virtual)"}}}})json", version::kMajor,
                         version::kMinor);
  }
  fail_usage("get_info of something unknown");
}

elf::elf(const std::string& file)
    : handle_(load(tyto::vxrt::read_image(file), ImageForm::elf, file)) {}
elf::elf(const std::string_view& bytes) : handle_(load_bytes(bytes.data(), bytes.size())) {}
elf::elf(const void* data, size_t size) : handle_(load_bytes(data, size)) {}
elf::elf(std::istream& stream) {
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  handle_ = load_bytes(bytes.data(), bytes.size());
}

bool elf::is_full_elf() const {
  return loaded(handle_).image.form == ImageForm::elf;
}
uuid elf::get_cfg_uuid() const {
  return uuid_of(handle_);
}
elf::platform elf::get_platform() const {
  return static_cast<platform>(loaded(handle_).image.platform);
}
uint32_t elf::get_partition_size() const {
  return loaded(handle_).image.columns;
}
std::vector<elf::kernel> elf::get_kernels() const {
  loaded(handle_);
  return {kernel(handle_)};
}

std::string elf::kernel::get_name() const {
  return kElfKernel;
}
// Of an ELF with several instances: what the one with the longest list takes.
size_t elf::kernel::get_num_args() const {
  size_t most = 0;
  for (const tyto::vxrt::Instance& one : loaded(image_).image.instances)
    most = std::max(most, argument_count(one));
  return most;
}
elf::kernel::data_type elf::kernel::get_arg_data_type(size_t index) const {
  for (const tyto::vxrt::Instance& one : loaded(image_).image.instances) {
    if (index >= argument_count(one)) continue;
    return index < one.arguments.size() ? data_type::global : data_type::scalar;
  }
  fail_usage(fmt::format("no argument {}", index));
}
std::vector<elf::kernel::instance> elf::kernel::get_instances() const {
  std::vector<instance> result;
  for (const tyto::vxrt::Instance& one : loaded(image_).image.instances)
    result.emplace_back(one.name);
  return result;
}

xclbin::xclbin(const std::string& file)
    : handle_(load(tyto::vxrt::read_image(file), ImageForm::xclbin, file)) {}
xclbin::xclbin(const std::vector<char>& data)
    : handle_(load(tyto::vxrt::parse_image(std::as_bytes(std::span(data)), "xclbin"),
                   ImageForm::xclbin, "xclbin")) {}
uuid xclbin::get_uuid() const {
  return uuid_of(handle_);
}
std::vector<xclbin::kernel> xclbin::get_kernels() const {
  loaded(handle_);
  return {kernel("MLIR_AIE")};
}

hw_context::hw_context(const device& device, const elf& elf)
    : handle_(open_context(device, elf.get_handle())) {}
hw_context::hw_context(const device& device, const elf& elf, const cfg_param_type&)
    : hw_context(device, elf) {}
hw_context::hw_context(const device& device, const elf& elf, const cfg_param_type&, access_mode)
    : hw_context(device, elf) {}
hw_context::hw_context(const device& device, const elf& elf, const cfg_type&)
    : hw_context(device, elf) {}
hw_context::hw_context(const device& device, const elf& elf, const cfg_type&, access_mode)
    : hw_context(device, elf) {}
hw_context::hw_context(const device& device, const cfg_param_type&)
    : handle_(open_context(device)) {}
hw_context::hw_context(const device& device, const cfg_param_type&, access_mode)
    : handle_(open_context(device)) {}
hw_context::hw_context(const device& device, const uuid& id) : handle_(open_context(device, id)) {}
hw_context::hw_context(const device& device, const uuid& id, const cfg_param_type&)
    : hw_context(device, id) {}
hw_context::hw_context(const device& device, const uuid& id, const cfg_type&)
    : hw_context(device, id) {}
hw_context::hw_context(const device& device, const uuid& id, access_mode)
    : hw_context(device, id) {}

void hw_context::add_config(const elf& elf) {
  if (!handle_) fail_usage("add_config to no hw_context");
  loaded(elf.get_handle());
  const LoadedImage* present = handle_->context.image.get();
  if (present != nullptr && present->image.columns != elf.get_partition_size())
    fail_usage("partition size differs from the context's");
  if (present != nullptr) fail_usage(fmt::format("kernel already exists: {}", kElfKernel));
  Machine::get().configure(
      handle_->context, std::shared_ptr<LoadedImage>(elf.get_handle(), &elf.get_handle()->loaded));
}

}  // namespace vnpu
}  // namespace xrt
