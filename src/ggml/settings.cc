#include "ggml/settings.h"

#include <charconv>
#include <span>

#include "base/error.h"
#include "base/joined.h"
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

using Variable = void (*)(Settings&, const std::string& name, const std::string& value);

struct Known {
  const char* name;
  Variable set;
};

const Known kKnown[] = {
    {"GGML_TYTO_DEVICE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value != kNpuName && value != kVirtualName) fail(name, value, "XDNA0 or VXDNA0");
       settings.device = value;
     }},
    {"GGML_TYTO_REQUIRE",
     [](Settings& settings, const std::string& name, const std::string& value) {
       if (value != "0" && value != "1") fail(name, value, "0 or 1");
       settings.require = value == "1";
     }},
    {"GGML_TYTO_MIN_N",
     [](Settings& settings, const std::string& name, const std::string& value) {
       settings.min_n = number<int64_t>(name, value, 1);
     }},
    {"GGML_TYTO_MAX_N",
     [](Settings& settings, const std::string& name, const std::string& value) {
       settings.max_n = number<int64_t>(name, value, 1);
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
  if (settings.min_n > settings.max_n)
    throw Error(ErrorCode::usage, "GGML_TYTO_MIN_N",
                fmt::format("{} is more than GGML_TYTO_MAX_N, {}", settings.min_n, settings.max_n));
  if (settings.require && settings.device == kVirtualName)
    throw Error(ErrorCode::usage, "GGML_TYTO_REQUIRE",
                "a virtual NPU never satisfies it, and GGML_TYTO_DEVICE asks for that one");
  if (!settings.fault.empty() && settings.device != kVirtualName)
    throw Error(ErrorCode::usage, "GGML_TYTO_FAULT", "is for the virtual NPU",
                "give GGML_TYTO_DEVICE=VXDNA0 too");
  return settings;
}

}  // namespace tyto::plugin
