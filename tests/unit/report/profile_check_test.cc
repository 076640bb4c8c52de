// Profiles that were changed, and what reading them says.

#include <gtest/gtest.h>

#include "base/error.h"
#include "report/report.h"
#include "unit/report/profile_fixture.h"

namespace tyto {
namespace {

using test::ProfileBuilder;

// As a careful forger would: every hash in the file is right again.
std::string error_of(const Profile& profile) {
  try {
    profile_from_json(json_report(profile), "p.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool has_finding(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ProfileCheck, AnHonestFileIsReadInPeace) {
  EXPECT_EQ(error_of(ProfileBuilder().take()), "no error");
}

TEST(ProfileCheck, CountersThatTheEventsContradictAreRefusedWithBothNumbers) {
  const Profile good = ProfileBuilder().take(2);
  const auto forged = [&](const std::function<void(Receipt&)>& change) {
    Profile profile = good;
    change(profile.runs[0].receipt);
    return error_of(profile);
  };
  // In one phase and in all, so that the sums are right.
  const auto with = [&](uint64_t DeviceCounters::* field, uint64_t value) {
    return forged([&](Receipt& receipt) {
      DeviceCounters& prefill = receipt.phases.prefill.front();
      receipt.devices.front().*field -= prefill.*field - value;
      prefill.*field = value;
    });
  };
  EXPECT_TRUE(
      has_finding(with(&DeviceCounters::bytes, 40),
                  "runs[0]: vnpu prefill: 80000000 bytes in the recording, 40 in the receipt"));
  EXPECT_TRUE(
      has_finding(with(&DeviceCounters::flops, 0), "160000000 FLOP in the recording, 0 in the"));
  EXPECT_TRUE(
      has_finding(with(&DeviceCounters::busy_ns, 9), "modelled ns in the recording, 9 in the"));
  EXPECT_TRUE(has_finding(with(&DeviceCounters::completions, 2), "3 completed submissions in the"));
  EXPECT_TRUE(has_finding(forged([](Receipt& receipt) { receipt.prompt_tokens = 1000; }),
                          "10 tokens in the recording, 1000 in the receipt"));
  EXPECT_TRUE(has_finding(forged([](Receipt& receipt) { receipt.generated_tokens = 7; }),
                          "2 tokens in the recording, 7 in the receipt"));
}

TEST(ProfileCheck, SumsThatAreNoneAndDevicesThatAreNotThere) {
  Profile forged = ProfileBuilder().take();
  forged.runs[0].receipt.devices.front().bytes = 1;
  EXPECT_TRUE(
      has_finding(error_of(forged), "vnpu: 1 bytes in all, but 240000000 in prefill and decode"));
  forged = ProfileBuilder().take();
  const DeviceCounters invented{.device = "h100", .submissions = 1, .completions = 1};
  forged.runs[0].receipt.devices.push_back(invented);
  forged.runs[0].receipt.phases.decode.push_back(invented);
  EXPECT_TRUE(has_finding(error_of(forged), "h100: is not a device of this profile"))
      << error_of(forged);
}

TEST(ProfileCheck, TimesThatTheEventsContradictAreRefused) {
  Profile forged = ProfileBuilder().take();
  forged.runs[0].receipt.modelled->decode /= 10;
  EXPECT_TRUE(has_finding(error_of(forged),
                          "decode: 0.043000 s by the recording, 0.004300 s by the "
                          "receipt"))
      << error_of(forged);
}

// The file that was shown as plausible: 4.3 GB a token at 43.84 tok/s where the memory has 120.
TEST(ProfileCheck, AVerdictIsWorkedOutAgain) {
  Profile forged = ProfileBuilder().take(2);
  forged.facts.origin.limits[0].limits.gb_s = 120;
  ProfileRun& run = forged.runs[0];
  uint64_t added = 0;
  for (Event& event : run.events)
    if (event.kind == EventKind::submit && event.token == 1 && event.device == 0) {
      event.bytes += 4'300'000'000;
      added += 4'300'000'000;
    }
  run.receipt.phases.decode.front().bytes += added;
  run.receipt.devices.front().bytes += added;
  const std::string error = error_of(forged);
  EXPECT_TRUE(has_finding(
      error, "runs[0].receipt: plausibility.verdict: says plausible, but vnpu decode: "))
      << error;
  EXPECT_TRUE(has_finding(error, "the memory has 120 GB/s")) << error;
  // A limit that allows it is no way out: the machine that is named has 120.
  forged.facts.origin.limits[0].limits.gb_s = 1e6;
  forged.facts.origin.limits[0].limits.source = "strix: a wide bus";
  run.receipt.plausibility = judge(run.receipt, forged.facts.origin.limits);
  EXPECT_TRUE(has_finding(error_of(forged), "the memory has 120 GB/s")) << error_of(forged);
}

TEST(ProfileCheck, LimitsThatNobodyPublishedAreNotBelievedAndSaidSo) {
  Profile profile = ProfileBuilder().take();
  profile.facts.origin.limits[0].limits = {.gb_s = 5000, .dispatch_us = 1, .source = "krackan: x"};
  const std::string text = text_report(profile_from_json(json_report(profile), "p.json"), {});
  EXPECT_TRUE(has_finding(text, "the limit of 5000 GB/s is not believed, 120 is published"))
      << text;
  EXPECT_TRUE(has_finding(text, "the limit of 1 us a dispatch is not believed, 50 is published"))
      << text;
}

TEST(ProfileCheck, OfARecordingThatLostEventsLessMayBeThereButNotMore) {
  Profile profile = ProfileBuilder().take();
  ProfileRun& run = profile.runs[0];
  run.lost = 5;
  std::erase_if(run.events, [](const Event& event) { return event.token == 2; });
  const std::string text = text_report(profile_from_json(json_report(profile), "p.json"), {});
  EXPECT_TRUE(has_finding(text, "lost 5 events")) << text;
  run.events.push_back(run.events.back());
  for (Event& event : run.events)
    if (event.kind == EventKind::submit) event.bytes *= 2;
  EXPECT_TRUE(has_finding(error_of(profile), "bytes in the recording")) << error_of(profile);
}

TEST(ProfileCheck, AReceiptWithoutAHashIsSaidToHaveNone) {
  std::string text = json_report(ProfileBuilder().take());
  const size_t at = text.rfind(",\"hash\":\"");
  text.erase(at, text.find('}', at) - at);
  EXPECT_TRUE(
      has_finding(text_report(profile_from_json(text, "p.json"), {}), "receipt has no hash"));
}

TEST(ProfileCheck, AReceiptThatWasChangedIsSaidToBe) {
  std::string text = json_report(ProfileBuilder().take());
  const size_t at = text.find("no sensor");
  text.replace(at, 2, "NO");
  try {
    profile_from_json(text, "p.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(has_finding(error.what(), "runs[0].receipt: was changed")) << error.what();
  }
}

}  // namespace
}  // namespace tyto
