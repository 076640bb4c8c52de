#include "ggml/settings.h"

#include <algorithm>
#include <charconv>
#include <set>
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

}  // namespace tyto::plugin
