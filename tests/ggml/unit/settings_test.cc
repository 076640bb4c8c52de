#include "ggml/offer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto::plugin {
namespace {

using Variables = std::map<std::string, std::string>;

std::string problem(const Variables& variables) {
  try {
    read_settings(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    return error.what();
  }
  return "none";
}

TEST(Settings, TokensOfAllDevicesOrOfOne) {
  const Settings all = read_settings({{"GGML_TYTO_MIN_N", "2"}, {"GGML_TYTO_MAX_N", "64"}});
  for (const char* device : {kNpuName, kVirtualName}) {
    EXPECT_EQ(settings_for(device, all).min_n, 2);
    EXPECT_EQ(settings_for(device, all).max_n, 64);
  }
  const Settings own =
      read_settings({{"GGML_TYTO_MIN_N", "4,XDNA0:32"}, {"GGML_TYTO_MAX_N", "VXDNA0:8"}});
  EXPECT_EQ(settings_for(kNpuName, own).min_n, 32);
  EXPECT_EQ(settings_for(kNpuName, own).max_n, INT64_MAX);
  EXPECT_EQ(settings_for(kVirtualName, own).min_n, 4);
  EXPECT_EQ(settings_for(kVirtualName, own).max_n, 8);
}

TEST(Settings, TokensThatCannotBeAreRefused) {
  for (const char* value : {"", ",", "8,", "8,8", "GPU0:8", ":8", "XDNA0:", "XDNA0:0", "XDNA0:8x",
                            "XDNA0:1,XDNA0:2", "8 ", "-1"})
    EXPECT_NE(problem({{"GGML_TYTO_MIN_N", value}}).find("GGML_TYTO_MIN_N"), std::string::npos)
        << value;
  // A range that holds nothing, of one device alone.
  EXPECT_EQ(problem({{"GGML_TYTO_MIN_N", "VXDNA0:9"}, {"GGML_TYTO_MAX_N", "8"}}),
            "GGML_TYTO_MIN_N: 9 is more than GGML_TYTO_MAX_N, 8");
}

TEST(Settings, ADeviceByNameOrTheRealOnes) {
  for (const char* value : {kNpuName, kVirtualName, kAutoName})
    EXPECT_EQ(read_settings({{"GGML_TYTO_DEVICE", value}}).device, value);
  EXPECT_EQ(problem({{"GGML_TYTO_DEVICE", "GPU0"}}),
            "GGML_TYTO_DEVICE: 'GPU0' is not XDNA0, VXDNA0 or auto");
  EXPECT_NE(problem({{"GGML_TYTO_FAULT", "x"}, {"GGML_TYTO_DEVICE", "auto"}}), "none");
}

}  // namespace
}  // namespace tyto::plugin
