#include "trace/receipt.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

EnergyWindow window_of(double joules, double seconds) {
  const PowerRail rail{
      .name = "package-0", .source = "rapl", .kind = RailKind::energy_counter, .path = ""};
  return {
      .seconds = seconds,
      .rails = {{.rail = rail, .joules = joules, .reason = "", .seconds = seconds, .samples = 2}}};
}

TEST(EnergyReport, NamesTheRailOrTheReason) {
  Receipt receipt;
  receipt.prompt_tokens = 10;
  receipt.generated_tokens = 5;  // four of them decoded
  receipt.prefill_energy = window_of(2, 1);
  receipt.decode_energy = window_of(8, 2);
  RailEnergy absent;
  absent.rail = {.name = "PPT", .source = "amdgpu", .kind = RailKind::sampled_power, .path = ""};
  absent.reason = "no amdgpu";
  receipt.prefill_energy.rails.push_back(absent);
  receipt.decode_energy.rails.push_back(absent);
  EXPECT_EQ(energy_lines(receipt),
            (std::vector<std::string>{
                "rapl package-0: prefill 0.2 J/token, decode 2 J/token at 4 W",
                "amdgpu PPT: n/a (no amdgpu)",
            }));
  EXPECT_EQ(energy_reasons(receipt.decode_energy),
            (std::vector<std::string>{"amdgpu PPT: n/a (no amdgpu)"}));

  receipt.generated_tokens = 1;
  EXPECT_CONTAINS(energy_lines(receipt)[0], "decode n/a (no tokens)");
}

TEST(EnergyReport, ASimulationsJoulesAreNotADevices) {
  Receipt receipt;
  receipt.prefill_energy = window_of(2, 1);
  receipt.decode_energy = window_of(8, 2);
  receipt.devices = {{.device = "cpu"}};
  drop_simulated_energy(receipt);
  EXPECT_TRUE(receipt.decode_energy.measured());
  receipt.devices.push_back({.device = "vnpu", .is_virtual = true});
  drop_simulated_energy(receipt);
  EXPECT_FALSE(receipt.prefill_energy.measured());
  EXPECT_CONTAINS(energy_lines(receipt)[0], "n/a (a virtual device took part");
}

}  // namespace
}  // namespace tyto
