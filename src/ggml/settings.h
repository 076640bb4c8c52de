// What the plug-in is told: the GGML_TYTO_* variables, read once. Programs that load a ggml backend
// have no flags for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "program/stitch.h"

namespace tyto::plugin {

constexpr const char* kNpuName = "XDNA0";
constexpr const char* kVirtualName = "VXDNA0";

constexpr const char* kAutoName = "auto";

struct Settings {
  std::string device;         // the only one to offer; empty: what there is; auto: the real ones
  bool require = false;       // an NPU must do the work, or the program ends
  int64_t min_n = 1;          // tokens of a product that goes to the device, at least
  int64_t max_n = INT64_MAX;  // and at most
  std::map<std::string, int64_t> min_n_of, max_n_of;  // of devices that have their own
  uint64_t min_macs = 0;                              // multiply-accumulates of one
  std::optional<Fusion> fusion;   // op or block; none: block where images can be made for it
  std::string machine = "strix";  // whose time the virtual NPU models
  std::string fault;              // that the virtual NPU is to have; empty: none
  std::string trace_file;
  std::string receipt_file;
};

// From the variables that begin with GGML_TYTO_. Throws a usage Error for one that is unknown,
// listing those that are, and for a value that cannot be.
Settings read_settings(const std::map<std::string, std::string>& variables);

// The same with what one device has for itself.
Settings settings_for(const std::string& device, Settings settings);

}  // namespace tyto::plugin
