#include "ggml/offer.h"

#include <ggml-backend-impl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "cost/cost_model.h"

namespace tyto::plugin {
namespace {

[[noreturn]] void fail(const std::string& name, const std::string& value, const char* wanted) {
  throw Error(ErrorCode::usage, name, fmt::format("'{}' is not {}", value, wanted));
}

template <typename Number>
Number number(const std::string& name, const std::string& value, Number least) {
  Number result{};
  const char* end = value.data() + value.size();
  const auto [stop, problem] = std::from_chars(value.data(), end, result);
  if (problem != std::errc{} || stop != end || result < least)
    fail(name, value, least == 0 ? "a whole number of 0 or more" : "a whole number of 1 or more");
  return result;
}

// "8" for every device, "XDNA0:8" for one, and lists of these.
void set_tokens(const std::string& name, const std::string& value, int64_t& of_all,
                std::map<std::string, int64_t>& of_device) {
  std::set<std::string> given;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string part = value.substr(begin, end - begin);
    const size_t colon = part.find(':');
    const std::string device = colon == std::string::npos ? "" : part.substr(0, colon);
    if (colon != std::string::npos && device != kNpuName && device != kVirtualName)
      fail(name, value, "for XDNA0 or VXDNA0");
    if (!given.insert(device).second) fail(name, value, "one number for each device");
    const auto tokens =
        number<int64_t>(name, colon == std::string::npos ? part : part.substr(colon + 1), 1);
    (device.empty() ? of_all : of_device[device]) = tokens;
    begin = end + 1;
  }
}

void check_tokens(const Settings& settings) {
  if (settings.min_n > settings.max_n)
    throw Error(ErrorCode::usage, "GGML_TYTO_MIN_N",
                fmt::format("{} is more than GGML_TYTO_MAX_N, {}", settings.min_n, settings.max_n));
}

using Variable = void (*)(Settings&, const std::string& name, const std::string& value);

struct Known {
  const char* name;
  Variable set;
};

const Known kKnown[] = {
    {"GGML_TYTO_DEVICE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value != kNpuName && value != kVirtualName && value != kAutoName)
         fail(name, value, "XDNA0, VXDNA0 or auto");
       settings.device = value;
     }},
    {"GGML_TYTO_REQUIRE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value != "0" && value != "1") fail(name, value, "0 or 1");
       settings.require = value == "1";
     }},
    {"GGML_TYTO_MIN_N",
     [](Settings& settings, const std::string& name, const std::string& value) {
       set_tokens(name, value, settings.min_n, settings.min_n_of);
     }},
    {"GGML_TYTO_MAX_N",
     [](Settings& settings, const std::string& name, const std::string& value) {
       set_tokens(name, value, settings.max_n, settings.max_n_of);
     }},
    {"GGML_TYTO_MIN_MACS",
     [](Settings& settings, const std::string& name, const std::string& value) {
       settings.min_macs = number<uint64_t>(name, value, 0);
     }},
    {"GGML_TYTO_FUSION",
     [](Settings& settings, const std::string& name, const std::string& value) {
       settings.fusion = fusion_from_name(value);
       if (!settings.fusion || settings.fusion == Fusion::token) fail(name, value, "op or block");
     }},
    {"GGML_TYTO_MACHINE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       try {
         settings.machine = npu_machine(value).name;
       } catch (const Error& error) {
         throw Error(ErrorCode::usage, name, fmt::format("'{}' is not modelled", value),
                     error.hint);
       }
     }},
    {"GGML_TYTO_FAULT",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value.empty()) fail(name, value, "a fault");  // which ones there are, its device says
       settings.fault = value;
     }},
    {"GGML_TYTO_TRACE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value.empty()) fail(name, value, "a file");
       settings.trace_file = value;
     }},
    {"GGML_TYTO_RECEIPT",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value.empty()) fail(name, value, "a file");
       settings.receipt_file = value;
     }},
};

}  // namespace

Settings read_settings(const std::map<std::string, std::string>& variables) {
  Settings settings;
  for (const auto& [name, value] : variables) {
    const Known* found = nullptr;
    for (const Known& known : kKnown)
      if (name == known.name) found = &known;
    if (found == nullptr)
      throw Error(ErrorCode::usage, name, "no such control of the plug-in",
                  "known are " + joined(kKnown, ", ", &Known::name));
    found->set(settings, name, value);
  }
  check_tokens(settings);
  for (const char* device : {kNpuName, kVirtualName}) check_tokens(settings_for(device, settings));
  if (settings.require && settings.device == kVirtualName)
    throw Error(ErrorCode::usage, "GGML_TYTO_REQUIRE",
                "a virtual NPU never satisfies it, and GGML_TYTO_DEVICE asks for that one");
  if (!settings.fault.empty() && settings.device != kVirtualName)
    throw Error(ErrorCode::usage, "GGML_TYTO_FAULT", "is for the virtual NPU",
                "give GGML_TYTO_DEVICE=VXDNA0 too");
  return settings;
}

Settings settings_for(const std::string& device, Settings settings) {
  const auto own = [&](const std::map<std::string, int64_t>& of_device, int64_t otherwise) {
    const auto found = of_device.find(device);
    return found == of_device.end() ? otherwise : found->second;
  };
  settings.min_n = own(settings.min_n_of, settings.min_n);
  settings.max_n = own(settings.max_n_of, settings.max_n);
  return settings;
}

namespace {

using Reason = std::optional<std::string>;

constexpr std::array kMatrixTypes = {GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                     GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};

bool is_plane(const ggml_tensor* tensor) {
  return tensor->ne[2] == 1 && tensor->ne[3] == 1;
}

// [width, tokens] of f32, whole rows, however far apart.
bool has_f32_rows(const ggml_tensor* tensor) {
  return tensor->type == GGML_TYPE_F32 && is_plane(tensor) && tensor->nb[0] == sizeof(float) &&
         tensor->nb[1] >= static_cast<size_t>(tensor->ne[0]) * sizeof(float);
}

bool is_f32_result(const ggml_tensor* op) {
  return op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

// While a model loads, ggml asks about weights with a buffer of no bytes, and about any number of
// tokens: the answer decides where a weight lies, not what runs.
bool is_question_of_place(const ggml_tensor* weight) {
  return weight->buffer != nullptr && weight->buffer->size == 0;
}

// The plug-in knows only of its own memory what was written when. A weight that has no memory yet
// will get it from the backend that offers to compute.
bool is_ours(const Offer& offer, const ggml_tensor* weight) {
  return weight->buffer == nullptr || weight->buffer->buft == offer.memory;
}

Reason why_not_mul_mat(const Offer& offer, const ggml_tensor* op) {
  const ggml_tensor *weight = op->src[0], *x = op->src[1];
  if (weight->ne[2] != 1 || weight->ne[3] != 1) return "more than one matrix at once";
  if (weight->op != GGML_OP_NONE || weight->view_src != nullptr)
    return "a product of two computed values, such as attention's";
  if (!is_weight_matrix(weight))
    return fmt::format("weights of type {}", ggml_type_name(weight->type));
  if (!is_ours(offer, weight)) return "its weight lies in another device's memory";
  if (!has_f32_rows(x) || !is_f32_result(op)) return "activations that are not rows of f32";
  if (ggml_is_empty(op) || weight->ne[0] == 0) return "an empty product";
  const auto k = static_cast<uint64_t>(weight->ne[0]);
  if (k > offer.longest_k)
    return fmt::format("K = {} is more than {}, the most there is a kernel for", k,
                       offer.longest_k);
  if (k % offer.k_multiple != 0)
    return fmt::format("K = {} is not a multiple of {}", k, offer.k_multiple);
  if (is_question_of_place(weight)) return std::nullopt;
  const Settings& settings = offer.settings;
  if (x->ne[1] < settings.min_n || x->ne[1] > settings.max_n)
    return "a number of tokens outside GGML_TYTO_MIN_N and GGML_TYTO_MAX_N";
  if (static_cast<uint64_t>(op->ne[0]) * static_cast<uint64_t>(op->ne[1]) * k < settings.min_macs)
    return "fewer multiply-accumulates than GGML_TYTO_MIN_MACS";
  return std::nullopt;
}

bool is_offered(const Offer& offer, const ggml_tensor* op, ggml_op kind) {
  return op->op == kind && !why_not(offer, op);
}

Reason why_not_add(const Offer& offer, const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  if (!has_f32_rows(a) || !has_f32_rows(b) || !is_f32_result(op) || !ggml_are_same_shape(a, b))
    return "a sum that is not of two f32 matrices of one shape";
  if (!is_offered(offer, a, GGML_OP_MUL_MAT) && !is_offered(offer, b, GGML_OP_MUL_MAT))
    return "a sum that does not follow a projection";
  return std::nullopt;
}

Reason why_not_rms_norm(const Offer& offer, const ggml_tensor* op) {
  if (!is_offered(offer, op->src[0], GGML_OP_ADD))
    return "a norm of something other than a residual sum";
  return is_f32_result(op) ? Reason{} : "a norm whose result is not f32";
}

Reason why_not_mul(const Offer& offer, const ggml_tensor* op) {
  const ggml_tensor* vector = op->src[1];
  if (!is_weight_vector(vector) || vector->ne[0] != op->ne[0])
    return "an element-wise product that is not of rows and a vector";
  if (!is_ours(offer, vector)) return "its weight lies in another device's memory";
  if (is_question_of_place(vector)) return std::nullopt;
  if (!is_offered(offer, op->src[0], GGML_OP_RMS_NORM) || !is_f32_result(op))
    return "a product that is not the end of a norm";
  return std::nullopt;
}

Reason why_not_rope(const Offer& offer, const ggml_tensor* op) {
  const ggml_tensor *x = op->src[0], *positions = op->src[1], *factors = op->src[2];
  int32_t params[16];
  std::memcpy(params, op->op_params, sizeof params);
  float extension;
  std::memcpy(&extension, params + 7, sizeof extension);
  const int32_t dims = params[1], mode = params[2], offset = params[15];
  if (x->type != GGML_TYPE_F32 || !is_f32_result(op) || op->ne[3] != 1)
    return "a rotation of values that are not f32";
  if (dims != op->ne[0] || dims % 2 != 0 || offset != 0) return "a rotation of parts of a head";
  if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX)
    return "a rotation by more than one position";
  if (extension != 0) return "a rotation with YaRN's extension";
  if (positions->type != GGML_TYPE_I32 || !ggml_is_contiguous(positions) ||
      positions->ne[0] != op->ne[2])
    return "positions that are not one i32 a token";
  if (factors != nullptr && (factors->type != GGML_TYPE_F32 || !ggml_is_contiguous(factors)))
    return "frequency factors that are not f32";
  if (!is_offered(offer, behind_reshapes(x), GGML_OP_MUL_MAT))
    return "a rotation that does not follow a projection";
  return std::nullopt;
}

Reason why_not_glu(const Offer& offer, const ggml_tensor* op) {
  if (ggml_get_glu_op(op) != GGML_GLU_OP_SWIGLU || op->src[1] == nullptr)
    return "gating other than SwiGLU of two projections";
  if (!is_offered(offer, op->src[0], GGML_OP_MUL_MAT) ||
      !is_offered(offer, op->src[1], GGML_OP_MUL_MAT) || !is_f32_result(op))
    return "gating that does not follow its projections";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_not(const Offer& offer, const ggml_tensor* op) {
  if (is_only_a_view(op)) return std::nullopt;
  if (op->op == GGML_OP_MUL_MAT) return why_not_mul_mat(offer, op);
  if (op->op == GGML_OP_MUL_MAT_ID) return "experts chosen by the token";
  if (!offer.fuses)
    return fmt::format("{}: only matrix products go to the device", ggml_op_name(op->op));
  switch (op->op) {
    case GGML_OP_ADD:
      return why_not_add(offer, op);
    case GGML_OP_RMS_NORM:
      return why_not_rms_norm(offer, op);
    case GGML_OP_MUL:
      return why_not_mul(offer, op);
    case GGML_OP_ROPE:
      return why_not_rope(offer, op);
    case GGML_OP_GLU:
      return why_not_glu(offer, op);
    default:
      return fmt::format("{}: there is no kernel for it", ggml_op_name(op->op));
  }
}

bool is_only_a_view(const ggml_tensor* op) {
  return op->op == GGML_OP_NONE || op->op == GGML_OP_RESHAPE || op->op == GGML_OP_VIEW ||
         op->op == GGML_OP_PERMUTE || op->op == GGML_OP_TRANSPOSE;
}

const ggml_tensor* behind_reshapes(const ggml_tensor* tensor) {
  while (tensor->op == GGML_OP_RESHAPE && ggml_is_contiguous(tensor)) tensor = tensor->src[0];
  return tensor;
}

bool is_weight_matrix(const ggml_tensor* tensor) {
  bool is_known = false;
  for (const ggml_type type : kMatrixTypes) is_known = is_known || tensor->type == type;
  return is_known && is_plane(tensor) && ggml_is_contiguous(tensor) && !ggml_is_empty(tensor);
}

bool is_weight_vector(const ggml_tensor* tensor) {
  return tensor->type == GGML_TYPE_F32 && tensor->op == GGML_OP_NONE &&
         tensor->view_src == nullptr && ggml_nelements(tensor) == tensor->ne[0] &&
         tensor->ne[0] > 0;
}

TensorView view_of(const ggml_tensor* tensor) {
  const auto type = dtype_from_ggml(static_cast<uint32_t>(tensor->type));
  TYTO_ASSERT(type);
  return {*type,
          static_cast<uint64_t>(tensor->ne[1]),
          static_cast<uint64_t>(tensor->ne[0]),
          {static_cast<const std::byte*>(tensor->data), ggml_nbytes(tensor)}};
}

int64_t tokens_of(const ggml_tensor* value) {
  return value->op == GGML_OP_ROPE ? value->ne[2] : value->ne[1];
}

int64_t width_of(const ggml_tensor* value) {
  return value->op == GGML_OP_ROPE ? value->ne[0] * value->ne[1] : value->ne[0];
}

OperandRows operand_rows(const ggml_tensor* op, const ggml_tensor* operand) {
  if (op->op != GGML_OP_ROPE) return {static_cast<uint64_t>(operand->ne[0]), operand->nb[1]};
  return {static_cast<uint64_t>(operand->ne[0] * operand->ne[1]), operand->nb[2]};
}

}  // namespace tyto::plugin
