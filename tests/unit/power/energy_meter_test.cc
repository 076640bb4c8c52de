#include "power/energy_meter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "power/measured_load.h"
#include "support/expect_error.h"
#include "support/system_tree.h"

namespace tyto {
namespace {

using testing_support::SystemTree;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

PowerRail counter(double range = 0, double update = 0) {
  return {.name = "package-0",
          .source = "rapl",
          .kind = RailKind::energy_counter,
          .path = "",
          .range_joules = range,
          .update_seconds = update};
}

PowerRail sampled(double update = 0) {
  return {.name = "PPT",
          .source = "amdgpu",
          .kind = RailKind::sampled_power,
          .path = "",
          .range_joules = 0,
          .update_seconds = update};
}

TEST(RailIntegral, ACounterIsTheDifferenceOfItsEnds) {
  RailIntegral rail(counter());
  rail.add(1.0, {100, ""});
  rail.add(3.0, {130, ""});
  const RailEnergy energy = rail.close();
  EXPECT_DOUBLE_EQ(*energy.joules, 30);
  EXPECT_DOUBLE_EQ(energy.seconds, 2);
  EXPECT_DOUBLE_EQ(*energy.watts(), 15);
}

TEST(RailIntegral, ACounterMayStartAgainFromZeroOncePerReading) {
  RailIntegral rail(counter(1000));
  rail.add(0, {990, ""});
  rail.add(1, {5, ""});    // 15
  rail.add(2, {900, ""});  // 895
  rail.add(3, {100, ""});  // 200
  EXPECT_DOUBLE_EQ(*rail.close().joules, 15 + 895 + 200);
}

TEST(RailIntegral, ACounterWithoutARangeMustNotGoBackwards) {
  RailIntegral rail(counter());
  rail.add(0, {990, ""});
  rail.add(1, {5, ""});
  const RailEnergy energy = rail.close();
  EXPECT_FALSE(energy.joules);
  EXPECT_CONTAINS(energy.reason, "backwards");
}

TEST(RailIntegral, ACounterThatStandsStillIsNotZeroJoules) {
  RailIntegral rail(counter());
  rail.add(0, {990, ""});
  rail.add(1, {990, ""});
  const RailEnergy energy = rail.close();
  EXPECT_FALSE(energy.joules);
  EXPECT_FALSE(energy.watts());
  EXPECT_CONTAINS(energy.reason, "did not move");
}

TEST(RailIntegral, PowerIsAddedUpBetweenSamples) {
  RailIntegral rail(sampled());
  rail.add(0, {10, ""});
  rail.add(1, {20, ""});  // 15 J
  rail.add(4, {20, ""});  // 60 J
  const RailEnergy energy = rail.close();
  EXPECT_DOUBLE_EQ(*energy.joules, 75);
  EXPECT_EQ(energy.samples, 3u);
}

TEST(RailIntegral, AWindowShorterThanTenUpdatesHasNoEnergy) {
  RailIntegral rail(counter(0, 0.1));
  rail.add(0, {100, ""});
  rail.add(0.9, {130, ""});
  const RailEnergy energy = rail.close();
  EXPECT_FALSE(energy.joules);
  EXPECT_CONTAINS(energy.reason, "900 ms is too short");
}

TEST(RailIntegral, ClosingOpensTheNextWindowWithTheSameReading) {
  RailIntegral rail(counter());
  rail.add(0, {0, ""});
  rail.add(1, {10, ""});
  EXPECT_DOUBLE_EQ(*rail.close().joules, 10);
  rail.add(3, {50, ""});
  const RailEnergy second = rail.close();
  EXPECT_DOUBLE_EQ(*second.joules, 40);
  EXPECT_DOUBLE_EQ(second.seconds, 2);
}

TEST(RailIntegral, AFailedReadingSpoilsTheWindowsItTouchesAndNoOther) {
  RailIntegral rail(counter());
  rail.add(0, {0, ""});
  rail.add(1, {0, "device is asleep"});
  EXPECT_CONTAINS(rail.close().reason, "asleep");
  rail.add(2, {20, ""});
  rail.add(3, {30, ""});
  EXPECT_CONTAINS(rail.close().reason, "when the window began");
  rail.add(4, {70, ""});
  EXPECT_DOUBLE_EQ(*rail.close().joules, 40);
}

constexpr double kUpdates = 10;  // as many of a rail must lie in a window

void wait_for_updates(const PowerRail& rail) {
  const std::chrono::duration<double> needed(kUpdates * rail.update_seconds);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < needed) std::this_thread::yield();
}

size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A thread that was joined is listed a little longer.
bool ends_with_threads(size_t threads) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (threads_of_process() != threads && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return threads_of_process() == threads;
}

TEST(EnergyMeter, ReadsCountersOfAFakeMachineAtTheWindowsEnds) {
  const SystemTree tree;
  const std::string zone = "sys/class/powercap/intel-rapl:0";
  tree.write(zone + "/name", "package-0");
  tree.write(zone + "/max_energy_range_uj", "65532610987");
  tree.write(zone + "/energy_uj", "65532000000");
  EnergyMeter meter(power_rails({tree.root(), ""}));
  meter.start();
  tree.write(zone + "/energy_uj", "1389013");  // past the end of its range
  const PowerRail& rail = meter.readers()[0].rail;
  wait_for_updates(rail);
  const EnergyWindow prefill = meter.lap();
  tree.write(zone + "/energy_uj", "5389013");
  wait_for_updates(rail);
  const EnergyWindow decode = meter.stop();
  ASSERT_EQ(prefill.rails.size(), 3u);
  EXPECT_NEAR(*prefill.rails[0].joules, 2.0, 1e-6);
  EXPECT_NEAR(*decode.rails[0].joules, 4.0, 1e-6);
  EXPECT_GE(decode.seconds, kUpdates * rail.update_seconds);
  EXPECT_TRUE(decode.measured());
  EXPECT_CONTAINS(prefill.rails[1].reason, "no amdgpu");
  EXPECT_CONTAINS(prefill.rails[2].reason, "no NPU");
}

TEST(EnergyMeter, SamplesPowerInBetween) {
  std::atomic<int> reads = 0;
  RailReader reader{sampled(), "", [&]() -> RailReading {
                      ++reads;
                      return {12.5, ""};
                    }};
  EnergyMeter meter({reader}, {.interval = std::chrono::milliseconds(1)});
  const size_t threads = threads_of_process();
  meter.start();
  while (reads < 10) std::this_thread::yield();  // the sampler gets there, or the test times out
  const EnergyWindow window = meter.stop();
  const RailEnergy& energy = window.rails[0];
  EXPECT_NEAR(*energy.joules, 12.5 * energy.seconds, 1e-9);
  EXPECT_GE(energy.samples, 10u);
  EXPECT_TRUE(ends_with_threads(threads)) << "the sampler outlived stop()";
}

TEST(EnergyMeter, CountersAreReadOftenEnoughToSeeEveryWrap) {
  std::atomic<int> reads = 0;
  RailReader reader{counter(100), "",
                    [&]() -> RailReading { return {static_cast<double>(reads++ * 60 % 100), ""}; }};
  EnergyMeter meter({reader}, {.counter_interval = std::chrono::milliseconds(1)});
  meter.start();
  while (reads < 8) std::this_thread::yield();
  const EnergyWindow window = meter.stop();
  EXPECT_DOUBLE_EQ(*window.rails[0].joules, 60.0 * (window.rails[0].samples - 1));
}

TEST(EnergyMeter, NothingToReadIsAReasonAndNoThread) {
  RailReader reader{counter(), "no such thing"};
  EnergyMeter meter({reader});
  meter.start();
  const EnergyWindow window = meter.stop();
  EXPECT_FALSE(window.measured());
  EXPECT_EQ(window.rails[0].reason, "no such thing");
}

TEST(EnergyMeter, MayBeStartedAgainAndDestroyedWhileOpen) {
  RailReader reader{sampled(), "", [] { return RailReading{1, ""}; }};
  EnergyMeter meter({reader}, {.interval = std::chrono::milliseconds(1)});
  for (int i = 0; i < 3; ++i) meter.start();
}

RailEnergy measured(const PowerRail& rail, double joules, double seconds) {
  return {.rail = rail, .joules = joules, .reason = "", .seconds = seconds, .samples = 2};
}

EnergyWindow window_of(double joules, double seconds) {
  return {.seconds = seconds, .rails = {measured(counter(), joules, seconds)}};
}

TEST(IdleSubtraction, TakesOffTheMeanOfTheTwoIdleNeighbours) {
  // 10 W and 12 W idle, 31 W load for 4 s: 124 J less 44 J.
  const EnergyWindow idle[] = {window_of(50, 5), window_of(60, 5)};
  const EnergyWindow load[] = {window_of(124, 4)};
  const RailPower power = subtract_idle(idle, load)[0];
  EXPECT_EQ(power.reason, "");
  EXPECT_DOUBLE_EQ(power.idle_watts.mean, 11);
  EXPECT_DOUBLE_EQ(power.load_watts.mean, 31);
  EXPECT_DOUBLE_EQ(power.net.mean, 80);
  EXPECT_DOUBLE_EQ(power.uncertainty, 4);  // idle moved by 1 W either way, for 4 s
  EXPECT_TRUE(power.above_idle());
}

TEST(IdleSubtraction, SpreadComesFromTheTrials) {
  const EnergyWindow idle[] = {window_of(50, 5), window_of(50, 5), window_of(50, 5)};
  const EnergyWindow load[] = {window_of(120, 4), window_of(140, 4)};
  const RailPower power = subtract_idle(idle, load)[0];
  EXPECT_EQ(power.net_joules, (std::vector<double>{80, 100}));
  EXPECT_DOUBLE_EQ(power.net.mean, 90);
  EXPECT_NEAR(power.net.deviation, 14.1421, 1e-4);
  EXPECT_DOUBLE_EQ(power.uncertainty, power.net.deviation);
}

TEST(IdleSubtraction, ALoadThatCannotBeToldFromIdleSaysSo) {
  const EnergyWindow idle[] = {window_of(50, 5), window_of(70, 5)};
  const EnergyWindow load[] = {window_of(50, 4)};
  EXPECT_FALSE(subtract_idle(idle, load)[0].above_idle());
}

TEST(IdleSubtraction, IsNeverSurerThanOneUpdateOfTheRail) {
  EnergyWindow idle = window_of(50, 5), load = window_of(50.01, 5);
  idle.rails[0].rail.update_seconds = load.rails[0].rail.update_seconds = 0.1;
  const EnergyWindow idles[] = {idle, idle};
  const RailPower power = subtract_idle(idles, {&load, 1})[0];
  EXPECT_NEAR(power.uncertainty, 1.0002, 1e-9);
  EXPECT_FALSE(power.above_idle());
}

TEST(IdleSubtraction, OneWindowWithoutEnergyIsAReasonForTheRail) {
  EnergyWindow broken = window_of(1, 1);
  broken.rails[0].joules.reset();
  broken.rails[0].reason = "device is asleep";
  const EnergyWindow idle[] = {window_of(50, 5), broken};
  const EnergyWindow load[] = {window_of(124, 4)};
  EXPECT_EQ(subtract_idle(idle, load)[0].reason, "device is asleep");
}

TEST(MeasuredLoad, ALoadIsMeasuredBetweenIdleWindows) {
  double joules = 0;
  // Each reading finds one joule more, which the machine uses anyway.
  RailReader reader{counter(), "", [&]() -> RailReading { return {joules += 1, ""}; }};
  EnergyMeter meter({reader}, {.counter_interval = std::chrono::hours(1)});
  uint32_t runs = 0;
  const PowerLoad load{"lamp", [&]() -> uint64_t {
                         joules += 10;
                         return 4 * ++runs;
                       }};
  std::vector<std::string> shown;
  const MeasuredLoad measured =
      measure_load(load, meter, {.idle_seconds = 0.001, .settle_seconds = 0.001, .repetitions = 3},
                   [&](std::string_view what, uint64_t done, uint64_t total) {
                     shown.push_back(std::string(what) + " " + std::to_string(done) + "/" +
                                     std::to_string(total));
                   });
  EXPECT_EQ(runs, 3u);
  EXPECT_DOUBLE_EQ(measured.tokens, 8);
  ASSERT_EQ(measured.windows.size(), 3u);
  ASSERT_EQ(measured.rails.size(), 1u);
  EXPECT_EQ(measured.rails[0].reason, "");
  EXPECT_DOUBLE_EQ(measured.rails[0].load_joules.min, 11);
  EXPECT_DOUBLE_EQ(measured.rails[0].load_joules.max, 11);
  const std::vector<std::string> expected = {
      "lamp: measuring idle 0/7", "lamp: measuring the load 1/7",
      "lamp: measuring idle 2/7", "lamp: measuring the load 3/7",
      "lamp: measuring idle 4/7", "lamp: measuring the load 5/7",
      "lamp: measuring idle 6/7"};
  EXPECT_EQ(shown, expected);
}

TEST(MeasuredLoad, AProgramThatFailsIsAnErrorAndNoLoad) {
  EXPECT_EQ(program_load({"true"}, std::chrono::seconds(60)).run(), 0u);
  EXPECT_ERROR(program_load({"false"}, std::chrono::seconds(60)).run(), "ended with exit code 1");
  EXPECT_ERROR(program_load({"/no/such/program"}, std::chrono::seconds(60)).run(),
               "cannot be started");
  EXPECT_ERROR(program_load({"sleep", "60"}, std::chrono::seconds(0)).run(),
               "is not done after 0 s, killed");
}

}  // namespace
}  // namespace tyto
