// A profile made by hand, with times that add up in the head: one virtual device "vnpu", the cpu as
// its host, two layers of one program each, a prefill and decoded tokens.
#pragma once

#include <cstdint>
#include <string>

#include "trace/profile.h"

namespace tyto::test {

constexpr uint64_t kMs = 1'000'000;

class ProfileBuilder {
 public:
  ProfileBuilder() {
    Facts& facts = profile_.facts;
    facts.origin.version = "1.2.3";
    facts.origin.time = "2026-01-31T12:00:00Z";
    facts.origin.command = "tyto profile -p 'a <b> & \"c\"'";
    facts.origin.model = "/models/two-layers";
    facts.origin.model_format = "safetensors";
    facts.origin.weight_bytes = 5'000'000;
    facts.origin.weights_hash = "00112233445566778899aabbccddeeff";
    facts.origin.weights_hash_form = "a form";
    facts.origin.fusion = "block";
    facts.model_name = "two-layers";
    facts.layers = 2;
    facts.threads = 2;
    facts.context = 128;
    facts.prefill_chunk = 64;
    facts.kv_type = "f16";
    facts.sampling = "greedy";
    facts.devices = {
        {.name = "vnpu",
         .tag = "NPU",
         .description = "virtual",
         .is_virtual = true,
         .is_host = false,
         .peak = {.gb_s = 100, .gflops = 1000, .dispatch_us = 50, .source = "a table"}},
        {.name = "cpu",
         .tag = "CPU",
         .description = "a processor",
         .is_virtual = false,
         .is_host = true,
         .peak = {}}};
    facts.origin.limits = {{"vnpu", facts.devices[0].peak}};
    profile_.setup = {{"model file", 1000 * kMs, 1030 * kMs},
                      {"weights to buffers", 1030 * kMs, 1050 * kMs},
                      {"weights to buffers", 1060 * kMs, 1090 * kMs}};
    profile_.setup_seconds = 0.1;
  }

  uint16_t name(const EventName& wanted) {
    for (size_t i = 0; i < profile_.names.size(); ++i)
      if (profile_.names[i] == wanted) return static_cast<uint16_t>(i);
    profile_.names.push_back(wanted);
    return static_cast<uint16_t>(profile_.names.size() - 1);
  }

  // Each of these takes the given time and moves the clock on.
  void gap(double ms) { at_ += ns(ms); }
  void host(const std::string& label, double ms) {
    push({.name = name({.label = label}), .kind = EventKind::host}, ms);
  }
  void open_run(uint32_t position, uint32_t rows) {
    run_ = {.start_ns = at_, .token = token_, .position = position, .rows = rows};
    run_.name = name({.label = "run"});
    run_.kind = EventKind::run;
  }
  void close_run() {
    run_.end_ns = at_;
    events_.push_back(run_);
  }
  struct Work {
    double write = 0, run = 0, read = 0;
    uint64_t bytes = 0, flops = 0;
  };
  // `launches` share the run time equally, after `call_ms` of overhead.
  void dispatch(const EventName& step, uint8_t device, const Work& work,
                const std::vector<EventName>& launches, double call_ms = 0) {
    Event event{.dispatch = ++dispatch_, .name = name(step), .device = device};
    const auto part = [&](EventKind kind, double ms, uint64_t bytes) {
      Event one = event;
      one.kind = kind;
      one.bytes = bytes;
      push(one, ms);
    };
    if (work.write > 0) part(EventKind::upload, work.write, 1'000'000);
    const double each = (work.run - call_ms) / static_cast<double>(launches.size());
    const uint64_t begin = at_;
    at_ += ns(call_ms);
    for (const EventName& launch : launches) {
      Event one = event;
      one.kind = EventKind::launch;
      one.name = name(launch);
      one.bytes = work.bytes / launches.size();
      one.flops = work.flops / launches.size();
      one.modelled_ns = device == 0 ? ns(each) : 0;
      push(one, each);
    }
    at_ = begin;
    Event submit = event;
    submit.kind = EventKind::submit;
    submit.launches = static_cast<uint16_t>(launches.size());
    submit.bytes = work.bytes;
    submit.flops = work.flops;
    push(submit, device == 0 ? 0 : work.run);
    Event wait = event;
    wait.kind = EventKind::wait;
    wait.modelled_ns = device == 0 ? ns(work.run) : 0;
    wait.launches = 1;
    push(wait, device == 0 ? work.run : 0);
    if (work.read > 0) part(EventKind::download, work.read, 500'000);
  }
  void token_chosen() {
    events_.push_back(
        {.start_ns = token_start_, .end_ns = at_, .token = token_, .kind = EventKind::token});
    token_start_ = at_;
    ++token_;
  }

  // TTFT 100 ms: tokenize 5, embed 2, two layers of (write 1, NPU 20, read 1, between 1, attention
  // 6), head 24, sample 3, and 1 that no part has; 7 inside the run before and after the layers.
  void prefill() {
    host("tokenize", 5);
    open_run(0, 10);
    gap(4);
    dispatch({.label = "embed"}, 1, {.run = 2}, {{.label = "embed", .op = Operator::other}});
    for (uint16_t layer = 0; layer < 2; ++layer) layer_of(layer, 20, 6);
    gap(3);
    head(24);
    close_run();
    host("sample", 3);
    gap(1);
    token_chosen();
  }

  // 20 ms, `extra` more in the host's attention.
  void decode(double extra = 0) {
    host("detokenize", 0.5);
    open_run(10 + token_ - 1, 1);
    for (uint16_t layer = 0; layer < 2; ++layer) layer_of(layer, 2, 1 + extra / 2);
    head(6);
    close_run();
    host("sample", 1.5);
    token_chosen();
  }

  Profile take(uint32_t tokens = 3) {
    prefill();
    for (uint32_t i = 1; i < tokens; ++i) decode(i);
    finish_run();
    return profile_;
  }

  void finish_run() {
    ProfileRun run;
    run.events = events_;
    run.stopped = "token limit";
    run.simulated_seconds = 0.5;
    Receipt& receipt = run.receipt;
    receipt.prompt_tokens = 10;
    receipt.generated_tokens = token_;
    receipt.prefill_seconds = 0.3;
    receipt.decode_seconds = 0.4;
    count_events(receipt);
    receipt.fallbacks = {"attention not on vnpu: it is the host's"};
    receipt.loaded_code = {{"vnpu", "block", "elf", "feedbeef00000000"}};
    receipt.modelled = recorded_seconds(events_);
    receipt.plausibility = judge(receipt, profile_.facts.origin.limits);
    receipt.energy.reason = "no sensor";
    profile_.runs.push_back(run);
    events_.clear();
    at_ = token_start_ = 0;
    token_ = dispatch_ = 0;
  }

  Profile& profile() { return profile_; }

 private:
  // As the devices would have, had they run.
  void count_events(Receipt& receipt) const {
    for (uint8_t device = 0; device < profile_.facts.devices.size(); ++device)
      for (const Event& event : events_)
        if (event.device == device) count(event, profile_.facts.devices[device], receipt);
  }
  static void count(const Event& event, const DeviceFacts& facts, Receipt& receipt) {
    if (event.kind != EventKind::submit && event.kind != EventKind::wait) return;
    const bool is_wait = event.kind == EventKind::wait;
    DeviceCounters work{
        .device = facts.name, .is_virtual = facts.is_virtual, .is_host = facts.is_host};
    work.submissions = work.completions = is_wait ? 1 : 0;
    work.launches = is_wait ? 0 : event.launches;
    work.busy_ns = facts.is_virtual ? event.modelled_ns : event.end_ns - event.start_ns;
    work.bytes = event.bytes;
    work.flops = event.flops;
    add(event.token == 0 ? receipt.phases.prefill : receipt.phases.decode, {work});
    add(receipt.devices, {work});
  }
  static uint64_t ns(double ms) { return static_cast<uint64_t>(ms * 1e6 + 0.5); }
  void push(Event event, double ms) {
    event.token = token_;
    event.start_ns = at_;
    at_ += ns(ms);
    event.end_ns = at_;
    events_.push_back(event);
  }
  void layer_of(uint16_t layer, double npu_ms, double host_ms) {
    const auto launch = [&](const char* label, Operator op) {
      return EventName{.label = label, .layer = layer, .block = "block", .op = op};
    };
    dispatch({.label = "block", .layer = layer}, 0,
             {.write = 1, .run = npu_ms, .read = 1, .bytes = 40'000'000, .flops = 80'000'000},
             {launch("q", Operator::projection), launch("gate", Operator::feed_forward)},
             npu_ms / 10);
    gap(1);
    dispatch({.label = "attention", .layer = layer}, 1, {.run = host_ms},
             {launch("attention", Operator::attention)});
  }
  void head(double ms) {
    dispatch({.label = "lm_head"}, 0, {.run = ms},
             {{.label = "final_norm", .block = "lm_head", .op = Operator::norm_rope},
              {.label = "lm_head", .block = "lm_head", .op = Operator::head}});
  }

  Profile profile_;
  std::vector<Event> events_;
  Event run_;
  uint64_t at_ = 0;
  uint64_t token_start_ = 0;
  uint32_t token_ = 0;
  uint32_t dispatch_ = 0;
};

}  // namespace tyto::test
