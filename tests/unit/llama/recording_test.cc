// The production path while it is recorded: the same numbers, everything seen, nothing allocated.
#include <gtest/gtest.h>

#include <map>

#include "device/vnpu/machine/control.h"
#include "support/count_allocations.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::allocations;
using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

struct Case {
  const char* device;
  Fusion fusion;
};

class Recorded : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    vxrt::reset();
    const DeviceEnv env{pool_, trace_, GetParam().fusion, model_dims(random_.model.config, 0)};
    std::vector<Device*> order;
    devices_.push_back(open_device(GetParam().device, env));
    if (GetParam().device != std::string("cpu")) devices_.push_back(open_device("cpu", env));
    for (const auto& device : devices_) order.push_back(device.get());
    const PipelineOptions options{.forward = {.prefill_chunk = 4, .fusion = GetParam().fusion}};
    pipeline_ = std::make_unique<OneSequence>(random_.model, order, options, trace_);
  }
  void TearDown() override {
    pipeline_.reset();
    devices_.clear();
    vxrt::reset();
  }

  std::vector<float> generate(uint32_t tokens) {
    pipeline_->rewind(0);
    trace_.begin_request();
    auto logits = pipeline_->run(prompt_);
    trace_.token_chosen();
    std::vector<float> all(logits.begin(), logits.end());
    for (uint32_t i = 0; i < tokens; ++i) {
      const Token token = static_cast<Token>(i);
      logits = pipeline_->run({&token, 1});
      trace_.token_chosen();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  ThreadPool pool_{1};  // with more, a thread may take its first chunk, and allocate, at any time
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<OneSequence> pipeline_;
  const std::vector<Token> prompt_ = {1, 2, 3, 4, 5, 6, 7};
};

TEST_P(Recorded, NumbersAreTheSame) {
  const std::vector<float> expected = generate(5);
  trace_.start(10'000);
  EXPECT_EQ(generate(5), expected);
}

// A recording only watches: with it and without it the same is submitted, and the same is counted.
TEST_P(Recorded, WhatRunsIsTheSame) {
  struct Counted {
    std::vector<float> logits;
    std::vector<DeviceCounters> devices;
    uint64_t driver_submissions;
  };
  const auto counted = [&] {
    pipeline_->sequence().executed = {};
    const uint64_t before = vxrt::counters().total.submissions;
    Counted result{generate(5), {}, 0};
    result.devices = pipeline_->sequence().executed.prefill;
    result.driver_submissions = vxrt::counters().total.submissions - before;
    return result;
  };
  generate(1);
  const Counted off = counted();
  trace_.start(10'000);
  const Counted on = counted();
  EXPECT_GT(trace_.events().size(), 0u);
  EXPECT_EQ(on.logits, off.logits);
  EXPECT_EQ(on.driver_submissions, off.driver_submissions);
  EXPECT_EQ(off.driver_submissions > 0, std::string(GetParam().device) == "vnpu");
  ASSERT_EQ(on.devices.size(), off.devices.size());
  ASSERT_GT(off.devices.size(), 0u);
  for (size_t i = 0; i < off.devices.size(); ++i) {
    EXPECT_GT(off.devices[i].submissions, 0u);
    EXPECT_EQ(on.devices[i].device, off.devices[i].device);
    EXPECT_EQ(off.devices[i].is_host, off.devices[i].device == "cpu");
    EXPECT_EQ(on.devices[i].is_host, off.devices[i].is_host);
    EXPECT_EQ(on.devices[i].submissions, off.devices[i].submissions);
    EXPECT_EQ(on.devices[i].completions, off.devices[i].completions);
    EXPECT_EQ(on.devices[i].launches, off.devices[i].launches);
    EXPECT_EQ(on.devices[i].bytes, off.devices[i].bytes);
    EXPECT_EQ(on.devices[i].flops, off.devices[i].flops);
    if (off.devices[i].is_virtual) {
      EXPECT_EQ(on.devices[i].busy_ns, off.devices[i].busy_ns);
    }
  }
}

// The host runs neighbouring launches as one loop, and a recording shows them as one event.
class RecordedHost : public Recorded {};

TEST_P(RecordedHost, FusedLaunchesAreOneEvent) {
  trace_.start(10'000);
  generate(1);
  std::map<std::string, uint32_t> launches;  // in an event, by its label
  for (const Event& event : trace_.events())
    if (event.kind == EventKind::launch)
      launches[trace_.names()[event.name].label] = event.launches;
  EXPECT_EQ(launches.at("q+k+v"), 3u);
  EXPECT_EQ(launches.at("gate+up+swiglu"), 3u);
  EXPECT_EQ(launches.at("down+ffn_residual"), 2u);
  EXPECT_EQ(launches.at("o+attn_residual"), 2u);
  EXPECT_EQ(launches.at("lm_head"), 1u);
  for (const char* inside : {"q", "k", "v", "gate", "up", "swiglu", "down", "o"})
    EXPECT_FALSE(launches.contains(inside)) << inside;
}

TEST_P(Recorded, EveryCompletionAndLaunchIsAnEvent) {
  generate(1);
  const auto before = trace_.snapshot();
  const size_t room = pipeline_->forward().event_count(prompt_.size(), 5) + 6;
  trace_.start(room);
  generate(5);
  EXPECT_EQ(trace_.lost(), 0u);
  std::map<std::string, DeviceCounters> seen;
  uint64_t modelled_ns = 0;
  for (const Event& event : trace_.events()) {
    if (event.dispatch == kNoDispatch) continue;
    DeviceCounters& counters = seen[before[event.device].device];
    if (event.kind == EventKind::submit) {
      ++counters.completions;
      counters.launches += event.launches;
    } else if (event.kind == EventKind::launch) {
      counters.submissions += event.launches;  // stands for launches seen one group by another
      counters.bytes += event.bytes;
      counters.flops += event.flops;
    } else if (event.kind == EventKind::wait) {
      modelled_ns += event.modelled_ns;
    }
  }
  uint64_t virtual_ns = 0;
  const auto after = trace_.snapshot();
  for (size_t i = 0; i < after.size(); ++i) {
    const DeviceCounters& counted = seen[after[i].device];
    EXPECT_EQ(counted.completions, after[i].completions - before[i].completions);
    EXPECT_EQ(counted.launches, after[i].launches - before[i].launches);
    // An image has launches of its own: casts beside the steps it computes, or several steps in
    // one.
    if (!after[i].is_virtual) {
      EXPECT_EQ(counted.submissions, counted.launches);
    }
    EXPECT_EQ(counted.bytes, after[i].bytes - before[i].bytes);
    EXPECT_EQ(counted.flops, after[i].flops - before[i].flops);
    if (after[i].is_virtual) virtual_ns += after[i].busy_ns - before[i].busy_ns;
  }
  EXPECT_EQ(modelled_ns, virtual_ns);
}

TEST_P(Recorded, LaunchesLieInsideTheirDispatch) {
  trace_.start(10'000);
  generate(2);
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> span;  // by dispatch
  for (const Event& event : trace_.events())
    if (event.kind == EventKind::submit)
      span[event.dispatch].first = event.start_ns;
    else if (event.kind == EventKind::wait)
      span[event.dispatch].second = event.modelled_ns > 0 ? event.modelled_ns : event.end_ns;
  for (const Event& event : trace_.events()) {
    if (event.kind != EventKind::launch) continue;
    const auto [start, end] = span.at(event.dispatch);
    EXPECT_LE(event.start_ns, event.end_ns);
    EXPECT_LE(event.end_ns, end);
    if (event.modelled_ns == 0) {
      EXPECT_GE(event.start_ns, start);
    }
  }
}

TEST_P(Recorded, RecordingAllocatesNothing) {
  const auto allocated = [&] {
    const uint64_t before = allocations;
    for (Token token = 0; token < 20; ++token) pipeline_->run({&token, 1});
    return allocations - before;
  };
  generate(1);
  const uint64_t without = allocated();
  pipeline_->rewind(0);
  trace_.start(10'000);
  EXPECT_EQ(allocated(), without);
  EXPECT_GT(trace_.events().size(), 100u);
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  constexpr const char* kFusions[] = {"op", "block", "token"};
  return std::string(tested.param.device) + "_" +
         kFusions[static_cast<size_t>(tested.param.fusion)];
}

void PrintTo(const Case& tested, std::ostream* out) {
  *out << case_name({tested, 0});
}

INSTANTIATE_TEST_SUITE_P(Devices, Recorded,
                         testing::Values(Case{"cpu", Fusion::op}, Case{"cpu", Fusion::block},
                                         Case{"cpu", Fusion::token}, Case{"vnpu", Fusion::op},
                                         Case{"vnpu", Fusion::block}, Case{"vnpu", Fusion::token}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Fusions, RecordedHost,
                         testing::Values(Case{"cpu", Fusion::block}, Case{"cpu", Fusion::token}),
                         case_name);

}  // namespace
}  // namespace tyto
