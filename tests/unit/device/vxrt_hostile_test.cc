// A device that treats mistakes as a real one does: nothing is refused, and the data goes wrong.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "device/device.h"
#include "device/vnpu/machine/device_memory.h"
#include "support/expect_error.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong(60000);

class VxrtHostile : public VxrtTest {
 protected:
  // The offence that the test provoked; there are no others.
  static std::string take_offence(uint64_t count = 1) {
    const Counters seen = counters();
    EXPECT_EQ(seen.offences, count) << seen.first_offence;
    reset({.threads = 2});
    return seen.first_offence;
  }
  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
};

// ---- Cache lines

struct Lines {
  std::vector<std::byte> host = std::vector<std::byte>(256), device = host, synced = host;
  CachedBuffer buffer() { return {host.data(), device.data(), synced.data(), host.size()}; }
};

TEST(CacheLines, GoOutWholeAndComeInWholeWhereTheHostHasWrittenNothing) {
  Lines lines;
  lines.host[70] = std::byte{1};
  lines.host[120] = std::byte{2};  // the same line, and not in the range
  lines.host[130] = std::byte{3};  // another line
  const Flush out = flush_to_device(lines.buffer(), 70, 71);
  EXPECT_EQ(out.begin, 64u);
  EXPECT_EQ(out.end, 128u);
  EXPECT_EQ(lines.device[120], std::byte{2});
  EXPECT_EQ(lines.device[130], std::byte{0});
  lines.device[66] = std::byte{9};
  lines.device[10] = std::byte{8};
  EXPECT_EQ(flush_from_device(lines.buffer(), 66, 67).lost, 0u);
  EXPECT_EQ(lines.host[66], std::byte{9});
  EXPECT_EQ(lines.host[10], std::byte{0});
}

TEST(CacheLines, ALineThatTheHostHasWrittenOverwritesTheDevices) {
  Lines lines;
  lines.host[3] = std::byte{1};  // not synced
  for (size_t i = 0; i < 128; ++i) lines.device[i] = std::byte{7};
  const Flush in = flush_from_device(lines.buffer(), 0, 128);
  EXPECT_TRUE(in.wrote_back);
  EXPECT_EQ(in.lost, 64u);
  EXPECT_EQ(lines.device[0], std::byte{0});
  EXPECT_EQ(lines.host[64], std::byte{7});
}

TEST(CacheLines, OnlyWhatTheDeviceHasWrittenOutsideOfTheRangeIsLost) {
  Lines lines;
  lines.device[0] = lines.device[100] = std::byte{7};
  lines.host[65] = std::byte{1};
  EXPECT_EQ(flush_to_device(lines.buffer(), 65, 66).lost, 1u);  // at 100
  EXPECT_EQ(flush_to_device(lines.buffer(), 0, 64).lost, 0u);   // the host means all of it
  EXPECT_EQ(lines.device[0], std::byte{0});
}

// The fault that a polite device hides: rows are cleared on the host and not synced, and what the
// device wrote there afterwards never arrives.
TEST_F(VxrtHostile, ResultsAreLostUnderLinesThatTheHostHasWritten) {
  Rig rig;
  xrt::run run = rig.make_run();
  rig.delta.map<uint16_t*>()[0] = 0x3f80;
  run_to_completion(run);
  const std::vector<uint16_t> seen = download(rig.delta);
  EXPECT_EQ(seen[0], 0x3f80);
  EXPECT_EQ(seen[31], 0);  // the same line
  EXPECT_NE(seen[32], 0);
  EXPECT_EQ(error_of([&] { run.start(); }), EFAULT);
  expect_contains(take_offence(), "overwrote 6");
}

TEST_F(VxrtHostile, ASyncOfAPartTakesTheNeighboursAlong) {
  Rig rig;
  xrt::run run = rig.make_run();
  run_to_completion(run);
  xrt::bo row(rig.delta, 8, 16);
  std::memset(row.map<char*>(), 1, 8);
  row.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  const std::vector<uint16_t> seen = download(rig.delta);
  EXPECT_EQ(seen[0], 0);  // never synced from the device: the line's old bytes went out
  EXPECT_EQ(seen[8], 0x0101);
  EXPECT_NE(seen[32], 0);
  expect_contains(take_offence(), "a sync to the device of 8 bytes at 16 in a buffer of 512");
}

// ---- Memory behind buffers

TEST_F(VxrtHostile, AShortBufferIsWrittenBeyondAndTheCheckerSaysSo) {
  Rig rig;
  xrt::bo small = xrt::ext::bo(rig.device, 256);
  xrt::run run = rig.make_run();
  run.set_arg(4, small);
  run.start();
  EXPECT_EQ(error_of([&] { run.wait(kLong); }), EFAULT);
  EXPECT_EQ(run.state(), ERT_CMD_STATE_COMPLETED);  // which is all that a real device would say
  EXPECT_NE(download(small)[0], 0);
  EXPECT_EQ(error_of([&] { run.start(); }), EFAULT);
  expect_contains(take_offence(),
                  "block: argument 4 reached 256 bytes beyond its buffer of 256, and wrote 25");
}

TEST_F(VxrtHostile, WhatIsReadBeyondABufferIsPoison) {
  Rig rig;
  xrt::run run = rig.make_run();
  run.set_arg(3, xrt::bo(xrt::ext::bo(rig.device, kWidth * kWidth)));
  run.start();
  EXPECT_EQ(error_of([&] { run.wait(kLong); }), EFAULT);
  EXPECT_TRUE(std::isnan(bf16_to_f32(download(rig.delta)[kWidth - 1])));
  expect_contains(take_offence(),
                  "argument 3 reached 4096 bytes beyond its buffer of 4096, and "
                  "wrote 0 that");
}

TEST_F(VxrtHostile, AnArgumentThatWasNeverSetIsNoErrorEither) {
  Rig rig;
  xrt::run run(rig.kernel);
  run.set_arg(0, rig.x);
  run.set_arg(1, rig.norm);
  run.set_arg(3, rig.weight);
  run.set_arg(5, uint32_t{kRows});
  run.start();
  EXPECT_EQ(error_of([&] { run.wait(kLong); }), EFAULT);
  expect_contains(take_offence(), "argument 4 reached 512 bytes beyond its buffer of 0");
}

TEST_F(VxrtHostile, AWindowThatIsTooShortOverwritesWhatFollowsIt) {
  Rig rig;
  xrt::bo whole = xrt::ext::bo(rig.device, 4096);
  xrt::run run = rig.make_run();
  run.set_arg(4, xrt::bo(whole, 256, 64));
  run.start();
  EXPECT_EQ(error_of([&] { run.wait(kLong); }), EFAULT);
  whole.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
  EXPECT_NE(whole.map<const uint16_t*>()[(64 + 256) / 2], 0);
  expect_contains(take_offence(), "beyond its buffer of 256, and wrote 0 that");
}

TEST_F(VxrtHostile, TheNpusCodeCannotPassByAnOffence) {
  ThreadPool pool(2);
  Trace trace;
  DeviceEnv env{pool, trace, Fusion::op};
  env.settings = {{"vnpu-hostile", "on"}};
  const auto device = open_device("vnpu", env);
  Program program;
  program.name = "sum";
  program.slots = {{"x", SlotKind::inout, DType::bf16, kRows, kWidth},
                   {"y", SlotKind::scratch, DType::bf16, kRows, kWidth}};
  program.launches = {{Kernel::add, "add", {{0, true, true}, {1, true, false}}, {}}};
  const auto executable = device->load(program, std::vector<TensorView>(2));
  const Buffer x = device->alloc(program.slots[0]);
  Slot short_slot = program.slots[1];
  short_slot.rows = 1;
  executable->bind(0, x);
  executable->bind(1, device->alloc(short_slot));
  try {
    executable->submit(call_of(kRows));
    executable->wait(kLong);
    FAIL() << "was not noticed";
  } catch (const Error& error) {
    expect_contains(error.what(), "argument 1 reached");
  }
  take_offence();
}

// ---- Runs

TEST_F(VxrtHostile, ARunIsTheCallersAgainWhenAWaitHasSeenItsEnd) {
  Rig rig;
  xrt::run run = rig.make_run();
  pause();
  run.start();
  EXPECT_ERROR(run.set_arg(0, rig.x), "set_arg called while command is still in progress");
  EXPECT_NO_THROW(run.set_arg(5, uint32_t{kRows}));  // numbers are not looked at
  resume();
  while (counters().in_flight > 0) std::this_thread::yield();
  EXPECT_ERROR(run.set_arg(0, rig.x), "still in progress") << "it has ended, but who knows that?";
  EXPECT_EQ(error_of([&] { run.start(); }), EINVAL);
  EXPECT_EQ(run.wait(kLong), ERT_CMD_STATE_COMPLETED);
  run.set_arg(0, rig.x);
  run_to_completion(run);
}

TEST_F(VxrtHostile, ARunThatIsDestroyedInFlightGoesOnAndIsReported) {
  {
    Rig rig;
    rig.make_run().start();
  }
  while (counters().in_flight > 0) std::this_thread::yield();
  EXPECT_EQ(counters().total.completions, 1u);
  const auto is_held = [](const Counters& now) { return now.live_buffers + now.live_contexts > 0; };
  while (is_held(counters())) std::this_thread::yield();  // the run held them
  expect_contains(take_offence(), "destroyed before a wait had seen its end");
}

// A product of three dispatches, which are in flight together.
class ThreeTiles {
 public:
  ThreeTiles() {
    env_.settings = {{"weights", "int8"}, {"gemm-lengths", "64"}, {"vnpu-hostile", "on"}};
    device_ = open_device("vnpu", env_);
    program_.name = "product";
    program_.slots = {{"x", SlotKind::input, DType::f32, 1, kWidth},
                      {"weight", SlotKind::weight, DType::bf16, kOutputs, kWidth},
                      {"y", SlotKind::output, DType::f32, 1, kOutputs}};
    program_.launches = {
        {Kernel::matmul, "product", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
    std::vector<TensorView> weights(3);
    weights[1] = {DType::bf16, kOutputs, kWidth, std::as_bytes(std::span(values_))};
    executable_ = device_->load(program_, weights);
    for (uint16_t slot : {0, 2}) {
      buffers_.push_back(device_->alloc(program_.slots[slot]));
      executable_->bind(slot, buffers_.back());
    }
  }

  void run(milliseconds timeout) {
    executable_->submit(call_of(1));
    executable_->wait(timeout);
  }

 private:
  static constexpr uint64_t kOutputs = 5000;
  const std::vector<uint16_t> values_ = random_bf16(kOutputs * kWidth, 4);
  ThreadPool pool_{2};
  Trace trace_;
  DeviceEnv env_{pool_, trace_, Fusion::op};
  std::unique_ptr<Device> device_;
  Program program_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<Executable> executable_;
};

TEST_F(VxrtHostile, TheNpusCodeDestroysNoRunsBehindOneThatFailed) {
  {
    ThreeTiles product;
    pause();
    inject(parse_fault("error@1"));
    std::thread later([] {
      while (counters().in_flight < 3) std::this_thread::yield();
      resume();
    });
    EXPECT_ERROR(product.run(kLong), "the dispatch failed (state 5)");
    later.join();
  }
  EXPECT_EQ(counters().first_offence, "");
  EXPECT_EQ(counters().total.submissions, 3u);
}

TEST_F(VxrtHostile, TheNpusCodeDestroysNoRunThatAWaitGaveUp) {
  {
    ThreeTiles product;
    pause();
    EXPECT_ERROR(product.run(milliseconds(1)), "the dispatch timed out (state 8)");
    resume();
  }
  EXPECT_EQ(counters().first_offence, "");
}

TEST_F(VxrtHostile, TheNpusCodeKeepsARunThatNeverEnds) {
  set_limits({.hang_ns = 0});
  {
    ThreeTiles product;
    inject(parse_fault("hang"));
    EXPECT_ERROR(product.run(milliseconds(1)), "the dispatch timed out (state 8)");
  }
  EXPECT_EQ(counters().first_offence, "");
  EXPECT_EQ(counters().live_contexts, 1u);
  set_limits({});  // power cycle
  {
    ThreeTiles next;
  }
  EXPECT_EQ(counters().live_contexts, 0u);
}

// ---- Memory groups

// Built as XRT's own examples do, but for one buffer in the wrong group.
TEST_F(VxrtHostile, ABufferInAnotherGroupIsClonedAndGoesStale) {
  Image image = block_image();
  image.form = ImageForm::xclbin;
  Rig rig;
  const xrt::xclbin xclbin = load_xclbin(image);
  rig.device.register_xclbin(xclbin);
  const xrt::hw_context context(rig.device, xclbin.get_uuid());
  const xrt::kernel kernel(context, "MLIR_AIE");
  EXPECT_EQ(kernel.group_id(1), 1);
  EXPECT_EQ(kernel.group_id(3), 0);
  const auto buffer = [&](size_t bytes, xrt::bo::flags flags, uint32_t group) {
    return xrt::bo(rig.device, bytes, flags, group);
  };
  xrt::bo words = buffer(16, xrt::bo::flags::cacheable, 1);
  put(words, std::vector<uint32_t>{kInstructionMagic, kRows, 0, 0});
  words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  xrt::bo delta = buffer(kRows * kWidth * 2, xrt::bo::flags::host_only, 5);
  xrt::run run(kernel);
  run.set_arg(0, 3);
  run.set_arg(1, words);
  run.set_arg(2, 4);
  run.set_arg(3, rig.x);
  run.set_arg(4, rig.norm);
  run.set_arg(6, rig.weight);
  EXPECT_EQ(counters().clones, 0u);
  run.set_arg(7, delta);
  EXPECT_EQ(counters().clones, 1u);
  run_to_completion(run);
  EXPECT_EQ(download(delta), std::vector<uint16_t>(kRows * kWidth)) << "the clone has the result";
}

// ---- Pages of files

class MappedFile {
 public:
  MappedFile(int open_flags, int map_flags, int protection = PROT_READ) {
    char name[] = "/tmp/vxrt_hostile_XXXXXX";
    ::close(::mkstemp(name));
    const int file = ::open(name, open_flags);
    EXPECT_EQ(::truncate(name, kBytes), 0);
    memory = ::mmap(nullptr, kBytes, protection, map_flags, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    ::close(file);
    std::remove(name);
  }
  ~MappedFile() { ::munmap(memory, kBytes); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  static constexpr size_t kBytes = 8192;
  void* memory = nullptr;
};

TEST_F(VxrtHostile, PagesArePinnedForWritingUnlessTheyCanNeverBeWritten) {
  const xrt::device device(0);
  const auto error = [&](const MappedFile& file) {
    return error_of([&] { xrt::ext::bo(device, file.memory, MappedFile::kBytes); });
  };
  EXPECT_EQ(error({O_RDONLY, MAP_PRIVATE}), EFAULT);
  EXPECT_EQ(error({O_RDWR, MAP_SHARED}), EFAULT);
  EXPECT_EQ(error({O_RDONLY, MAP_SHARED}), 0);
  EXPECT_EQ(error({O_RDONLY, MAP_PRIVATE, PROT_READ | PROT_WRITE}), 0);
  set_hostile(false);
  EXPECT_EQ(error({O_RDONLY, MAP_PRIVATE}), 0);
}

}  // namespace
}  // namespace tyto::vxrt
