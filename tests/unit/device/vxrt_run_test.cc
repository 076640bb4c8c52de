// Running images through XRT's names: results, syncs, states.
#include <cmath>
#include <cstring>
#include <thread>

#include "device/device.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using std::chrono::milliseconds;

std::vector<float> widened(const std::vector<uint16_t>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = bf16_to_f32(values[i]);
  return result;
}

// The same program on the CPU device, in f32: returns every slot's values.
std::vector<std::vector<float>> on_cpu(const Program& program,
                                       const std::vector<std::vector<uint16_t>>& contents,
                                       const std::vector<Call>& calls) {
  ThreadPool pool(2);
  Trace trace;
  const auto device = open_device("cpu", {pool, trace});
  std::vector<TensorView> weights(program.slots.size());
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (slot.kind == SlotKind::weight)
      weights[i] = {slot.dtype, slot.rows, slot.cols, std::as_bytes(std::span(contents[i]))};
  }
  const auto executable = device->load(program, weights);
  std::vector<Buffer> buffers(program.slots.size());
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (slot.kind == SlotKind::weight) continue;
    buffers[i] = device->alloc(slot);
    const std::vector<float> values = widened(contents[i]);
    if (!values.empty() && slot.dtype == DType::f32)
      std::memcpy(buffers[i].data, values.data(), values.size() * 4);
    if (!values.empty() && slot.dtype == DType::i32)
      std::memcpy(buffers[i].data, contents[i].data(), contents[i].size() * 2);
    executable->bind(static_cast<uint16_t>(i), buffers[i]);
  }
  for (const Call& call : calls) {
    executable->submit(call);
    executable->wait(milliseconds(0));
  }
  std::vector<std::vector<float>> result(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (program.slots[i].dtype != DType::f32) continue;
    const float* values = reinterpret_cast<const float*>(buffers[i].data);
    result[i].assign(values, values + buffers[i].size / 4);
  }
  return result;
}

void expect_close(const std::vector<float>& expected, const std::vector<uint16_t>& actual,
                  size_t count, float tolerance) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(expected[i]));
  ASSERT_GT(largest, 0.1f);
  for (size_t i = 0; i < count; ++i)
    ASSERT_NEAR(bf16_to_f32(actual[i]), expected[i], tolerance * largest) << i;
}

using VxrtRun = VxrtTest;

TEST_F(VxrtRun, EqualsTheCpuWithinBf16Rounding) {
  Rig rig;
  xrt::run run = rig.make_run();
  EXPECT_EQ(run.state(), ERT_CMD_STATE_NEW);
  run_to_completion(run);
  EXPECT_EQ(run.state(), ERT_CMD_STATE_COMPLETED);
  const auto expected =
      on_cpu(block_program(DType::f32),
             {rig.x_values, random_bf16(kWidth, 2), {}, random_bf16(kWidth * kWidth, 3), {}},
             {call_of(kRows)});
  expect_close(expected[0], download(rig.x), kRows * kWidth, 0.01f);
  expect_close(expected[4], download(rig.delta), kRows * kWidth, 0.01f);
}

// One row only: the rest of the output is left alone.
TEST_F(VxrtRun, TheCallSaysHowManyRows) {
  Rig rig;
  xrt::run run = rig.make_run(1);
  run_to_completion(run);
  const std::vector<uint16_t> x = download(rig.x);
  EXPECT_FALSE(std::equal(x.begin(), x.begin() + kWidth, rig.x_values.begin()));
  EXPECT_TRUE(std::equal(x.begin() + kWidth, x.end(), rig.x_values.begin() + kWidth));
}

Program attention_program(DType values, DType cache) {
  constexpr uint32_t kContext = 8, kHeads = 4, kKvHeads = 2, kHeadDim = 16;
  constexpr uint64_t kKvWidth = kKvHeads * kHeadDim;
  Program program;
  program.slots = {{"ids", SlotKind::input, DType::i32, 4, 1},
                   {"table", SlotKind::weight, DType::bf16, 10, kWidth},
                   {"frequencies", SlotKind::weight, DType::bf16, 1, kHeadDim / 2},
                   {"rope", SlotKind::scratch, values, 4, kHeadDim},
                   {"q", SlotKind::scratch, values, 4, kWidth},
                   {"wk", SlotKind::weight, DType::bf16, kKvWidth, kWidth},
                   {"k", SlotKind::scratch, values, 4, kKvWidth},
                   {"k_cache", SlotKind::kv, cache, uint64_t{kKvHeads} * kContext, kHeadDim},
                   {"v_cache", SlotKind::kv, cache, uint64_t{kKvHeads} * kContext, kHeadDim},
                   {"y", SlotKind::output, values, 4, kWidth}};
  const LaunchShape q{
      .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .context = kContext};
  LaunchShape k = q;
  k.heads = kKvHeads;
  const auto in = [](uint16_t slot) { return Arg{slot, true, false}; };
  const auto out = [](uint16_t slot) { return Arg{slot, false, true}; };
  program.launches = {{Kernel::embed, "embed", {in(0), in(1), out(4)}, q},
                      {Kernel::rope_table, "rope_table", {in(2), out(3)}, q},
                      {Kernel::matmul, "k", {in(4), in(5), out(6)}, q},
                      {Kernel::rope, "q_rope", {{4, true, true}, in(3)}, q},
                      {Kernel::rope, "k_rope", {{6, true, true}, in(3)}, k},
                      {Kernel::kv_append, "append", {in(6), in(6), out(7), out(8)}, k},
                      {Kernel::attention, "attend", {in(4), in(7), in(8), out(9)}, q}};
  return program;
}

TEST_F(VxrtRun, AttentionOverTwoCallsForEveryCacheType) {
  const std::vector<int32_t> ids = {3, 1, 4, 9};
  std::vector<uint16_t> id_words(ids.size() * 2);
  std::memcpy(id_words.data(), ids.data(), id_words.size() * 2);
  const auto table = random_bf16(10 * kWidth, 4), frequencies = random_bf16(8, 5),
             wk = random_bf16(32 * kWidth, 6);
  const auto expected = on_cpu(attention_program(DType::f32, DType::f32),
                               {id_words, table, frequencies, {}, {}, wk, {}, {}, {}, {}},
                               {call_of(3), call_of(4, 3)});
  for (DType cache : {DType::bf16, DType::f16, DType::f32}) {
    const xrt::device device(0);
    const Image image = make_image("attention", attention_program(DType::bf16, cache));
    const xrt::hw_context context(device, load_elf(image));
    const xrt::ext::kernel kernel(context, "main");
    xrt::bo y = xrt::ext::bo(device, 4 * kWidth * 2);
    const size_t cache_bytes = image.instances[0].program.slots[7].bytes();
    xrt::run run(kernel);
    run.set_arg(0, upload(device, id_words));
    run.set_arg(1, upload(device, table));
    run.set_arg(2, upload(device, frequencies));
    run.set_arg(3, upload(device, wk));
    run.set_arg(4, xrt::bo(xrt::ext::bo(device, cache_bytes)));
    run.set_arg(5, xrt::bo(xrt::ext::bo(device, cache_bytes)));
    run.set_arg(6, y);
    run.set_arg(7, uint32_t{3});
    run_to_completion(run);
    run.set_arg(7, uint32_t{4});
    run.set_arg(8, uint32_t{3});
    run_to_completion(run);
    expect_close(expected[9], download(y), 4 * kWidth, 0.03f);
  }
}

TEST_F(VxrtRun, WhatIsNotSyncedIsNotSeen) {
  Rig rig;
  const std::vector<uint16_t> other = random_bf16(kRows * kWidth, 9);
  put(rig.x, other);  // not synced: the device has the old x
  xrt::run run = rig.make_run();
  run_to_completion(run);
  const uint16_t* host = rig.delta.map<const uint16_t*>();
  const std::vector<uint16_t> seen(host, host + kRows * kWidth);
  EXPECT_EQ(seen, std::vector<uint16_t>(seen.size()));  // the host has not synced it back
  const std::vector<uint16_t> with_old_x = download(rig.delta);
  EXPECT_NE(with_old_x, seen);

  put(rig.x, rig.x_values);
  rig.x.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  run_to_completion(run);
  EXPECT_EQ(download(rig.delta), with_old_x);
}

TEST_F(VxrtRun, SyncsAreRangedAndCounted) {
  set_hostile(false);
  Rig rig;
  const Counters before = counters();
  std::fill_n(rig.delta.map<uint16_t*>(), 8, 0x3f80);
  rig.delta.sync(XCL_BO_SYNC_BO_TO_DEVICE, 8, 4);
  std::memset(rig.delta.map<void*>(), 0xaa, rig.delta.size());
  rig.delta.sync(XCL_BO_SYNC_BO_FROM_DEVICE, 16, 0);
  const uint16_t* seen = rig.delta.map<const uint16_t*>();
  const uint16_t expected[] = {0, 0, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0, 0, 0xaaaa};
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(seen[i], expected[i]) << i;
  EXPECT_EQ(counters().bytes_to_device - before.bytes_to_device, 8u);
  EXPECT_EQ(counters().bytes_from_device - before.bytes_from_device, 16u);
  EXPECT_EQ(counters().syncs - before.syncs, 2u);
}

TEST_F(VxrtRun, SubBuffersAndUserPointersShareMemory) {
  Rig rig;
  xrt::bo whole = xrt::ext::bo(rig.device, 8192);
  xrt::bo part(whole, kRows * kWidth * 2, 4096);
  EXPECT_EQ(part.map<char*>(), whole.map<char*>() + 4096);
  EXPECT_EQ(part.address(), whole.address() + 4096);
  xrt::run run = rig.make_run();
  run.set_arg(4, part);
  run_to_completion(run);
  whole.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
  EXPECT_NE(*(whole.map<const uint16_t*>() + 2048), 0);

  struct alignas(4096) Page {
    uint16_t values[2048] = {};
  };
  const auto page = std::make_unique<Page>();
  xrt::bo user = xrt::ext::bo(rig.device, page.get(), sizeof(Page));
  EXPECT_EQ(user.map<void*>(), page.get());
  run.set_arg(0, xrt::bo(rig.x));
  run.set_arg(4, user);
  run_to_completion(run);
  user.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
  EXPECT_NE(page->values[0], 0);
}

TEST_F(VxrtRun, RestartsWithOnlyTheArgumentsThatDiffer) {
  Rig rig;
  xrt::run run = rig.make_run();
  run_to_completion(run);
  xrt::bo other_x = upload(rig.device, random_bf16(kRows * kWidth, 77));
  xrt::bo other_delta = xrt::ext::bo(rig.device, kRows * kWidth * 2);
  run.set_arg(0, other_x);
  run.set_arg(4, other_delta);
  run_to_completion(run);
  EXPECT_NE(download(other_delta), download(rig.delta));
  EXPECT_EQ(counters().total.completions, 2u);
  EXPECT_EQ(counters().total.launches, 6u);
}

TEST_F(VxrtRun, DeadAndUnknownArgumentsAreHarmless) {
  Rig rig;
  xrt::run run = rig.make_run();
  run.set_arg(2, rig.x);       // dead
  run.set_arg(40, rig.delta);  // no control code refers to it
  run.set_arg(41, uint64_t{7});
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
}

TEST_F(VxrtRun, BadArgumentsEndAsError) {
  set_hostile(false);
  Rig rig;
  const auto ends_as_error = [&](const char* says, auto change) {
    xrt::run run = rig.make_run();
    change(run);
    run.start();
    EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR) << says;
    EXPECT_NE(counters().last_error.find(says), std::string::npos) << counters().last_error;
  };
  ends_as_error("no buffer", [](xrt::run& run) { run.set_arg(3, uint32_t{1}); });
  ends_as_error("needs 512 bytes", [&](xrt::run& run) { run.set_arg(0, xrt::bo(rig.x, 256, 0)); });
  ends_as_error("multiple of 4", [&](xrt::run& run) {
    run.set_arg(0, xrt::bo(xrt::bo(xrt::ext::bo(rig.device, 1024)), 512, 2));
  });
  ends_as_error("row 5", [](xrt::run& run) { run.set_arg(5, uint32_t{5}); });
  ends_as_error("no rows", [](xrt::run& run) { run.set_arg(5, uint32_t{0}); });
  ends_as_error("is a scalar", [&](xrt::run& run) { run.set_arg(6, rig.x); });
}

TEST_F(VxrtRun, AnIdOutsideTheTableEndsAsError) {
  Rig rig(make_image("attention", attention_program(DType::bf16, DType::bf16)));
  xrt::run run(rig.kernel);
  for (int i = 0; i < 7; ++i) run.set_arg(i, xrt::bo(xrt::ext::bo(rig.device, 4096)));
  xrt::bo ids = xrt::ext::bo(rig.device, 16);
  ids.map<int32_t*>()[0] = 10;
  ids.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  run.set_arg(0, ids);
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR);
  run.set_arg(0, xrt::bo(xrt::ext::bo(rig.device, 16)));
  run.set_arg(8, uint32_t{8});  // position past the cache
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR);
}

TEST_F(VxrtRun, WaitsAreAsynchronous) {
  Rig rig;
  xrt::run run = rig.make_run();
  pause();
  run.start();
  EXPECT_EQ(run.state(), ERT_CMD_STATE_SUBMITTED);
  EXPECT_EQ(run.wait(milliseconds(1)), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(error_of([&] { run.start(); }), EINVAL);  // still in flight
  resume();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
}

TEST_F(VxrtRun, ARunInFlightMayBeDropped) {
  set_hostile(false);
  Rig rig;
  pause();
  rig.make_run().start();
  EXPECT_EQ(counters().in_flight, 0u);
  EXPECT_EQ(counters().total.errors, 1u);
  resume();
  for (int i = 0; i < 20; ++i) rig.make_run().start();
}

TEST_F(VxrtRun, TwoContextsShareBuffersAndTakeTurns) {
  Rig first, second(block_image("other"));
  xrt::run a = first.make_run(), b = second.make_run();
  b.set_arg(0, first.x);
  for (int i = 0; i < 3; ++i) {
    run_to_completion(a);
    run_to_completion(b);
  }
  const Counters seen = counters();
  ASSERT_EQ(seen.contexts.size(), 2u);
  for (const ContextCounters& context : seen.contexts) {
    EXPECT_EQ(context.submissions, 3u);
    EXPECT_EQ(context.completions, 3u);
    EXPECT_EQ(context.errors, 0u);
  }
  EXPECT_EQ(seen.context_switches, 5u);
}

TEST_F(VxrtRun, AnotherGenerationsImageComputesNothingAndSaysNothing) {
  Image image = block_image();
  image.platform = 75;
  Rig rig(image);
  xrt::run run = rig.make_run();
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(download(rig.delta), std::vector<uint16_t>(kRows * kWidth));
}

}  // namespace
}  // namespace tyto::vxrt
