// Memory of the plug-in's devices, as ggml's buffer types. It is host memory in ggml's own layouts,
// so that whatever the NPU does not take runs elsewhere without a copy; the NPU's form of a weight
// is made beside it, when the weight is loaded.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/round_up.h"
#include "ggml/offer.h"
#include "ggml/plugin_device.h"

namespace tyto::plugin {
namespace {

constexpr size_t kAlignment = 64;

struct HostBuffer {
  PluginDevice& device;
  std::byte* base = nullptr;
  size_t bytes = 0;
  bool is_mapped = false;  // a model's file: its contents are there from the beginning
  bool has_weights = false;

  ~HostBuffer() {
    if (!is_mapped) std::free(base);
  }
};

HostBuffer& buffer_of(ggml_backend_buffer_t buffer) {
  return *static_cast<HostBuffer*>(buffer->context);
}

PluginDevice& device_of(ggml_backend_buffer_type_t type) {
  return *static_cast<PluginDevice*>(type->context);
}

bool may_be_weight(const Session& session, const ggml_tensor* tensor) {
  if (tensor->view_src != nullptr || tensor->op != GGML_OP_NONE) return false;
  if (is_weight_vector(tensor)) return session.offer().fuses;
  return is_weight_matrix(tensor) &&
         static_cast<uint64_t>(tensor->ne[0]) <= session.offer().longest_k;
}

void load_weight(HostBuffer& buffer, const ggml_tensor* tensor) {
  guarded(buffer.device, [&](Session& session) {
    if (!may_be_weight(session, tensor)) return;
    buffer.has_weights = true;
    try {
      session.load_weight(tensor);
    } catch (const Error& error) {
      // Values that eight bits cannot hold: found again, and reported, when it is used.
      if (error.code == ErrorCode::device) throw;
    }
  });
}

void forget(HostBuffer& buffer, const void* begin, size_t bytes) {
  if (!buffer.device.session) return;
  guarded(buffer.device, [&](Session& session) {
    session.forget(begin, static_cast<const std::byte*>(begin) + bytes);
  });
}

void free_buffer(ggml_backend_buffer_t handle) {
  HostBuffer& buffer = buffer_of(handle);
  forget(buffer, buffer.base, buffer.bytes);
  // A server is ended by a signal; this is the last that is known of its model.
  if (buffer.has_weights) guarded(buffer.device, [&](Session&) { write_files(buffer.device); });
  delete &buffer;
}

void* get_base(ggml_backend_buffer_t handle) {
  return buffer_of(handle).base;
}

ggml_status init_tensor(ggml_backend_buffer_t handle, ggml_tensor* tensor) {
  if (buffer_of(handle).is_mapped) load_weight(buffer_of(handle), tensor);
  return GGML_STATUS_SUCCESS;
}

void memset_tensor(ggml_backend_buffer_t handle, ggml_tensor* tensor, uint8_t value, size_t offset,
                   size_t bytes) {
  forget(buffer_of(handle), tensor->data, ggml_nbytes(tensor));
  std::memset(static_cast<std::byte*>(tensor->data) + offset, value, bytes);
}

void set_tensor(ggml_backend_buffer_t handle, ggml_tensor* tensor, const void* data, size_t offset,
                size_t bytes) {
  HostBuffer& buffer = buffer_of(handle);
  forget(buffer, tensor->data, ggml_nbytes(tensor));
  std::memcpy(static_cast<std::byte*>(tensor->data) + offset, data, bytes);
  if (offset == 0 && bytes == ggml_nbytes(tensor)) load_weight(buffer, tensor);
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, size_t offset,
                size_t bytes) {
  std::memcpy(data, static_cast<const std::byte*>(tensor->data) + offset, bytes);
}

void clear(ggml_backend_buffer_t handle, uint8_t value) {
  HostBuffer& buffer = buffer_of(handle);
  forget(buffer, buffer.base, buffer.bytes);
  std::memset(buffer.base, value, buffer.bytes);
}

constexpr ggml_backend_buffer_i kFunctions = {.free_buffer = free_buffer,
                                              .get_base = get_base,
                                              .init_tensor = init_tensor,
                                              .memset_tensor = memset_tensor,
                                              .set_tensor = set_tensor,
                                              .get_tensor = get_tensor,
                                              .set_tensor_2d = nullptr,
                                              .get_tensor_2d = nullptr,
                                              .cpy_tensor = nullptr,
                                              .clear = clear,
                                              .reset = nullptr};

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t bytes) {
  const size_t whole = round_up(std::max<size_t>(bytes, 1), kAlignment);
  void* memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) {
    print_error(device_of(type).name + ": no memory for " + std::to_string(bytes) + " bytes");
    return nullptr;
  }
  auto* buffer = new HostBuffer{device_of(type), static_cast<std::byte*>(memory), bytes};
  return ggml_backend_buffer_init(type, kFunctions, buffer, bytes);
}

}  // namespace

ggml_backend_buffer_type_i memory_functions() {
  return {.get_name = [](ggml_backend_buffer_type_t type) { return device_of(type).name.c_str(); },
          .alloc_buffer = alloc_buffer,
          .get_alignment = [](ggml_backend_buffer_type_t) { return kAlignment; },
          .get_max_size = nullptr,
          .get_alloc_size = nullptr,
          .is_host = [](ggml_backend_buffer_type_t) { return true; }};
}

ggml_backend_buffer_t buffer_of_host_memory(PluginDevice& device, void* memory, size_t bytes) {
  auto* buffer = new HostBuffer{device, static_cast<std::byte*>(memory), bytes, true};
  return ggml_backend_buffer_init(&device.memory, kFunctions, buffer, bytes);
}

}  // namespace tyto::plugin
