// The NPU's code on the virtual NPU: what it computes, and what happens when it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "device/vnpu/machine/control.h"
#include "support/expect_error.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

struct VnpuSetting {
  std::string name;
  Fusion fusion;
  NpuWeights weights;
  double cosine;  // against the cpu
};

std::vector<VnpuSetting> settings() {
  return {{"op", Fusion::op, NpuWeights::bf16, 0.999},
          {"block", Fusion::block, NpuWeights::bf16, 0.999},
          {"token", Fusion::token, NpuWeights::bf16, 0.999},
          {"token_q4nx", Fusion::token, NpuWeights::q4nx, 0.95},
          {"op_int8", Fusion::op, NpuWeights::int8, 0.99}};
}

class Vnpu : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  std::unique_ptr<OneSequence> pipeline(const VnpuSetting& setting, PipelineOptions options = {}) {
    return pipeline_of(random_.model, "vnpu", setting, options);
  }
  std::unique_ptr<OneSequence> cpu_pipeline() { return pipeline_of(random_.model, "cpu", {}, {}); }

  std::unique_ptr<OneSequence> pipeline_of(const Model& model, const std::string& device,
                                           const VnpuSetting& setting, PipelineOptions options) {
    NpuSettings npu;
    npu.weights = setting.weights;
    return pipeline_with(model, device, npu, setting.fusion, options);
  }

  std::unique_ptr<OneSequence> pipeline_with(const NpuSettings& npu, Fusion fusion) {
    return pipeline_with(random_.model, "vnpu", npu, fusion, {});
  }

  std::unique_ptr<OneSequence> pipeline_with(const Model& model, const std::string& device,
                                             const NpuSettings& npu, Fusion fusion,
                                             PipelineOptions options) {
    const DeviceEnv env{pool_, trace_, fusion, model_dims(model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<Device*> order;
    for (const std::string& name : {device, std::string("cpu")}) {
      if (!order.empty() && name == device) continue;
      devices_.push_back(open_device(name, env));
      order.push_back(devices_.back().get());
    }
    options.forward.fusion = fusion;
    return std::make_unique<OneSequence>(model, order, options, trace_);
  }

  // Greedy tokens after a prompt, as a person would see them.
  static std::vector<Token> greedy(OneSequence& pipeline, std::span<const Token> prompt,
                                   size_t count) {
    std::vector<Token> tokens;
    std::span<const float> logits = pipeline.run(prompt);
    while (tokens.size() < count) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      tokens.push_back(static_cast<Token>(best));
      logits = pipeline.run({&tokens.back(), 1});
    }
    return tokens;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<Token> prompt_ = {1, 2, 3, 4, 5, 6, 7};
  const VnpuSetting block_ = settings()[1];
  uint64_t patched_ = 0, took_ns_ = 0;
  uint32_t runs_ = 0;  // beyond one for each context
  uint32_t opened_ = 0, opened_at_end_ = 0;
};

// A window takes a context when a token first needs it. Where there is none left, the smallest is
// given up: a longer one holds its positions, too.
TEST_F(Vnpu, DecodeWindowsAreOpenedWhenTheyAreNeededAndTheSmallestIsGivenUp) {
  const VnpuSetting setting = settings()[3];
  Config config = testing_support::small_config();
  config.context = 256;
  const RandomModel random = random_model(config, DType::bf16);
  const auto run = [&](uint32_t contexts) {
    devices_.clear();
    vxrt::Hardware hardware;
    hardware.limits.contexts = contexts;
    vxrt::reset(hardware);
    const auto made = pipeline_of(random.model, "vnpu", setting, {});
    opened_ = vxrt::counters().live_contexts;
    const std::vector<Token> tokens = greedy(*made, prompt_, 150);
    opened_at_end_ = vxrt::counters().live_contexts;
    return tokens;
  };
  const std::vector<Token> all = run(16);
  EXPECT_EQ(opened_at_end_, opened_ + 2);  // for 64 and for 128 positions, beside the largest
  EXPECT_TRUE(trace_.fallbacks().empty());
  EXPECT_EQ(run(opened_), all);
  EXPECT_EQ(opened_at_end_, opened_);
  ASSERT_EQ(trace_.fallbacks().size(), 2u);  // for 64 and for 128 positions
  EXPECT_TRUE(trace_.fallbacks()[0].starts_with("the decode for 64 positions not on vnpu: "))
      << trace_.fallbacks()[0];
  EXPECT_EQ(run(opened_ + 1), all);  // the smallest goes when the next one needs its context
  EXPECT_EQ(opened_at_end_, opened_ + 1);
}

TEST_F(Vnpu, ComputesWhatTheCpuDoesAtEveryFusionAndWeightForm) {
  const auto expected = cpu_pipeline();
  for (const VnpuSetting& setting : settings()) {
    const auto actual = pipeline(setting);
    expected->rewind(0);
    const auto want = expected->run(prompt_);
    EXPECT_GE(compare(actual->run(prompt_), want).cosine, setting.cosine) << setting.name;
    for (Token next : {9, 4, 7}) {
      const auto want_next = expected->run({&next, 1});
      EXPECT_GE(compare(actual->run({&next, 1}), want_next).cosine, setting.cosine) << setting.name;
    }
    // A second piece of prompt, behind what was decoded.
    const std::vector<Token> more = {3, 1, 4, 1, 5};
    const auto want_more = expected->run(more);
    EXPECT_GE(compare(actual->run(more), want_more).cosine, setting.cosine) << setting.name;
    const Token last = 2;
    const auto want_last = expected->run({&last, 1});
    EXPECT_GE(compare(actual->run({&last, 1}), want_last).cosine, setting.cosine) << setting.name;
    devices_.resize(1);
  }
}

// What the first sequence left in the device's cache must not come back.
TEST_F(Vnpu, ASecondSequenceIsAsGoodAsTheFirst) {
  const std::vector<Token> other = {9, 8, 7, 6, 5};
  for (const VnpuSetting& setting : settings()) {
    const auto fresh = pipeline(setting);
    const auto first = fresh->run(other);
    const std::vector<float> prompt_logits(first.begin(), first.end());
    const Token next = 3;
    const auto second = fresh->run({&next, 1});
    const std::vector<float> next_logits(second.begin(), second.end());
    devices_.clear();

    const auto used = pipeline(setting);
    greedy(*used, prompt_, 4);
    used->rewind(0);
    EXPECT_EQ(compare(used->run(other), prompt_logits).max_abs_error, 0) << setting.name;
    EXPECT_EQ(compare(used->run({&next, 1}), next_logits).max_abs_error, 0) << setting.name;
    devices_.clear();
  }
}

TEST_F(Vnpu, AWholePromptGivesTheSameLogitsAtEveryPosition) {
  const auto expected = cpu_pipeline();
  const auto actual = pipeline(block_);
  std::vector<std::vector<float>> want;
  expected->run_all_logits(prompt_, [&](uint32_t, std::span<const float> logits) {
    want.emplace_back(logits.begin(), logits.end());
  });
  actual->run_all_logits(prompt_, [&](uint32_t position, std::span<const float> logits) {
    EXPECT_GE(compare(logits, want[position]).cosine, 0.999) << position;
  });
}

// For measuring the host: only the arithmetic is left out.
TEST_F(Vnpu, OneThatComputesNothingTakesTheSameTimeAndLeavesZeros) {
  const auto busy_ns = [&](bool computes, std::vector<float>& logits) {
    vxrt::reset({.computes = computes});
    const auto opened = pipeline(block_);
    const std::span<const float> row = opened->run(prompt_);
    logits.assign(row.begin(), row.end());
    devices_.clear();
    return vxrt::busy_ns();
  };
  std::vector<float> computed, left;
  EXPECT_EQ(busy_ns(false, left), busy_ns(true, computed));
  EXPECT_EQ(left, std::vector<float>(left.size()));
  EXPECT_NE(computed, left);
}

TEST_F(Vnpu, HeadsRotatedByPairsAreTurnedToHalves) {
  Config config = testing_support::small_config();
  config.rope.layout = RopeLayout::pairs;
  const RandomModel pairs = random_model(config, DType::bf16);
  const auto expected = pipeline_of(pairs.model, "cpu", {}, {});
  for (const VnpuSetting& setting : settings()) {
    const auto actual = pipeline_of(pairs.model, "vnpu", setting, {});
    expected->rewind(0);
    EXPECT_GE(compare(actual->run(prompt_), expected->run(prompt_)).cosine, setting.cosine)
        << setting.name;
    const Token next = 9;
    EXPECT_GE(compare(actual->run({&next, 1}), expected->run({&next, 1})).cosine, setting.cosine)
        << setting.name;
    devices_.resize(1);
  }
}

TEST_F(Vnpu, WeightsOfOtherTypesAreConverted) {
  const RandomModel f16 = random_model(testing_support::small_config(), DType::f16);
  const auto expected = pipeline_of(f16.model, "cpu", {}, {});
  const auto actual = pipeline_of(f16.model, "vnpu", block_, {});
  EXPECT_GE(compare(actual->run(prompt_), expected->run(prompt_)).cosine, 0.999);
}

TEST_F(Vnpu, BytesAreCountedOfTheWeightsThatTheDeviceHolds) {
  const RandomModel wide = random_model(testing_support::small_config(), DType::f32);
  const auto bytes_per_token = [&](const Model& model, const VnpuSetting& setting) {
    const auto on_vnpu = pipeline_of(model, "vnpu", setting, {});
    const uint64_t before = trace_.device("vnpu").bytes;
    on_vnpu->run({prompt_.data(), 1});
    return trace_.device("vnpu").bytes - before;
  };
  for (const VnpuSetting& setting : settings()) {
    const uint64_t expected = bytes_per_token(random_.model, setting);
    EXPECT_GT(expected, 0u);
    devices_.clear();
    EXPECT_EQ(bytes_per_token(wide.model, setting), expected) << setting.name;
    devices_.clear();
  }
}

TEST_F(Vnpu, DispatchesPerTokenAreCountedAtTheDevice) {
  // Per layer: two images; eleven operators, attention being the host's. Then the head, at op level
  // with its norm.
  const std::vector<uint64_t> expected = {11 * 2 + 2, 2 * 2 + 1, 1, 1};
  const Token token = 3;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto blocks = pipeline(settings()[i]);
    const uint64_t before = trace_.device("vnpu").completions;
    const uint64_t driver_before = vxrt::counters().total.completions;
    blocks->run({&token, 1});
    EXPECT_EQ(trace_.device("vnpu").completions - before, expected[i]) << settings()[i].name;
    EXPECT_EQ(vxrt::counters().total.completions - driver_before, expected[i]);
    devices_.clear();
  }
  EXPECT_TRUE(trace_.device("vnpu").is_virtual);
  EXPECT_GT(trace_.device("vnpu").busy_ns, 0u);
}

TEST_F(Vnpu, LayersShareImagesAndContexts) {
  const auto blocks = pipeline(block_);
  EXPECT_EQ(vxrt::counters().live_contexts, 6u);  // three for prefill, three for decode
}

// A run of an ELF holds its control code in the device's heap. Where that holds one for each layer,
// no run is given other buffers than before. Where it holds one for each image, XRT patches their
// addresses with every layer, and the device's clock shows it.
constexpr uint64_t kPiece = 32 * 1024;  // the least that a run takes of the heap

TEST_F(Vnpu, LayersHaveRunsOfTheirOwnWhereTheHeapHoldsThem) {
  const auto tokens = [&](uint64_t heap_bytes) {
    devices_.clear();
    vxrt::Hardware hardware;
    hardware.limits.heap_bytes = heap_bytes;
    vxrt::reset(hardware);
    const auto blocks = pipeline(block_);
    const std::vector<Token> made = greedy(*blocks, prompt_, 2);
    const vxrt::Counters before = vxrt::counters();
    blocks->run({prompt_.data(), 1});
    const vxrt::Counters after = vxrt::counters();
    patched_ = after.patched_descriptors - before.patched_descriptors;
    took_ns_ = after.total.busy_ns - before.total.busy_ns;
    runs_ = after.live_runs - after.live_contexts;
    EXPECT_LE(after.heap_used_bytes, heap_bytes);
    return made;
  };
  const std::vector<Token> with_many = tokens(uint64_t{64} << 20);
  EXPECT_EQ(patched_, 0u);
  EXPECT_GT(runs_, 0u);
  const uint64_t alone_ns = took_ns_;
  EXPECT_EQ(tokens(6 * kPiece), with_many);  // six images of one piece each
  EXPECT_GT(patched_, 0u);
  EXPECT_EQ(runs_, 0u);
  EXPECT_GT(took_ns_, alone_ns);
}

// Where the heap has no more room: no more runs than images, however many layers and stages there
// are. Int8 GEMMs have a few in flight.
TEST_F(Vnpu, AllLayersShareTheRunOfAnImage) {
  const auto live_runs = [&](const VnpuSetting& setting, uint32_t layers) {
    Config config = testing_support::small_config();
    config.layers = layers;
    const RandomModel random = random_model(config, DType::bf16);
    const auto run = pipeline_of(random.model, "vnpu", setting, {});
    greedy(*run, prompt_, 3);
    run->run(prompt_);  // the stage that attends to what is cached
    run->run({prompt_.data(), 1});
    const vxrt::Counters counters = vxrt::counters();
    if (setting.fusion == Fusion::block) {
      EXPECT_EQ(counters.live_runs, counters.live_contexts) << setting.name;
    } else if (setting.weights == NpuWeights::int8) {
      EXPECT_LE(counters.live_runs, 4 * counters.live_contexts) << setting.name;
    }
    return counters.live_runs;
  };
  for (const VnpuSetting& setting : settings()) {
    const bool is_block = setting.fusion == Fusion::block;  // the others' prompts are block's, too
    if (!is_block && setting.weights != NpuWeights::int8) continue;
    vxrt::Hardware hardware;
    if (is_block) hardware.limits.heap_bytes = 6 * kPiece;
    vxrt::reset(hardware);
    const uint32_t of_two_layers = live_runs(setting, 2);
    devices_.clear();
    EXPECT_EQ(live_runs(setting, 5), of_two_layers) << setting.name;
    devices_.clear();
    EXPECT_EQ(vxrt::counters().live_runs, 0u) << setting.name;
  }
}

// What a run was last given goes with the executable that gave it.
TEST_F(Vnpu, BuffersOfAPipelineThatIsGoneAreGivenBack) {
  for (const VnpuSetting& setting : settings()) {
    std::optional<uint64_t> first;
    NpuSettings npu;
    npu.weights = setting.weights;
    const DeviceEnv env{pool_, trace_, setting.fusion, model_dims(random_.model.config, 0),
                        testing_support::settings_of(npu)};
    const auto vnpu = open_device("vnpu", env), cpu = open_device("cpu", env);
    Device* const order[] = {vnpu.get(), cpu.get()};
    PipelineOptions options;
    options.forward.fusion = setting.fusion;
    for (int i = 0; i < 3; ++i) {
      {
        OneSequence run(random_.model, order, options, trace_);
        greedy(run, prompt_, 2);
      }
      const uint32_t buffers = vxrt::counters().live_buffers;
      EXPECT_EQ(first.value_or(buffers), buffers) << setting.name;
      first = buffers;
    }
  }
}

TEST_F(Vnpu, ImagesThatDoNotFitInTheHeapAreRefusedWithTheSum) {
  vxrt::Hardware hardware;
  hardware.limits.heap_bytes = 64 << 10;
  vxrt::reset(hardware);
  try {
    pipeline(block_);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of the device's heap (o_ffn@128 0.03 MB + "),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("which holds 0.07 MB"), std::string::npos);
  }
}

// XRT would give the kernel a copy, and what it writes there would be lost.
TEST_F(Vnpu, ABufferInAnotherMemoryGroupThanItsArgumentIsAnError) {
  vxrt::Hardware hardware;
  hardware.host_group = 2;
  vxrt::reset(hardware);
  for (const VnpuSetting& setting : settings()) {
    if (setting.weights == NpuWeights::bf16) continue;  // ELFs know no groups
    try {
      const auto run = pipeline(setting);
      run->run({prompt_.data(), 1});
      ADD_FAILURE() << setting.name << " was not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what())
                    .find("is connected to memory group 2, its buffer lies in group 0: XRT would "
                          "work on a copy"),
                std::string::npos)
          << error.what();
    }
    devices_.clear();
  }
}

TEST_F(Vnpu, EveryFaultIsAnErrorThatNamesTheProgramAndNeverASilentResult) {
  PipelineOptions options;
  options.on_error = OnDeviceError::fail;
  for (const char* fault : {"timeout@2", "error@2", "hang@2", "context-lost@2"}) {
    devices_.clear();
    vxrt::reset();
    const auto blocks = pipeline(block_, options);
    const uint64_t before = trace_.device("vnpu").completions;
    vxrt::inject(vxrt::parse_fault(fault));
    try {
      blocks->run(prompt_);
      FAIL() << fault << " went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::device) << fault;
      EXPECT_NE(std::string(error.what()).find("vnpu: L00."), std::string::npos) << error.what();
    }
    EXPECT_EQ(trace_.device("vnpu").completions, before + 1) << fault;
  }
}

TEST_F(Vnpu, NoFaultChangesTheText) {
  for (const VnpuSetting& setting : settings()) {
    vxrt::reset();
    const std::vector<Token> want = greedy(*pipeline(setting), prompt_, 6);
    for (const char* fault : {"timeout@9", "error@3", "hang@5", "context-lost@4", "corrupt@7"}) {
      devices_.clear();
      vxrt::reset();
      const auto actual = pipeline(setting);
      vxrt::inject(vxrt::parse_fault(fault));
      EXPECT_EQ(greedy(*actual, prompt_, 6), want) << setting.name << " " << fault;
      EXPECT_EQ(actual->recoveries().size(), 1u) << setting.name << " " << fault;
    }
    devices_.clear();
  }
}

TEST_F(Vnpu, TheCpuFinishesWhenAskedTo) {
  PipelineOptions options;
  options.on_error = OnDeviceError::cpu;
  const std::vector<Token> want = greedy(*cpu_pipeline(), prompt_, 6);
  for (const char* fault : {"error@1", "timeout@12", "corrupt@12"}) {
    devices_.clear();
    vxrt::reset();
    const auto actual = pipeline(block_, options);
    vxrt::inject(vxrt::parse_fault(fault));
    EXPECT_EQ(greedy(*actual, prompt_, 6), want) << fault;
    ASSERT_EQ(actual->recoveries().size(), 1u);
    EXPECT_NE(actual->recoveries()[0].find("finished on the cpu"), std::string::npos);
    const uint64_t before = trace_.device("vnpu").submissions;
    actual->run({prompt_.data(), 1});
    EXPECT_EQ(trace_.device("vnpu").submissions, before);
  }
}

TEST_F(Vnpu, ASecondFaultDuringTheRetryIsAnError) {
  const auto blocks = pipeline(block_);
  blocks->run(prompt_);
  vxrt::Hardware hardware = vxrt::hardware();
  vxrt::inject(vxrt::parse_fault("slowx1e9"));  // every dispatch is taken for a hang
  const Token token = 3;
  EXPECT_ERROR(blocks->run({&token, 1}), "the dispatch timed out (state 8)");
}

// What was decoded is decoded again, not run as a prompt, which other kernels compute.
TEST_F(Vnpu, AfterARecoveryEveryLogitIsTheSameToTheBit) {
  for (const VnpuSetting& setting : settings()) {
    const auto logits_of = [&](const char* fault) {
      devices_.clear();
      vxrt::reset();
      const auto run = pipeline(setting);
      std::vector<float> all;
      const auto keep = [&](std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      };
      keep(run->run(prompt_));
      for (Token next : {9, 4, 7}) keep(run->run({&next, 1}));
      if (fault != nullptr) vxrt::inject(vxrt::parse_fault(fault));
      for (Token next : {2, 8}) keep(run->run({&next, 1}));
      EXPECT_EQ(run->recoveries().size(), fault != nullptr ? 1u : 0u) << setting.name;
      return all;
    };
    const std::vector<float> want = logits_of(nullptr);
    EXPECT_EQ(logits_of("error@1"), want) << setting.name;
    EXPECT_EQ(logits_of("corrupt@1"), want) << setting.name;
  }
  devices_.clear();
}

TEST_F(Vnpu, AfterAnErrorThatWasNotRecoveredTheNextRunWorks) {
  PipelineOptions options;
  options.on_error = OnDeviceError::fail;
  for (const VnpuSetting& setting : settings()) {
    vxrt::reset();
    const std::vector<Token> want = greedy(*pipeline(setting), prompt_, 4);
    const std::pair<const char*, const char*> kFaults[] = {
        {"error@1", "(state 5)"},
        {"hang@2", "(state 8)"},
        {"context-lost@1", "(state 6)"},
        {"corrupt@3", setting.weights == NpuWeights::int8 ? "adds up to" : "are not finite"},
    };
    for (const auto& [fault, words] : kFaults) {
      devices_.clear();
      vxrt::reset();
      const auto actual = pipeline(setting, options);
      vxrt::inject(vxrt::parse_fault(fault));
      EXPECT_ERROR(greedy(*actual, prompt_, 4), words) << setting.name << " " << fault;
      EXPECT_EQ(actual->position(), 0u) << "nothing of a failed device's cache is kept";
      EXPECT_EQ(greedy(*actual, prompt_, 4), want) << setting.name << " " << fault;
    }
    devices_.clear();
  }
}

// The device's memory runs out while it is made again: an error, and another one as long as it
// lasts.
// Kernels of a prompt compute all their rows. Those that a call does not use are zero on the
// device, whatever a longer prompt, another image or a fault has left there.
TEST_F(Vnpu, RowsThatAPromptDoesNotUseAreZero) {
  const std::vector<Token> other = {9, 8, 7, 6, 5}, later = {4, 3};
  std::vector<Token> longer;
  for (Token token = 0; token < 40; ++token) longer.push_back(token);
  const auto logits_of = [](OneSequence& run, std::span<const Token> tokens) {
    const auto logits = run.run(tokens);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto fresh = pipeline(block_);
  const std::vector<float> want = logits_of(*fresh, other);
  const std::vector<float> want_later = logits_of(*fresh, later);
  devices_.clear();

  size_t looked_at = 0, not_zero = 0;
  PipelineOptions options;
  options.forward.observer = [&](const DispatchView& view) {
    if (!view.device.info().is_virtual) return;
    const std::vector<Slot>& slots = view.pieces[view.index].program.slots;
    for (size_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = slots[i];
      if (slot.kind != SlotKind::input || slot.rows <= view.call.rows) continue;
      const Buffer& buffer = view.buffers[i];
      const size_t used = view.call.rows * row_bytes(slot.dtype, slot.cols);
      view.device.sync(buffer, Sync::from_device, used, slot.bytes() - used);
      const std::span<std::byte> padding = buffer.bytes().subspan(used, slot.bytes() - used);
      looked_at += padding.size();
      not_zero += static_cast<size_t>(std::count_if(
          padding.begin(), padding.end(), [](std::byte byte) { return byte != std::byte{0}; }));
    }
  };
  const auto used = pipeline(block_, options);
  for (const char* fault : {"", "corrupt@5"}) {
    used->rewind(0);
    if (*fault != 0) vxrt::inject(vxrt::parse_fault(fault));
    used->run(longer);
    used->rewind(0);
    EXPECT_EQ(logits_of(*used, other), want) << fault;
    EXPECT_EQ(logits_of(*used, later), want_later) << fault;
  }
  EXPECT_EQ(used->recoveries().size(), 1u);
  EXPECT_GT(looked_at, 0u);
  EXPECT_EQ(not_zero, 0u) << "of " << looked_at << " bytes";
}

TEST_F(Vnpu, ADeviceThatCannotBeMadeAgainIsTriedNextTime) {
  const auto blocks = pipeline(block_);
  const std::vector<Token> want = greedy(*blocks, prompt_, 3);
  blocks->rewind(0);
  vxrt::inject(vxrt::parse_fault("slowx1e9"));
  EXPECT_ERROR(blocks->run(prompt_), "the dispatch timed out (state 8)");
  vxrt::inject(vxrt::parse_fault("oom@1"));
  EXPECT_ERROR(blocks->run(prompt_), "injected fault: out of memory");
  EXPECT_EQ(greedy(*blocks, prompt_, 3), want);
}

TEST_F(Vnpu, TheGuardNoticesAFlippedBitOfAProduct) {
  for (const VnpuSetting& setting : {VnpuSetting{"op", Fusion::op, NpuWeights::bf16, 0},
                                     VnpuSetting{"int8", Fusion::op, NpuWeights::int8, 0}}) {
    size_t noticed[2] = {};
    for (const bool guard : {false, true})
      for (int at = 20; at < 40; ++at) {
        devices_.clear();
        vxrt::reset();
        NpuSettings npu;
        npu.weights = setting.weights;
        npu.guard = guard;
        const auto run = pipeline_with(npu, setting.fusion);
        run->run(prompt_);
        vxrt::inject(vxrt::parse_fault(fmt::format("flip@{}", at)));
        for (Token next : {9, 4, 7}) run->run({&next, 1});
        noticed[guard] += run->recoveries().size();
      }
    // In eight bits every product of a token is checked in any case.
    const bool is_int8 = setting.weights == NpuWeights::int8;
    EXPECT_EQ(noticed[false], is_int8 ? 20u : 0u) << setting.name;
    EXPECT_GE(noticed[true], is_int8 ? 20u : 5u) << setting.name;
  }
  devices_.clear();
}

TEST_F(Vnpu, TheGuardTakesNoHonestRoundingForAFault) {
  for (const bool bfp16 : {false, true})
    for (const Fusion fusion : {Fusion::op, Fusion::block}) {
      devices_.clear();
      vxrt::reset();
      NpuSettings npu;
      npu.guard = true;
      npu.block_float = bfp16;
      const auto run = pipeline_with(npu, fusion);
      greedy(*run, prompt_, 8);
      EXPECT_TRUE(run->recoveries().empty()) << run->recoveries().front();
      EXPECT_GT(trace_.device("vnpu").row_sums, 0u);
    }
  devices_.clear();
}

TEST_F(Vnpu, OutOfMemoryIsRefusedUpFrontWithTheArithmetic) {
  vxrt::Hardware hardware;
  hardware.limits.memlock_bytes = 64 << 10;
  vxrt::reset(hardware);
  try {
    pipeline(block_);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("prefill weights"), std::string::npos) << error.what();
  }
  EXPECT_EQ(vxrt::counters().live_buffers, 0u);
}

TEST_F(Vnpu, AnAllocationThatFailsIsAnErrorAndLeaksNothing) {
  for (int at : {1, 5, 20}) {
    devices_.clear();
    vxrt::reset();
    vxrt::inject(vxrt::parse_fault(fmt::format("oom@{}", at)));
    EXPECT_ERROR(pipeline(block_), "injected fault: out of memory") << at;
    devices_.clear();
    EXPECT_EQ(vxrt::counters().live_buffers, 0u) << at;
    EXPECT_EQ(vxrt::counters().live_contexts, 0u) << at;
  }
}

TEST_F(Vnpu, NothingIsLeftBehind) {
  const uint64_t pinned = vxrt::counters().pinned_bytes;
  for (const VnpuSetting& setting : settings()) {
    {
      const auto blocks = pipeline(setting);
      blocks->run(prompt_);
      EXPECT_GT(vxrt::counters().pinned_bytes, pinned);
    }
    devices_.clear();
    EXPECT_EQ(vxrt::counters().pinned_bytes, pinned) << setting.name;
    EXPECT_EQ(vxrt::counters().live_contexts, 0u) << setting.name;
    EXPECT_EQ(vxrt::counters().heap_used_bytes, 0u) << setting.name;
  }
}

}  // namespace
}  // namespace tyto
