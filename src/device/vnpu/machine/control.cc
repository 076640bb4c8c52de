#include "device/vnpu/machine/control.h"

#include <charconv>
#include <utility>

#include "base/error.h"
#include "cost/cost_model.h"
#include "device/vnpu/machine/machine.h"

namespace tyto::vxrt {
namespace {

struct FaultName {
  std::string_view name;
  FaultKind kind;
};

constexpr FaultName kFaults[] = {
    {"timeout", FaultKind::timeout}, {"error", FaultKind::error},
    {"hang", FaultKind::hang},       {"oom", FaultKind::out_of_memory},
    {"corrupt", FaultKind::corrupt}, {"context-lost", FaultKind::context_lost},
    {"flip", FaultKind::flip},
};

[[noreturn]] void fail_fault(std::string_view text) {
  throw Error(ErrorCode::usage, "fault", fmt::format("'{}' is not known", text),
              "timeout@n, error@n, hang, oom, context-lost, slow×k, corrupt@n or flip@n");
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

}  // namespace

Fault parse_fault(std::string_view text) {
  for (std::string_view times : {"slow×", "slowx"}) {
    if (!text.starts_with(times)) continue;
    Fault fault{.kind = FaultKind::slow};
    if (!parse_whole(text.substr(times.size()), fault.factor) || !(fault.factor > 0) ||
        fault.factor > 1e9)
      fail_fault(text);
    return fault;
  }
  const size_t at = text.find('@');
  for (const FaultName& entry : kFaults) {
    if (text.substr(0, at) != entry.name) continue;
    Fault fault{.kind = entry.kind};
    if (at != text.npos && (!parse_whole(text.substr(at + 1), fault.at) || fault.at == 0))
      fail_fault(text);
    fault.number = fault.at;
    return fault;
  }
  fail_fault(text);
}

void reset(const Hardware& hardware) {
  npu_machine(hardware.machine);  // throws for an unknown one
  Machine::get().reset(hardware);
}

void inject(const Fault& fault) {
  TYTO_ASSERT(fault.at > 0);
  Machine::get().inject(fault);
}

void set_hostile(bool hostile) {
  Machine::get().set_hostile(hostile);
}

void pause() {
  Machine::get().set_paused(true);
}

void resume() {
  Machine::get().set_paused(false);
}

Hardware hardware() {
  return Machine::get().hardware();
}

uint64_t busy_ns() {
  return Machine::get().busy_ns();
}

Counters counters() {
  return Machine::get().counters();
}

}  // namespace tyto::vxrt
