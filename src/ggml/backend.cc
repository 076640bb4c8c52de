// The plug-in as ggml sees it: tables of functions, at whose edge every error becomes a status.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/round_up.h"
#include "base/utf8.h"
#include "device/npu/npu_entry.h"
#include "ggml/offer.h"
#include "ggml/plugin.h"
#include "report/report.h"

namespace tyto::plugin {
namespace {

PluginDevice& device_of(ggml_backend_dev_t device) {
  return *static_cast<PluginDevice*>(device->context);
}

PluginDevice& device_of(ggml_backend_t backend) {
  return device_of(backend->device);
}

// ---- a backend: one stream of graphs

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  const bool is_done =
      guarded(device_of(backend), [&](Session& session) { session.compute(graph); });
  return is_done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

// ggml calls this for every part of a graph before the first of them runs, so that all programs go
// into one image. It may not fail: computing will, with the same error.
void graph_optimize(ggml_backend_t backend, ggml_cgraph* graph,
                    ggml_backend_graph_optimize_params*) {
  guarded(device_of(backend), [&](Session& session) { session.prepare(graph); });
}

void free_backend(ggml_backend_t backend) {
  delete backend;
}

constexpr uint8_t kGuid[16] = {0x74, 0x79, 0x74, 0x6f, 0x2d, 0x6e, 0x70, 0x75,
                               0x91, 0x3c, 0x5d, 0x02, 0xa6, 0xe8, 0x4b, 0x17};

ggml_backend_i backend_functions() {
  ggml_backend_i functions = {};
  functions.get_name = [](ggml_backend_t backend) { return device_of(backend).name.c_str(); };
  functions.free = free_backend;
  functions.graph_compute = graph_compute;
  functions.graph_optimize = graph_optimize;
  return functions;
}

// ---- a device

// Weights were loaded before this: what went wrong then ends the program before its first token.
ggml_backend_t init_backend(ggml_backend_dev_t handle, const char*) {
  PluginDevice& device = device_of(handle);
  if (session_of(device) == nullptr || !device.problem.empty()) return nullptr;
  device.is_used = true;
  static ggml_guid guid;
  std::memcpy(guid, kGuid, sizeof guid);
  return new ggml_backend{&guid, backend_functions(), handle, nullptr};
}

void get_memory(ggml_backend_dev_t, size_t* free, size_t* total) {
  *free = *total = 0;
  const std::string text = read_system_text("/proc/meminfo").text;
  const auto kib = [&](const char* field) {
    const size_t at = text.find(field);
    return at == std::string::npos
               ? 0
               : std::strtoull(text.c_str() + at + std::strlen(field), nullptr, 10);
  };
  *total = kib("MemTotal:") * 1024;
  *free = kib("MemAvailable:") * 1024;
}

void get_props(ggml_backend_dev_t handle, ggml_backend_dev_props* props) {
  const PluginDevice& device = device_of(handle);
  *props = {};
  props->name = device.name.c_str();
  props->description = device.description.c_str();
  get_memory(handle, &props->memory_free, &props->memory_total);
  props->type = GGML_BACKEND_DEVICE_TYPE_IGPU;
  props->caps.buffer_from_host_ptr = true;
  props->caps.mmap_support = true;
}

bool supports_op(ggml_backend_dev_t handle, const ggml_tensor* op) {
  bool is_offered = false;
  guarded(device_of(handle), [&](Session& session) { is_offered = session.supports(op); });
  return is_offered;
}

// ---- the plug-in

struct Plugin {
  std::vector<std::unique_ptr<PluginDevice>> devices;
  ggml_backend_reg registration = {};
};

void offer(Plugin& plugin, const Settings& settings, bool is_virtual) {
  auto device = std::make_unique<PluginDevice>();
  device->name = is_virtual ? kVirtualName : kNpuName;
  device->description = is_virtual ? "virtual XDNA2 NPU, times are modelled (Tyto)"
                                   : "AMD XDNA2 NPU through XRT (Tyto)";
  device->is_virtual = is_virtual;
  device->settings = settings_for(device->name, settings);
  device->memory = {memory_functions(), &device->device, device.get()};
  device->device = {device_functions(), &plugin.registration, device.get()};
  plugin.devices.push_back(std::move(device));
}

[[noreturn]] void end_program(const std::string& why) {
  print_error(why);
  std::_Exit(EXIT_FAILURE);  // in the middle of another program: no destructors
}

// The one moment at which all work is known. Left as it is: ggml never unloads a backend.
void report(const Plugin& plugin) {
  for (const auto& device : plugin.devices) {
    if (!device->is_used || !device->session) continue;
    const std::lock_guard lock(device->session->mutex);
    const std::string line = receipt_line(*device->session, origin_of(*device));
    std::fprintf(stderr, "%s\n", printable_line(line).c_str());
    write_files(*device);
    if (device->settings.require && device->session->counts().products == 0)
      end_program("GGML_TYTO_REQUIRE: " + device->name +
                  " was used, and not one product ran on it");
  }
}

void check_version() {
  if (std::strcmp(ggml_version(), TYTO_GGML_VERSION) == 0) return;
  throw Error(ErrorCode::unsupported, "libggml-tyto.so",
              fmt::format("was built for ggml {}, and this program has ggml {}", TYTO_GGML_VERSION,
                          ggml_version()),
              "build it with -DTYTO_LLAMA_CPP=the source of this llama.cpp");
}

// Checked at the start: at the end an error could not be reported any more.
void check_writable(const char* variable, const std::string& path, const FileKind& kind) {
  if (path.empty()) return;
  try {
    const AtomicFile made(path, Replace::same_kind, kind);  // and removed again
  } catch (const Error& error) {
    throw Error(ErrorCode::usage, variable, error.what());
  }
}

void offer_devices(Plugin& plugin) {
  const Settings settings = read_settings(environment_of("GGML_TYTO_"));
  check_writable("GGML_TYTO_RECEIPT", settings.receipt_file, kPluginReceiptFile);
  check_writable("GGML_TYTO_TRACE", settings.trace_file, kPerfettoFile);
  const auto missing = why_no_npu();
  const bool is_auto = settings.device == kAutoName;
  const bool wants_npu = settings.device != kVirtualName,
             wants_virtual = settings.device != kNpuName && !is_auto;
  if (settings.require && missing)
    end_program("GGML_TYTO_REQUIRE: no NPU can be used: " + *missing);
  if (missing && settings.device == kNpuName)
    throw Error(ErrorCode::device, kNpuName, *missing, "VXDNA0 is a virtual one");
  if (missing && is_auto)
    print_error("GGML_TYTO_DEVICE: auto offers nothing, as no NPU can be used: " + *missing);
  if (!missing && wants_npu) offer(plugin, settings, false);
  if (wants_virtual && !settings.require) offer(plugin, settings, true);
}

Plugin* plugin() {
  static Plugin* const made = []() -> Plugin* {
    auto plugin = std::make_unique<Plugin>();
    try {
      check_version();
      offer_devices(*plugin);
    } catch (const Error& error) {
      print_error(std::string(error.what()) + (error.hint.empty() ? "" : " (" + error.hint + ")"));
      return nullptr;
    }
    return plugin.release();
  }();
  return made;
}

void* get_proc_address(ggml_backend_reg_t, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") != 0) return nullptr;
  const ggml_backend_set_n_threads_t set = [](ggml_backend_t backend, int threads) {
    guarded(device_of(backend), [&](Session& session) { session.set_threads(threads); });
  };
  return reinterpret_cast<void*>(set);
}

ggml_backend_reg_t registration() {
  Plugin* made = plugin();
  if (made == nullptr) return nullptr;
  if (made->registration.api_version == 0) {
    made->registration.api_version = GGML_BACKEND_API_VERSION;
    made->registration.iface = {
        .get_name = [](ggml_backend_reg_t) { return "Tyto"; },
        .get_device_count = [](ggml_backend_reg_t) { return plugin()->devices.size(); },
        .get_device = [](ggml_backend_reg_t,
                         size_t index) { return &plugin()->devices[index]->device; },
        .get_proc_address = get_proc_address};
    // What an Error needs is made with the first one, and must outlive the report.
    static const Error first(ErrorCode::usage, kNpuName, "");
    std::atexit([] { report(*plugin()); });
  }
  return &made->registration;
}

}  // namespace

ggml_backend_device_i device_functions() {
  ggml_backend_device_i functions = {};
  functions.get_name = [](ggml_backend_dev_t device) { return device_of(device).name.c_str(); };
  functions.get_description = [](ggml_backend_dev_t device) {
    return device_of(device).description.c_str();
  };
  functions.get_memory = get_memory;
  // It shares the host's memory, and with this type llama.cpp takes it by itself only where there
  // is no GPU.
  functions.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_IGPU; };
  functions.get_props = get_props;
  functions.init_backend = init_backend;
  functions.get_buffer_type = [](ggml_backend_dev_t device) -> ggml_backend_buffer_type_t {
    return &device_of(device).memory;
  };
  functions.buffer_from_host_ptr = [](ggml_backend_dev_t device, void* memory, size_t bytes,
                                      size_t) {
    return buffer_of_host_memory(device_of(device), memory, bytes);
  };
  functions.supports_op = supports_op;
  functions.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_is_host(type);
  };
  return functions;
}

}  // namespace tyto::plugin

extern "C" {
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);
}

ggml_backend_reg_t ggml_backend_init(void) {
  return tyto::plugin::registration();
}

namespace tyto::plugin {

// Memory of the plug-in's devices, as ggml's buffer types. It is host memory in ggml's own layouts,
// so that whatever the NPU does not take runs elsewhere without a copy; the NPU's form of a weight
// is made beside it, when the weight is loaded.

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
