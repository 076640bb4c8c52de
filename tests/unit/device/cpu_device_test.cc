// What the CPU says of itself.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "device/device.h"

namespace tyto {
namespace {

// It is asked every few milliseconds while tokens are decoded.
TEST(CpuDevice, OpensNoFileWhenItIsAskedAgainWhatItIs) {
  ThreadPool pool{1};
  Trace trace;
  const std::unique_ptr<Device> device = open_device("cpu", {pool, trace});
  const std::string first = device->info().description;
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string again = device->info().description;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(again, first);
}

}  // namespace
}  // namespace tyto
