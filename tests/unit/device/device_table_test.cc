#include <gtest/gtest.h>

#include <map>

#include "device/device.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

// Receipts name devices; the code that judges them is below the table.
TEST(DeviceTable, ReceiptsMustCallItsVirtualDevicesVirtual) {
  for (const DeviceEntry& entry : device_table())
    EXPECT_EQ(must_be_virtual(entry.name), entry.is_virtual) << entry.name;
  EXPECT_FALSE(must_be_virtual("another"));
}

TEST(DeviceTable, DevicesWithTheSameSettingAgreeOnWhetherItChangesResults) {
  std::map<std::string_view, bool> seen;
  for (const DeviceEntry& entry : device_table())
    for (const DeviceSetting& setting : entry.settings())
      EXPECT_EQ(seen.try_emplace(setting.name, setting.changes_results).first->second,
                setting.changes_results)
          << setting.name;
  EXPECT_TRUE(seen.at("weights"));
  EXPECT_TRUE(seen.at("gpu"));
  EXPECT_FALSE(seen.at("guard"));
}

}  // namespace
}  // namespace tyto
