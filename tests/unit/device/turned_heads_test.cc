// A dispatch whose image wants heads one after the other, while the program has rows.
#include <gtest/gtest.h>

#include <cstring>

#include "device/device.h"
#include "device/vnpu/machine/control.h"
#include "unit/device/plain_math.h"

namespace tyto {
namespace {

constexpr uint32_t kRows = 5, kSeq = 64, kHeads = 4, kKvHeads = 2, kDim = 16;
constexpr uint64_t kQ = kHeads * kDim, kKv = kKvHeads * kDim;

Program attention_program() {
  Program program;
  program.name = "attention";
  program.slots = {{"q", SlotKind::input, DType::bf16, kSeq, kQ, Role::q},
                   {"k", SlotKind::input, DType::bf16, kSeq, kKv, Role::k},
                   {"v", SlotKind::input, DType::bf16, kSeq, kKv, Role::v},
                   {"out", SlotKind::output, DType::bf16, kSeq, kQ, Role::attention}};
  Launch launch{Kernel::prompt_attention,
                "attention",
                {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
                {},
                Role::attention,
                0};
  launch.shape.heads = kHeads;
  launch.shape.kv_heads = kKvHeads;
  launch.shape.head_dim = kDim;
  program.launches = {launch};
  return program;
}

class Turned : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  // With kRows random rows of q, k and v.
  Completion run(const std::string& like, plain::Values& result) {
    const DeviceEnv env{pool_,
                        trace_,
                        Fusion::block,
                        {2, 64, kHeads, kKvHeads, kDim, 96, 500, kSeq, 1e-5f},
                        {{"images-like", like}, {"prompt-rows", std::to_string(kSeq)}}};
    const std::unique_ptr<Device> device = open_device("vnpu", env);
    const Program program = attention_program();
    const std::unique_ptr<Executable> executable =
        device->load(program, std::vector<TensorView>(program.slots.size()));
    std::vector<Buffer> buffers;
    for (uint16_t i = 0; i < program.slots.size(); ++i) {
      buffers.push_back(device->alloc(program.slots[i]));
      if (i < 3) {
        const plain::Words words = plain::to_bf16(inputs_[i]);
        std::memcpy(buffers[i].data, words.data(), words.size() * sizeof(words[0]));
      }
      executable->bind(i, buffers[i]);
    }
    executable->submit(call_of(kRows));
    const Completion done = executable->wait(std::chrono::seconds(60));
    plain::Words words(kRows * kQ);
    std::memcpy(words.data(), buffers[3].data, words.size() * sizeof(words[0]));
    result = plain::to_f32(words);
    return done;
  }

  ThreadPool pool_{2};
  Trace trace_;
  const plain::Values inputs_[3] = {plain::random_values(kRows * kQ, 1, 3),
                                    plain::random_values(kRows* kKv, 2),
                                    plain::random_values(kRows* kKv, 3)};
};

TEST_F(Turned, RowsGoInAndComeBackAndCountAsMoved) {
  plain::Values in_order, by_head;
  const Completion plain_call = run("llama-3.2-1b", in_order);
  const Completion turned_call = run("qwen3-4b", by_head);
  EXPECT_EQ(by_head, in_order);
  plain::Values want(kRows * kQ);
  for (size_t t = 0; t < kRows; ++t)
    for (size_t h = 0; h < kHeads; ++h) {
      const size_t kv = h / (kHeads / kKvHeads) * kDim;
      plain::attend(
          inputs_[0].data() + t * kQ + h * kDim, kDim, t + 1,
          [&](size_t p) { return inputs_[1].data() + p * kKv + kv; },
          [&](size_t p) { return inputs_[2].data() + p * kKv + kv; },
          want.data() + t * kQ + h * kDim);
    }
  plain::expect_close(by_head, want, 0.012f, "attention");
  EXPECT_EQ(plain_call.uploaded_bytes, 2 * kRows * (kQ + 2 * kKv));
  EXPECT_EQ(turned_call.uploaded_bytes,
            plain_call.uploaded_bytes + 2 * (kRows + kSeq) * (kQ + 2 * kKv));
  EXPECT_EQ(turned_call.downloaded_bytes, plain_call.downloaded_bytes + 2 * (kRows + kSeq) * kQ);
}

}  // namespace
}  // namespace tyto
