// A device with pages and with memory of its own: the pages that are needed elsewhere move, and no
// others.
#include <gtest/gtest.h>

#include "llama/pipeline.h"
#include "support/apart_device.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::ApartDevice;
using testing_support::random_model;
using testing_support::RandomModel;
using Values = std::vector<float>;

Config long_config() {
  Config config = testing_support::small_config();
  config.context = 1024;
  return config;
}

bool takes_all(const Launch&) {
  return true;
}

bool takes_no_attention(const Launch& launch) {
  return launch.kernel != Kernel::attention && launch.kernel != Kernel::kv_append;
}

class ApartPages : public testing::Test {
 protected:
  std::unique_ptr<Pipeline> open(std::vector<Device*> order) {
    PipelineOptions options;
    options.forward.sequences = 3;
    return std::make_unique<Pipeline>(random_.model, order, options, trace_);
  }
  static std::vector<Token> tokens(uint32_t from, uint32_t count) {
    std::vector<Token> result(count);
    for (uint32_t i = 0; i < count; ++i)
      result[i] = static_cast<Token>(((from + i) * 7 + (from + i) / 5) % 61);
    return result;
  }
  // `count` more tokens of a sequence, in one run.
  static Values run(Pipeline& pipeline, Sequence& sequence, uint32_t count) {
    const std::span<const float> logits =
        pipeline.run(sequence, tokens(sequence.position(), count));
    return {logits.begin(), logits.end()};
  }
  // The logits of a prompt of `prompt` tokens and of three more.
  static std::vector<Values> answer(Pipeline& pipeline, uint32_t prompt) {
    Sequence sequence(pipeline);
    std::vector<Values> result = {run(pipeline, sequence, prompt)};
    for (int i = 0; i < 3; ++i) result.push_back(run(pipeline, sequence, 1));
    return result;
  }

  const RandomModel random_ = random_model(long_config(), DType::bf16);
  const uint64_t position_bytes_ = uint64_t{2} * 2 * 2 * 16 * 2;  // layers, k and v, heads, f16
  ThreadPool pool_{1};
  Trace trace_;
  std::unique_ptr<Device> host_ = open_device("cpu", {pool_, trace_});
  ApartDevice apart_{"apart", {pool_, trace_}, takes_all};
};

TEST_F(ApartPages, NothingMovesWhileOneDeviceDoesItAll) {
  const auto plain = open({host_.get()}), pages = open({&apart_, host_.get()});
  EXPECT_EQ(answer(*pages, 600), answer(*plain, 600));
  EXPECT_EQ(apart_.synced_bytes, 0u);
}

TEST_F(ApartPages, ASharedPageIsCopiedAndNoOther) {
  const auto plain = open({host_.get()}), pages = open({&apart_, host_.get()});
  Sequence alone(*plain), first(*pages), second(*pages);
  run(*plain, alone, 300);
  run(*pages, first, 300);
  const std::vector<Token> known = first.tokens();
  second.begin_with(known, first.share(300));
  const Values expected = run(*plain, alone, 1);
  EXPECT_EQ(run(*pages, second, 1), expected);
  EXPECT_EQ(apart_.synced_bytes, 2 * 44 * position_bytes_) << "there and back";
  EXPECT_EQ(run(*pages, first, 1), expected);
}

TEST_F(ApartPages, WhatIsReadAndWrittenIsThePagesOwn) {
  const auto source = open({&apart_, host_.get()}), plain = open({host_.get()});
  Sequence sequence(*source), alone(*plain);
  run(*source, sequence, 300);
  run(*plain, alone, 300);
  const KvTable table = sequence.share(300), expected = alone.share(300);
  const auto read = [&](Pipeline& from, const KvTable& of, size_t page, KvRange range) {
    std::vector<std::byte> bytes(range.count * position_bytes_);
    from.read_page(of.pages()[page], range, bytes);
    return bytes;
  };
  for (const KvRange range : {KvRange{0, 256}, KvRange{0, 10}, KvRange{100, 56}}) {
    const size_t before = apart_.synced_bytes;
    EXPECT_EQ(read(*source, table, 0, range), read(*plain, expected, 0, range));
    EXPECT_EQ(apart_.synced_bytes - before, range.count * position_bytes_);
  }
  EXPECT_EQ(read(*source, table, 1, {0, 44}), read(*plain, expected, 1, {0, 44}));
}

// The second page is written in two parts, with a run of the device in between.
TEST_F(ApartPages, WhatWasWrittenIsThereForTheNextRun) {
  const auto plain = open({host_.get()}), pages = open({&apart_, host_.get()});
  Sequence alone(*plain);
  run(*plain, alone, 300);
  std::vector<std::byte> bytes;
  const auto move = [&](const KvTable& to, size_t page, KvRange range) {
    bytes.resize(range.count * position_bytes_);
    plain->read_page(alone.share(300).pages()[page], range, bytes);
    pages->write_page(to.pages()[page], range, bytes);
  };
  KvTable table(pages->kv_pool());
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(300, copy));
  move(table, 0, {0, 256});
  move(table, 1, {0, 20});
  {
    Sequence shorter(*pages);
    shorter.begin_with(tokens(0, 276), KvTable(pages->kv_pool(), table.pages(), PassBegins(276)));
    table.set_length(0);
    run(*pages, shorter, 1);
    EXPECT_EQ(apart_.synced_bytes, 276 * position_bytes_);
    shorter.rewind(276);
    table = shorter.take_cache();
  }
  move(table, 1, {20, 24});
  EXPECT_EQ(apart_.synced_bytes, (276 + 20) * position_bytes_) << "what was before it comes back";
  Sequence whole(*pages);
  whole.begin_with(tokens(0, 300), KvTable(pages->kv_pool(), table.pages(), PassBegins(300)));
  table.set_length(0);
  EXPECT_EQ(run(*pages, whole, 1), run(*plain, alone, 1));
  EXPECT_EQ(apart_.synced_bytes, (276 + 20 + 44) * position_bytes_);
}

// The device attends to prompts, the host to single tokens.
TEST_F(ApartPages, PagesFollowTheDeviceWhoseTurnItIs) {
  const auto is_prompts = [](const Program& program, const Launch& launch) {
    return program.slots[launch.args[0].slot].rows > 16;  // more than are decoded together
  };
  class Prompts : public ApartDevice {
   public:
    using Test = bool (*)(const Program&, const Launch&);
    Prompts(const DeviceEnv& env, Test is_prompts)
        : ApartDevice("apart", env, takes_all), is_prompts_(is_prompts) {}
    std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
      if (takes_no_attention(launch) || is_prompts_(program, launch)) return std::nullopt;
      return "of prompts only";
    }

   private:
    Test is_prompts_;
  };
  Prompts prompts({pool_, trace_}, is_prompts);
  const auto plain = open({host_.get()}), pages = open({&prompts, host_.get()});
  Sequence other(*pages), idle(*pages), alone(*plain);
  run(*pages, idle, 200);
  run(*pages, other, 600);
  run(*plain, alone, 600);
  EXPECT_EQ(prompts.synced_bytes, 0u);
  EXPECT_EQ(run(*pages, other, 1), run(*plain, alone, 1));
  EXPECT_EQ(prompts.synced_bytes, 600 * position_bytes_) << "not those of others";
  EXPECT_EQ(run(*pages, other, 1), run(*plain, alone, 1));
  EXPECT_EQ(prompts.synced_bytes, 600 * position_bytes_);
  EXPECT_EQ(run(*pages, other, 30), run(*plain, alone, 30));
  EXPECT_EQ(prompts.synced_bytes, (600 + 602) * position_bytes_);
}

}  // namespace
}  // namespace tyto
