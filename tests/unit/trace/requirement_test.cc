#include "trace/receipt.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

DeviceCounters did(const std::string& name, uint64_t flops, uint64_t completed = 10) {
  return {.device = name, .submissions = 10, .completions = completed, .flops = flops};
}

std::string failure(const std::string& requirement, const PhaseCounters& executed) {
  try {
    check_requirement(parse_requirement(requirement), executed);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::require);
    return error.what();
  }
  return "";
}

TEST(Requirement, IsADeviceAndPerhapsAPhase) {
  EXPECT_TRUE(parse_requirement("").empty());
  EXPECT_EQ(to_text(parse_requirement("npu")), "npu");
  EXPECT_EQ(to_text(parse_requirement("npu:decode")), "npu:decode");
  for (const char* bad : {"npu:", "npu:both", ":decode", "npu:decode:prefill"})
    EXPECT_ERROR(parse_requirement(bad), "expected DEVICE or DEVICE:phase") << bad;
}

TEST(Requirement, EveryPhaseThatRanMustHaveBeenDoneByTheDevice) {
  const PhaseCounters both{.prefill = {did("npu", 9), did("cpu", 1)}, .decode = {did("npu", 9)}};
  EXPECT_EQ(failure("npu", both), "");
  EXPECT_EQ(failure("npu:prefill", both), "");
  // The prefill ran on the NPU and the decode did not: an answer that would pass for the NPU's.
  const PhaseCounters half{.prefill = {did("npu", 9)}, .decode = {did("gpu", 9)}};
  EXPECT_NE(failure("npu", half).find("no work in decode"), std::string::npos);
  EXPECT_EQ(failure("npu:prefill", half), "");
  EXPECT_NE(failure("npu:decode", half), "");
  const PhaseCounters prefill_only{.prefill = {did("npu", 9)}, .decode = {}};
  EXPECT_EQ(failure("npu", prefill_only), "");
  EXPECT_NE(failure("npu:decode", prefill_only).find("no decode ran"), std::string::npos);
  EXPECT_NE(failure("npu", {}).find("nothing ran"), std::string::npos);
}

TEST(Requirement, ALittleHelpIsNotTheWork) {
  const PhaseCounters executed{.prefill = {did("cpu", 2), did("npu", 98)}, .decode = {}};
  EXPECT_EQ(failure("npu", executed), "");
  EXPECT_NE(failure("cpu", executed).find("cpu 2 %, npu 98 %"), std::string::npos);
}

TEST(Requirement, UnfinishedOrVirtualWorkDoesNotCount) {
  EXPECT_NE(failure("npu", {.prefill = {did("npu", 9, 7)}, .decode = {}}).find("7 of 10"),
            std::string::npos);
  DeviceCounters device = did("vnpu", 9);
  device.is_virtual = true;
  EXPECT_NE(failure("vnpu", {.prefill = {device}, .decode = {}}).find("virtual"),
            std::string::npos);
}

}  // namespace
}  // namespace tyto
