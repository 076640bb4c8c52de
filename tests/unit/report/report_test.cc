// The reports of a profile made by hand: what they say, in which order, and that they say modelled.
#include "report/report.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "unit/report/profile_fixture.h"

namespace tyto::test {
namespace {

bool has(const std::string& text, const std::string& fragment) {
  return text.find(fragment) != std::string::npos;
}

size_t count(const std::string& text, const std::string& fragment) {
  size_t found = 0;
  for (size_t at = text.find(fragment); at != std::string::npos; at = text.find(fragment, at + 1))
    ++found;
  return found;
}

void expect_in_order(const std::string& text, const std::vector<std::string>& fragments) {
  size_t at = 0;
  for (const std::string& fragment : fragments) {
    const size_t found = text.find(fragment, at);
    ASSERT_NE(found, std::string::npos) << fragment;
    at = found + 1;
  }
}

// The same profile on a real device: nothing in it is modelled.
Profile measured() {
  Profile profile = ProfileBuilder().take();
  profile.facts.devices[0].name = profile.facts.origin.limits[0].device = "npu";
  profile.facts.devices[0].is_virtual = false;
  ProfileRun& run = profile.runs[0];
  Receipt& receipt = run.receipt;
  receipt.prefill_seconds = receipt.modelled->prefill;
  receipt.decode_seconds = receipt.modelled->decode;
  receipt.modelled.reset();
  run.simulated_seconds = 0;
  for (auto* devices : {&receipt.devices, &receipt.phases.prefill, &receipt.phases.decode})
    for (DeviceCounters& device : *devices)
      if (std::exchange(device.is_virtual, false)) device.device = "npu";
  receipt.plausibility = judge(receipt, profile.facts.origin.limits);
  return profile;
}

TEST(TextReport, SectionsComeInTheOrderPeopleReadThem) {
  expect_in_order(text_report(ProfileBuilder().take(), {}),
                  {"Headline", "Dataflow, prefill", "Dataflow, decode", "Wall-time attribution",
                   "Per layer", "Device calls", "Host operations", "Buffer write / run / read",
                   "Dispatches", "Operators", "Per-token trend", "Set-up", "Receipt"});
}

TEST(TextReport, EveryTableWithVirtualTimeSaysModelled) {
  const Profile profile = ProfileBuilder().take();
  std::set<std::string> without;
  for (const Table& table : report_tables(profile)) {
    const std::string title = to_text(table, {}).substr(0, 80);
    if (!has(title.substr(0, title.find('\n')), "[modelled]")) without.insert(table.id);
  }
  // What the host did and how long the set-up took is measured, whatever the device.
  EXPECT_EQ(without, (std::set<std::string>{"host", "setup"}));
  const std::string real = text_report(measured(), {});
  EXPECT_FALSE(has(real, "modelled")) << real;
}

TEST(TextReport, NumbersStandWhereTheyBelong) {
  const std::string text = text_report(ProfileBuilder().take(), {});
  expect_in_order(text, {"TTFT", "100.0 ms", "100.0 tok/s", "TPOT", "21.50 ms", "46.51 tok/s"});
  EXPECT_TRUE(has(text, "write 1.000 / run 20.00 / read 1.000")) << text;
  EXPECT_TRUE(has(text, "attention not on vnpu"));
  EXPECT_TRUE(has(text, "energy        n/a (no sensor)"));
  EXPECT_TRUE(has(text, "feedbeef"));
}

TEST(TextReport, UnattributedTimeIsRedOnATerminalOnlyAboveOnePercent) {
  const std::string red = "\033[31m";
  Profile profile = ProfileBuilder().take();  // exactly 1 % of the prefill
  EXPECT_FALSE(has(text_report(profile, {.colour = true}), red));
  ProfileBuilder builder;
  builder.host("tokenize", 90);
  builder.gap(2);
  builder.token_chosen();
  builder.finish_run();
  EXPECT_TRUE(has(text_report(builder.profile(), {.colour = true}), red + "unattributed"));
  EXPECT_FALSE(has(text_report(builder.profile(), {}), red));
  EXPECT_TRUE(has(text_report(builder.profile(), {}), "more than 1 %"));
}

TEST(TextReport, AFullRecordingIsSaid) {
  Profile profile = ProfileBuilder().take();
  profile.runs[0].lost = 12;
  EXPECT_TRUE(has(text_report(profile, {}), "the recording was full: 12 events"));
  EXPECT_TRUE(has(html_report(profile), "the recording was full: 12 events"));
}

TEST(TextReport, ARefusedSpeedIsNotShownAsAResult) {
  Profile profile = ProfileBuilder().take();
  profile.runs[0].receipt.plausibility = {.verdict = Verdict::refused,
                                          .reasons = {"it needs 307 GB/s"}};
  const std::string text = text_report(profile, {});
  EXPECT_TRUE(has(text, "refused"));
  EXPECT_TRUE(has(text, "it needs 307 GB/s"));
  EXPECT_FALSE(has(text, "tok/s")) << text;
  const std::string html = html_report(profile);
  EXPECT_TRUE(has(html, "refused"));
  EXPECT_FALSE(has(html, "tok/s"));
  EXPECT_FALSE(has(json_report(profile), "decode_tok_s"));
}

TEST(TextReport, SeveralRunsShowTheirSpread) {
  ProfileBuilder builder;
  for (const double extra : {0.0, 2.0}) {
    builder.prefill();
    builder.decode(extra);
    builder.finish_run();
  }
  EXPECT_TRUE(has(text_report(builder.profile(), {}), "over 2 runs 21.00 ± 1.414"));
}

TEST(TextReport, ReadsFasterThanMemoryAreThoseOfCaches) {
  Profile profile = ProfileBuilder().take();
  profile.facts.devices[0].peak.gb_s /= 1000;
  const std::string text = text_report(profile, {});
  EXPECT_TRUE(has(text, " times as fast as memory, so from caches (")) << text.substr(0, 300);
  EXPECT_FALSE(has(text, " of its peak (")) << text.substr(0, 300);
}

TEST(TextReport, OpensWithWhatItComesToAndWhatWasAsked) {
  Profile profile = ProfileBuilder().take();
  profile.facts.prompt = "Tell me\na story";
  profile.runs[0].answer = "Once upon a time. " + std::string(400, 'x');
  const std::string text = text_report(profile, {});
  EXPECT_TRUE(text.starts_with("63 % of a decoded token is spent in the layers; ")) << text;
  EXPECT_TRUE(has(text, " of its peak (the device's time is modelled).\n")) << text;
  EXPECT_TRUE(has(text, "\nPrompt: Tell me")) << text;
  EXPECT_EQ(text.find('\n', text.find("Answer: ")) - text.find("Answer: "),
            std::string("Answer: …").size() + 159);
}

TEST(HtmlReport, OpensWithTheConclusionAndEscapesPromptAndAnswer) {
  Profile profile = ProfileBuilder().take();
  profile.facts.prompt = "<b>bold</b>";
  profile.runs[0].answer = "<script>alert(1)</script>";
  const std::string page = html_report(profile);
  expect_in_order(page, {"<main><p class=\"lead\">63 % of a decoded token", "class=\"tiles\"",
                         "Prompt: &lt;b&gt;bold&lt;/b&gt;", "Answer: &lt;script&gt;alert(1)"});
  EXPECT_FALSE(has(page, "<script"));
}

// A colour means one thing: devices have theirs, and no other part of the page has one of them.
TEST(HtmlReport, ColoursMeanOneThingAndAFullTrackIsAHundredPercent) {
  const std::string page = html_report(ProfileBuilder().take());
  EXPECT_FALSE(has(page, "s-device"));
  EXPECT_TRUE(has(page, "<i class=\"s-npu\"></i>device wait"));
  EXPECT_TRUE(has(page, "<i class=\"s-cpu\"></i>host ops"));
  EXPECT_TRUE(has(page, "<i class=\"u0\"></i>model file"));
  const size_t bars = page.find("Operators of the prefill");
  const size_t end = page.find("</svg>", bars);
  const std::string drawing = page.substr(bars, end - bars);
  EXPECT_FALSE(has(drawing, "width=\"188.00\" height=\"15.00\" rx=\"2\" class=\"bar\"")) << drawing;
}

TEST(JsonReport, ReadsBackToTheSameProfile) {
  for (const Profile& profile : {ProfileBuilder().take(), measured()}) {
    const std::string json = json_report(profile);
    const Profile again = profile_from_json(json, "profile.json");
    EXPECT_EQ(json_report(again), json);
    EXPECT_EQ(text_report(again, {}), text_report(profile, {}));
    EXPECT_EQ(html_report(again), html_report(profile));
    EXPECT_EQ(perfetto_report(again, again.runs[0]), perfetto_report(profile, profile.runs[0]));
  }
}

TEST(JsonReport, HasTheRowsOfTheReport) {
  const Json json = Json::parse(json_report(ProfileBuilder().take()), "profile");
  const Json report = json.at("report");
  EXPECT_TRUE(report.at("modelled").as_bool());
  EXPECT_TRUE(report.at("headline").at("modelled").as_bool());
  EXPECT_DOUBLE_EQ(report.at("headline").at("ttft_ms").as_double(), 100);
  EXPECT_NEAR(report.at("prefill").at("wall").at("device_wait").as_double(), 64, 1e-9);
  EXPECT_EQ(report.at("layers").size(), 2u);
  EXPECT_EQ(report.at("tokens").size(), 2u);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(JsonReport, WhatIsNotAProfileIsRefusedWithAReason) {
  const std::string good = json_report(ProfileBuilder().take());
  const auto error = [](const std::string& text) {
    try {
      profile_from_json(text, "p.json");
    } catch (const Error& failure) {
      return std::string(failure.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error(good), "no error");
  EXPECT_TRUE(has(error("{}"), "p.json: is not a profile"));
  EXPECT_TRUE(has(error("[1"), "p.json"));
  EXPECT_TRUE(has(error(replaced(good, "tyto-profile-1", "tyto-profile-9")), "tyto-profile-9"));
  // Indices that point outside what the file names: kind, name, device, dispatch, token.
  const std::string first = "\n[2,0,0,0,0,0,0,0,0,5000000,0,0,0]";
  for (const char* bad :
       {"\n[9,0,0,0,0,0,0,0,0,5000000,0,0,0]", "\n[2,999,0,0,0,0,0,0,0,5000000,0,0,0]",
        "\n[2,0,7,0,0,0,0,0,0,5000000,0,0,0]", "\n[2,0,0,999999,0,0,0,0,0,5000000,0,0,0]",
        "\n[2,0,0,0,999999,0,0,0,0,5000000,0,0,0]", "\n[2,0,0,0,0,0,0,0,9,5,0,0,0]",
        "\n[2,0,0,0,0,0,0,0,0,5000000,0,0]", "\n[2,0,0,0,0,0,0,0,-1,5000000,0,0,0]"})
    EXPECT_TRUE(has(error(replaced(good, first, bad)), "p.json: runs[0].events[0]")) << bad;
  EXPECT_TRUE(has(error(replaced(good, "\"layers\":2", "\"layers\":4000000")), "layers"));
  EXPECT_TRUE(has(error(replaced(good, "[\"q\",0,", "[\"q\",70000,")), "names"));
}

TEST(HtmlReport, IsOnePageThatLoadsNothing) {
  const std::string html = html_report(ProfileBuilder().take());
  for (const char* outside : {"http:", "https:", "src=", "<link", "url(", "@import", "<script"})
    EXPECT_FALSE(has(html, outside)) << outside;
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(has(html, "prefers-color-scheme:dark"));
  EXPECT_TRUE(has(html, "width=device-width"));
}

TEST(HtmlReport, HasTheDrawingsAndTheSectionsInOrder) {
  const std::string html = html_report(ProfileBuilder().take());
  expect_in_order(html, {"id=\"headline\"", "id=\"dataflow\"", "Dataflow of the prefill",
                         "Dataflow of one decoded token", "id=\"attribution\"", "id=\"layers\"",
                         "Time per layer in the prefill", "id=\"calls\"", "id=\"host\"",
                         "id=\"buffers\"", "id=\"dispatches\"", "id=\"operators\"", "id=\"trend\"",
                         "Time of each decoded token", "id=\"setup\"", "id=\"receipt\""});
  // Boxes in the order of the architecture, the layers framed.
  expect_in_order(html, {">prompt<", ">tokenize<", ">pad<", "× 2 layers", ">block<", ">attention<",
                         ">final norm<", ">LM head<", ">first token<", "TTFT 100.0 ms, modelled"});
}

TEST(HtmlReport, TagsBalanceAndTextIsEscaped) {
  const std::string html = html_report(ProfileBuilder().take());
  for (const char* tag : {"section", "table", "svg", "div", "tr", "td", "details", "text", "p"})
    EXPECT_EQ(count(html, "<" + std::string(tag) + ">") + count(html, "<" + std::string(tag) + " "),
              count(html, "</" + std::string(tag) + ">"))
        << tag;
  EXPECT_TRUE(has(html, "a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_FALSE(has(html, "a <b>"));
}

TEST(HtmlReport, SaysModelledInEverySectionThatIs) {
  const std::string html = html_report(ProfileBuilder().take());
  for (const char* id : {"dataflow", "attribution", "layers", "calls", "buffers", "dispatches",
                         "operators", "trend", "receipt"}) {
    const size_t at = html.find("<section id=\"" + std::string(id) + "\">");
    ASSERT_NE(at, std::string::npos) << id;
    EXPECT_TRUE(has(html.substr(at, html.find("</h2>", at) - at), "modelled")) << id;
  }
  EXPECT_FALSE(has(html_report(measured()), "modelled"));
}

TEST(SweepReport, HasTheScalingTableAndItsPlot) {
  ProfileBuilder builder;
  Profile& profile = builder.profile();
  profile.names.push_back({.label = "x"});
  const auto row = [&](uint32_t prompt, std::vector<double> seconds, std::vector<double> tpot) {
    SweepRow result{.prompt_tokens = prompt,
                    .generated_tokens = 40,
                    .prefill_s = std::move(seconds),
                    .tpot_ms = std::move(tpot)};
    Receipt& receipt = result.receipt;
    receipt.devices = {{.device = "vnpu", .is_virtual = true, .submissions = 1}};
    receipt.phases.prefill = receipt.devices;
    receipt.generated_tokens = 40;
    if (!result.prefill_s.empty())
      receipt.modelled = {result.prefill_s.back(), result.tpot_ms.back() * 39e-3};
    receipt.plausibility = judge(receipt, profile.facts.origin.limits);
    return result;
  };
  // The published table of one dispatch per operator.
  profile.sweep = {row(13, {0.67}, {224.2}), row(128, {0.71}, {227.3}), row(2048, {2.22}, {230.4})};
  profile.sweep.push_back(row(9999, {}, {}));
  profile.sweep.back().note = "does not fit";
  const std::string text = text_report(profile, {});
  EXPECT_TRUE(has(text, "Scaling with the prompt  [modelled]")) << text;
  expect_in_order(text,
                  {"13     0.6700           19.4          4.46", "180.3", "922.5", "does not fit"});
  const std::string html = html_report(profile);
  EXPECT_TRUE(has(html, "Prefill speed by prompt length"));
  EXPECT_EQ(count(html, "<circle"), 6u);
  EXPECT_EQ(json_report(profile_from_json(json_report(profile), "p")), json_report(profile));
}

std::string diff_text(const Profile& before, const Profile& after) {
  std::string text;
  for (const Table& table : diff_tables(before, after)) text += to_text(table, {}) + "\n";
  return text;
}

Profile runs_with(const std::vector<double>& extra) {
  ProfileBuilder builder;
  for (const double ms : extra) {
    builder.prefill();
    builder.decode(ms);
    builder.finish_run();
  }
  return builder.profile();
}

TEST(Diff, TellsAChangeFromNoise) {
  const Profile before = runs_with({0.0, 0.2, 0.4});
  const std::string same = diff_text(before, runs_with({0.1, 0.3, 0.2}));
  EXPECT_TRUE(has(same, "Nothing.")) << same;
  const std::string slower = diff_text(before, runs_with({4.0, 4.2, 4.4}));
  expect_in_order(slower, {"Changed by more than noise", "TPOT", "+4", "SLOWER",
                           "decode attention CPU", "SLOWER", "Every row"});
  EXPECT_FALSE(has(slower.substr(0, slower.find("Every row")), "TTFT"));
  EXPECT_TRUE(has(diff_text(runs_with({4.0, 4.2}), runs_with({0.0, 0.2})), "faster"));
}

TEST(Diff, OneRunEachLeavesNoiseUnknown) {
  const std::string text = diff_text(runs_with({0}), runs_with({5}));
  EXPECT_TRUE(has(text, "Noise is unknown"));
  EXPECT_TRUE(has(text, "noise unknown"));
  EXPECT_FALSE(has(text, "SLOWER"));
}

TEST(Diff, SaysWhatElseDiffers) {
  Profile after = measured();
  after.facts.origin.fusion = "token";
  const std::string text = diff_text(ProfileBuilder().take(), after);
  EXPECT_TRUE(has(text, "fusion: block -> token"));
  EXPECT_TRUE(has(text, "One side is modelled, the other measured"));
  EXPECT_TRUE(has(text, "before ms, modelled"));
}

TEST(FlowPicture, IsAFileOfItsOwn) {
  const std::string picture = flow_picture(ProfileBuilder().take());
  EXPECT_TRUE(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="));
  EXPECT_TRUE(has(picture, "<style>"));
  EXPECT_TRUE(picture.ends_with("</svg>"));
}

}  // namespace
}  // namespace tyto::test
