// What the host does for a decoded token once it is warm: no allocation, and no system call but
// those with which it waits for a device.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>

#include "device/vnpu/machine/control.h"
#include "support/allocations.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

struct Setting {
  const char* name;
  const char* device;
  Fusion fusion;
  NpuWeights weights;
};

constexpr Setting kSettings[] = {{"cpu", "cpu", Fusion::block, NpuWeights::bf16},
                                 {"block", "vnpu", Fusion::block, NpuWeights::bf16},
                                 {"token", "vnpu", Fusion::token, NpuWeights::bf16},
                                 {"token_q4nx", "vnpu", Fusion::token, NpuWeights::q4nx}};

struct Runner {
  explicit Runner(const Setting& setting)
      : random(testing_support::random_model(testing_support::small_config(), DType::bf16)) {
    vxrt::reset();
    NpuSettings npu;
    npu.weights = setting.weights;
    const DeviceEnv env{pool, trace, setting.fusion, model_dims(random.model.config, 0),
                        testing_support::settings_of(npu)};
    devices.push_back(open_device(setting.device, env));
    if (devices[0]->info().name != "cpu") devices.push_back(open_device("cpu", env));
    std::vector<Device*> order;
    for (const auto& device : devices) order.push_back(device.get());
    const PipelineOptions options{.forward = {.fusion = setting.fusion}};
    pipeline = std::make_unique<testing_support::OneSequence>(random.model, order, options, trace);
    pipeline->run(std::array<Token, 5>{1, 2, 3, 4, 5});
    decode(4);
  }

  void decode(int count) {
    for (Token token = 7; token < 7 + count; ++token) pipeline->run({&token, 1});
  }

  const testing_support::RandomModel random;
  ThreadPool pool{1};  // which thread takes its first chunk when would be chance
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<testing_support::OneSequence> pipeline;
};

TEST(DecodePath, AllocatesNothingOnceWarm) {
  for (const Setting& setting : kSettings) {
    Runner runner(setting);
    const uint64_t before = testing_support::allocations;
    runner.decode(16);
    EXPECT_EQ(testing_support::allocations, before) << setting.name;
  }
}

// From here on any other call ends the process with SIGSYS. Only this thread: the device's own is
// none of the host's business.
void allow_only_waiting() {
  constexpr auto kAllowed =
      std::to_array<uint32_t>({SYS_futex, SYS_sched_yield, SYS_exit_group, SYS_restart_syscall});
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (uint32_t number : kAllowed) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(77);
}

[[noreturn]] void decode_filtered(const Setting& setting, bool misbehaves) {
  Runner runner(setting);
  allow_only_waiting();
  runner.decode(16);
  if (misbehaves) ::getppid();
  ::_exit(0);
}

// Each in a process of its own, which gtest starts afresh: a fork would lack the device's thread.
TEST(DecodePathDeathTest, CallsNothingButWaitsOnceWarm) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the address sanitizer makes system calls of its own; a build without it runs this";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(decode_filtered(kSettings[0], true), testing::KilledBySignal(SIGSYS), "")
      << "the filter lets other calls through";
  for (const Setting& setting : kSettings)
    EXPECT_EXIT(decode_filtered(setting, false), testing::ExitedWithCode(0), "") << setting.name;
}

}  // namespace
}  // namespace tyto
