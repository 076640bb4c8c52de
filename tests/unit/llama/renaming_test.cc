// Names are for people: whatever slots, launches and programs are called, costs, identities, cuts,
// results and modelled times stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cost/cost_model.h"
#include "device/cpu/interpreter.h"
#include "device/vnpu/machine/control.h"
#include "llama/forward_program.h"
#include "program/kernels.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/program_time.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;

// Names that mean something to the forward pass, at the wrong places, and others that mean nothing.
class Renamer {
 public:
  std::string name() const {
    constexpr const char* kKnown[] = {"lm_head", "L00.q", "L01.k_cache", "x",     "logits",
                                      "gate",    "embed", "L00.o_ffn",   "token", ""};
    const uint32_t pick = random_() % (2 * std::size(kKnown));
    if (pick < std::size(kKnown)) return kKnown[pick];
    std::string result;
    for (uint32_t i = random_() % 12; i > 0; --i) result += static_cast<char>('a' + random_() % 26);
    return result;
  }
  Slot slot(Slot slot) const {
    slot.name = name();
    return slot;
  }
  Program program(Program program) const {
    program.name = name();
    for (Slot& slot : program.slots) slot.name = name();
    for (Launch& launch : program.launches) launch.name = name();
    return program;
  }

 private:
  mutable std::mt19937 random_{5};
};

struct Described {
  std::string name;
  RandomModel random;
  Part part;
  ForwardShape shape;
};

std::vector<Described> forward_programs() {
  std::vector<Described> result;
  const auto add = [&](const std::string& name, auto change) {
    Config config = small_config();
    change(config);
    for (const Part part : {Part::body, Part::head, Part::whole})
      for (const uint32_t rows : {1u, 16u})
        for (const bool from_start : {false, true})
          result.push_back(
              {name + (rows == 1 ? ", a row" : ", rows") + (from_start ? " from the start" : ""),
               random_model(config, DType::bf16),
               part,
               {.rows = rows,
                .context = 96,
                .activations = DType::bf16,
                .body_rows = 16,
                .from_start = from_start}});
  };
  add("plain", [](Config&) {});
  add("tied", [](Config& c) { c.tied_head = true; });
  add("bias", [](Config& c) { c.qkv_bias = true; });
  add("qk_norm", [](Config& c) { c.qk_norm = true, c.head_dim = 32; });
  return result;
}

TEST(Renaming, ChangesNoCostHashOperatorOrGroupOfAForwardProgram) {
  const Renamer renamer;
  for (const Described& described : forward_programs()) {
    SCOPED_TRACE(described.name);
    const Model& model = described.random.model;
    const std::vector<float> frequencies = rope_frequencies(model.config);
    const Program plain =
        forward_program(model, frequencies, described.part, described.shape).program;
    const Program other = renamer.program(plain);
    EXPECT_EQ(program_hash(other), program_hash(plain));
    EXPECT_NO_THROW(check(other));
    for (size_t i = 0; i < plain.launches.size(); ++i) {
      const Launch &a = plain.launches[i], &b = other.launches[i];
      EXPECT_EQ(operator_of(b), operator_of(a)) << a.name;
      EXPECT_EQ(cpu::fused_launches(other, i), cpu::fused_launches(plain, i)) << a.name;
      for (const Call& call : {call_of(1, 7), call_of(described.shape.rows)}) {
        EXPECT_EQ(cost(other, b, call).bytes, cost(plain, a, call).bytes) << a.name;
        EXPECT_EQ(cost(other, b, call).flops, cost(plain, a, call).flops) << a.name;
      }
    }
    Trace trace;
    EXPECT_EQ(launch_names(trace, other, groups_of_one(other)),
              launch_names(trace, plain, groups_of_one(plain)));
  }
}

TEST(Renaming, ChangesNoCutAndNoModelledTimeOfItsPieces) {
  const Renamer renamer;
  std::mt19937 random(9);
  for (const Described& described : forward_programs()) {
    SCOPED_TRACE(described.name);
    const Model& model = described.random.model;
    const std::vector<float> frequencies = rope_frequencies(model.config);
    const Program plain =
        forward_program(model, frequencies, described.part, described.shape).program;
    const Program other = renamer.program(plain);
    std::vector<uint8_t> one_device(plain.launches.size()), two_devices(plain.launches.size());
    for (uint8_t& device : two_devices) device = random() % 2;
    for (const auto& devices : {one_device, two_devices})
      for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
        const auto want = stitch(plain, fusion, devices), got = stitch(other, fusion, devices);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_EQ(got[i].device, want[i].device);
          EXPECT_EQ(got[i].whole_slots, want[i].whole_slots);
          EXPECT_EQ(program_hash(got[i].program), program_hash(want[i].program));
          for (size_t s = 0; s < want[i].program.slots.size(); ++s)
            EXPECT_EQ(got[i].program.slots[s].kind, want[i].program.slots[s].kind);
          for (size_t l = 0; l < want[i].program.launches.size(); ++l)
            EXPECT_EQ(got[i].program.launches[l].role, want[i].program.launches[l].role);
          for (const Call& call : {call_of(1, 7), call_of(described.shape.rows)})
            EXPECT_EQ(testing_support::program_ms(got[i].program, call),
                      testing_support::program_ms(want[i].program, call));
          if (fusion == Fusion::token) continue;  // a whole program is called what it is called
          EXPECT_EQ(dispatch_name(got[i].program), dispatch_name(want[i].program));
        }
      }
  }
}

// Gives everything another name before the device sees it.
class RenamedDevice : public Device {
 public:
  explicit RenamedDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  DeviceInfo info() const override { return inner_->info(); }
  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    const auto index = static_cast<size_t>(&launch - program.launches.data());
    const Program other = renamer_.program(program);
    return inner_->why_not(other, other.launches.at(index));
  }
  Buffer alloc(const Slot& slot, uint32_t sequence) override {
    return inner_->alloc(renamer_.slot(slot), sequence);
  }
  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    inner_->sync(buffer, direction, offset, bytes);
  }
  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return inner_->load(renamer_.program(program), weights);
  }
  std::shared_ptr<void> prepare(const std::string&, const TensorView& weight) override {
    return inner_->prepare(renamer_.name(), weight);
  }

 private:
  std::unique_ptr<Device> inner_;
  Renamer renamer_;
};

struct Setting {
  const char* name;
  Fusion fusion;
  NpuWeights weights;
};

// What a recording says of a launch.
struct SeenLaunch {
  EventName name;
  uint64_t bytes, flops, modelled_ns;
  bool operator==(const SeenLaunch&) const = default;
};

struct Outcome {
  std::vector<float> logits;
  std::map<std::string, DeviceCounters> counters;
  std::vector<std::string> fallbacks, on_host;
  std::vector<SeenLaunch> launches;
};

Outcome run_on_vnpu(const Model& model, const Setting& setting, bool is_renamed) {
  vxrt::reset();
  Outcome outcome;
  {
    ThreadPool pool(2);
    Trace trace;
    NpuSettings npu;
    npu.weights = setting.weights;
    npu.prompt_rows = {64};
    const DeviceEnv env{pool, trace, setting.fusion, model_dims(model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Device*> order;
    for (const char* name : {"vnpu", "cpu"}) {
      devices.push_back(open_device(name, env));
      if (is_renamed) devices.back() = std::make_unique<RenamedDevice>(std::move(devices.back()));
      order.push_back(devices.back().get());
    }
    OneSequence pipeline(model, order, {.forward = {.fusion = setting.fusion}}, trace);
    trace.start(20'000);
    const auto keep = [&](std::span<const float> logits) {
      outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
    };
    keep(pipeline.run(std::vector<Token>{1, 2, 3, 4, 5, 6, 7}));
    for (const Token token : {9, 4, 7}) keep(pipeline.run({&token, 1}));
    keep(pipeline.run(std::vector<Token>{3, 1, 4}));  // behind what was decoded
    keep(pipeline.run(std::vector<Token>{2}));
    EXPECT_EQ(trace.lost(), 0u);
    EXPECT_TRUE(pipeline.recoveries().empty());
    for (const DeviceCounters& counters : trace.snapshot())
      outcome.counters[counters.device] = counters;
    outcome.fallbacks = trace.fallbacks();
    outcome.on_host = trace.on_host();
    for (const Event& event : trace.events())
      if (event.kind == EventKind::launch)
        outcome.launches.push_back(
            {trace.names()[event.name], event.bytes, event.flops, event.modelled_ns});
  }
  vxrt::reset();
  return outcome;
}

class RenamingOnTheVirtualNpu : public testing::TestWithParam<Setting> {};

TEST_P(RenamingOnTheVirtualNpu, ChangesNoBitNoTimeAndNoCounter) {
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs}) {
    Config config = small_config();
    config.rope.layout = layout;
    const RandomModel random = random_model(config, DType::bf16);
    const Outcome want = run_on_vnpu(random.model, GetParam(), false);
    const Outcome got = run_on_vnpu(random.model, GetParam(), true);
    EXPECT_EQ(got.logits, want.logits);
    EXPECT_EQ(got.fallbacks, want.fallbacks);
    EXPECT_EQ(got.on_host, want.on_host);
    EXPECT_EQ(got.launches == want.launches, true);
    EXPECT_GT(want.launches.size(), 0u);
    ASSERT_EQ(got.counters.size(), want.counters.size());
    for (const auto& [device, counters] : want.counters) {
      const DeviceCounters& other = got.counters.at(device);
      EXPECT_GT(counters.submissions, 0u) << device;
      EXPECT_EQ(other.submissions, counters.submissions) << device;
      EXPECT_EQ(other.completions, counters.completions) << device;
      EXPECT_EQ(other.launches, counters.launches) << device;
      EXPECT_EQ(other.bytes, counters.bytes) << device;
      EXPECT_EQ(other.flops, counters.flops) << device;
      EXPECT_EQ(other.pinned_bytes, counters.pinned_bytes) << device;
      EXPECT_EQ(other.is_virtual, counters.is_virtual) << device;
      EXPECT_EQ(other.is_host, counters.is_host) << device;
    }
    EXPECT_TRUE(want.counters.at("vnpu").is_virtual);
    EXPECT_GT(want.counters.at("vnpu").busy_ns, 0u);
    EXPECT_EQ(got.counters.at("vnpu").busy_ns, want.counters.at("vnpu").busy_ns);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, RenamingOnTheVirtualNpu,
                         testing::Values(Setting{"op", Fusion::op, NpuWeights::bf16},
                                         Setting{"block", Fusion::block, NpuWeights::bf16},
                                         Setting{"token", Fusion::token, NpuWeights::bf16},
                                         Setting{"token_q4nx", Fusion::token, NpuWeights::q4nx},
                                         Setting{"op_int8", Fusion::op, NpuWeights::int8}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tyto
