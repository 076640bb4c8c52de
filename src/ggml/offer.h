// Which ggml operations the device takes. Products with a weight are offered by themselves; what
// lies between two of them (norms, rotation, gating, residual sums) only where it follows one, so
// that it becomes part of the same dispatch.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "program/stitch.h"
#include "tensor/dtype.h"

namespace tyto::plugin {

// What the plug-in is told: the GGML_TYTO_* variables, read once. Programs that load a ggml backend
// have no flags for it.

constexpr const char* kNpuName = "XDNA0";
constexpr const char* kVirtualName = "VXDNA0";

constexpr const char* kAutoName = "auto";

struct Settings {
  std::string device;         // the only one to offer; empty: what there is; auto: the real ones
  bool require = false;       // an NPU must do the work, or the program ends
  int64_t min_n = 1;          // tokens of a product that goes to the device, at least
  int64_t max_n = INT64_MAX;  // and at most
  std::map<std::string, int64_t> min_n_of, max_n_of;  // for devices that have their own
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

// What the device makes of products.
struct Offer {
  Settings settings;
  ggml_backend_buffer_type_t memory = nullptr;  // where weights must lie
  bool fuses = false;                           // else products alone
  uint64_t longest_k = 0;                       // the longest row's; 0: no limit
  uint32_t k_multiple = 1;                      // a row's length must be
};

// Nothing where the operation is offered, else the reason.
std::optional<std::string> why_not(const Offer& offer, const ggml_tensor* op);

// Computes nothing: another shape for the same memory.
bool is_only_a_view(const ggml_tensor* op);

// The tensor behind reshapes that keep all its values in their order.
const ggml_tensor* behind_reshapes(const ggml_tensor* tensor);

// A matrix that can be multiplied by, or a norm's vector, by type and shape alone.
bool is_weight_matrix(const ggml_tensor* tensor);
bool is_weight_vector(const ggml_tensor* tensor);
TensorView view_of(const ggml_tensor* tensor);  // for either

// Rows of a value: tokens. A rotated value has heads of its own dimension.
int64_t tokens_of(const ggml_tensor* value);
int64_t width_of(const ggml_tensor* value);

// How an operand that comes from outside lies in memory, a row per token: whole rows also of a
// rotation, which sees heads.
struct OperandRows {
  uint64_t width = 0;   // values
  size_t distance = 0;  // bytes from one to the next
};
OperandRows operand_rows(const ggml_tensor* op, const ggml_tensor* operand);

}  // namespace tyto::plugin
