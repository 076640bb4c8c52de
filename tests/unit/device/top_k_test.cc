// The best of rows of logits, against a plain sort.
#include "program/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "device/device.h"
#include "support/software_gpu.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

using Rows = std::vector<std::vector<float>>;

Program head(DType type, uint64_t rows, uint64_t vocab, uint64_t count) {
  Program program;
  program.name = "head";
  program.slots = {{"logits", SlotKind::input, type, rows, vocab, Role::logits},
                   {"candidates", SlotKind::output, DType::i32, rows, TopKRow::words_for(count),
                    Role::candidates}};
  program.launches = {{Kernel::top_k, "top_k", {{0, true, false}, {1, false, true}}}};
  return program;
}

// One launch of top_k, made ready on a device.
class TopK {
 public:
  TopK(Device& device, DType type, uint64_t rows, uint64_t vocab, uint64_t count)
      : words_(TopKRow::words_for(count)) {
    const Program program = head(type, rows, vocab, count);
    logits_ = device.alloc(program.slots[0]);
    candidates_ = device.alloc(program.slots[1]);
    const TensorView none[2] = {};
    executable_ = device.load(program, none);
    executable_->bind(0, logits_);
    executable_->bind(1, candidates_);
    type_ = type;
  }

  // [rows][words]
  std::vector<std::vector<int32_t>> run(const Rows& rows) {
    for (size_t t = 0; t < rows.size(); ++t) {
      const uint64_t bytes = row_bytes(type_, rows[t].size());
      quantize(type_, rows[t], logits_.bytes().subspan(t * bytes, bytes));
    }
    executable_->submit(call_of(static_cast<uint32_t>(rows.size())));
    executable_->wait(std::chrono::seconds(60));
    std::vector<std::vector<int32_t>> result(rows.size(), std::vector<int32_t>(words_));
    for (size_t t = 0; t < rows.size(); ++t)
      std::memcpy(result[t].data(), candidates_.data + t * words_ * 4, words_ * 4);
    return result;
  }

 private:
  uint64_t words_;
  DType type_ = DType::f32;
  Buffer logits_, candidates_;
  std::unique_ptr<Executable> executable_;
};

void expect_sorted_best(const TopKRow& row, const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t index) { return logits[static_cast<size_t>(index)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  for (size_t i = 0; i < row.count(); ++i) {
    ASSERT_EQ(row.index(i), order[i]) << i;
    ASSERT_EQ(row.value(i), logit(order[i])) << i;
  }
  EXPECT_EQ(row.not_finite(), 0);
  long double sum = 0;
  for (const float each : logits) sum += std::exp(static_cast<long double>(each));
  EXPECT_NEAR(row.log_sum(), std::log(sum), 1e-4);
}

class TopKOn : public testing::TestWithParam<const char*> {
 protected:
  ThreadPool pool_{2};
  Trace trace_;
  std::unique_ptr<Device> device_ = open_device(
      GetParam(), {.pool = pool_, .trace = trace_, .settings = testing_support::software_gpu()});
};
INSTANTIATE_TEST_SUITE_P(Devices, TopKOn, testing::Values("cpu", "vulkan"),
                         [](const auto& device) { return std::string(device.param); });

// With few different values, so that most of them are equal, and with many.
TEST_P(TopKOn, IsTheBeginningOfAPlainSort) {
  std::mt19937 random(5);
  const struct {
    uint64_t vocab, count;
  } sizes[] = {{1, 1}, {64, 64}, {65, 64}, {61, 8}, {1000, 1}, {4099, 64}};
  for (const auto& [vocab, count] : sizes)
    for (const DType type : {DType::f32, DType::bf16})
      for (const uint32_t values : {3u, 50'000u}) {
        SCOPED_TRACE(testing::Message()
                     << vocab << " " << count << " " << info(type).name << " " << values);
        const Program program = head(type, 3, vocab, count);
        if (type == DType::bf16 && device_->why_not(program, program.launches[0])) continue;
        TopK top_k(*device_, type, 3, vocab, count);
        Rows rows(3, std::vector<float>(vocab));
        for (std::vector<float>& row : rows)
          for (float& value : row) {
            value = (static_cast<float>(random() % values) - 1) * 0x1p-9f;
            if (value == 0 && random() % 2 == 0) value = -0.0f;
            if (type == DType::bf16) value = bf16_to_f32(f32_to_bf16(value));
          }
        const auto results = top_k.run(rows);
        for (size_t t = 0; t < rows.size(); ++t) expect_sorted_best({results[t]}, rows[t]);
      }
}

TEST_P(TopKOn, CountsWhatIsNoFiniteNumberInEachRow) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  TopK top_k(*device_, DType::f32, 4, 100, 8);
  Rows rows(4, std::vector<float>(100, 1.0f));
  rows[1][0] = kNan;
  rows[1][99] = -kNan;
  rows[2][50] = kInfinity;
  rows[2][51] = -kInfinity;
  rows[2][52] = kNan;
  std::fill(rows[3].begin(), rows[3].end(), kNan);
  const auto results = top_k.run(rows);
  EXPECT_EQ(TopKRow{results[0]}.not_finite(), 0);
  EXPECT_EQ(TopKRow{results[1]}.not_finite(), 2);
  EXPECT_EQ(TopKRow{results[2]}.not_finite(), 3);
  EXPECT_EQ(TopKRow{results[3]}.not_finite(), 100);
}

TEST_P(TopKOn, AddsUpExponentialsThatOverflow) {
  TopK top_k(*device_, DType::f32, 1, 2, 2);
  const auto results = top_k.run({{1e4f, 1e4f}});
  EXPECT_FLOAT_EQ(TopKRow{results[0]}.log_sum(), 1e4f + std::log(2.0f));
}

TEST(TopKOnNpu, IsTheHostsWork) {
  ThreadPool pool(1);
  Trace trace;
  Program program;
  program.slots = {{"logits", SlotKind::input, DType::bf16, 1, 64, Role::logits},
                   {"candidates", SlotKind::output, DType::i32, 1, 18, Role::candidates}};
  program.launches = {{Kernel::top_k, "top_k", {{0, true, false}, {1, false, true}}}};
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    const auto why =
        open_device("vnpu", {pool, trace, fusion})->why_not(program, program.launches[0]);
    ASSERT_TRUE(why);
    EXPECT_EQ(why->reason, "the host looks through the logits");
    EXPECT_FALSE(why->left_to_host.empty());
  }
}

}  // namespace
}  // namespace tyto
