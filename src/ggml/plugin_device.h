// A device as ggml lists it, and the NPU behind it, opened when it is first asked about.
#pragma once

#include <ggml-backend-impl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ggml/plugin_receipt.h"
#include "ggml/session.h"
#include "ggml/settings.h"

namespace tyto::plugin {

struct PluginDevice {
  std::string name, description;
  bool is_virtual = false;
  Settings settings;
  ggml_backend_buffer_type memory = {};  // its buffer type
  ggml_backend_device device = {};

  std::mutex opening;
  std::unique_ptr<Session> session;  // none until opened
  std::string problem;               // why it could not be, or a weight could not be loaded
  bool is_used = false;              // a backend was made for it
};

// Opens the NPU if need be. Null when it cannot be; the reason has then been printed, once.
Session* session_of(PluginDevice& device);

// Runs `function` on the opened session, under its lock. No exception leaves: an error is printed
// and kept in `problem`, and false returned.
bool guarded(PluginDevice& device, const std::function<void(Session&)>& function);

// The buffer type's functions: plain host memory, which every other backend can read.
ggml_backend_buffer_type_i memory_functions();
ggml_backend_buffer_t buffer_of_host_memory(PluginDevice& device, void* memory, size_t bytes);

// The device's functions.
ggml_backend_device_i device_functions();

Origin origin_of(const PluginDevice& device);
void print_error(const std::string& text);  // one line
// Receipt and trace files as of now.
void write_files(const PluginDevice& device);

}  // namespace tyto::plugin
