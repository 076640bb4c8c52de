#pragma once

#include <ggml-backend-impl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "ggml/offer.h"
#include "ggml/session.h"

namespace tyto::plugin {

// What ran where, in one line for the terminal and as JSON for a file.

struct Origin {
  std::string device;  // as llama.cpp calls it
  std::string version, ggml_version;
};

std::string receipt_line(const Session& session, const Origin& origin);
inline constexpr FileKind kPluginReceiptFile = {"a receipt of this plug-in",
                                                "{\n  \"tyto_version\": "};
std::string receipt_json(const Session& session, const Origin& origin);
// Chrome trace events; the session must have recorded.
std::string trace_json(const Session& session, const Origin& origin);

// A device as ggml lists it, and the NPU behind it, opened when it is first asked about.

struct PluginDevice {
  std::string name, description;
  bool is_virtual = false;
  Settings settings;
  ggml_backend_buffer_type memory = {};  // its buffer type
  ggml_backend_device device = {};

  std::mutex opening;
  std::unique_ptr<Session> session;   // none until opened
  std::string problem;                // why it could not be, or a weight could not be loaded
  bool is_used = false;               // a backend was made for it
  size_t notices = 0, fallbacks = 0;  // that were printed
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
