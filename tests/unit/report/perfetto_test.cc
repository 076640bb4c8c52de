// The trace-event file against the format: every event has what its phase needs, tracks are named,
// slices of a track nest, and counters only count.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "report/report.h"
#include "unit/report/profile_fixture.h"

namespace tyto::test {
namespace {

using Track = std::pair<int64_t, int64_t>;  // process, thread

struct Slice {
  std::string name;
  std::string category;
  double start = 0, end = 0;
};

struct Parsed {
  std::map<Track, std::vector<Slice>> slices;
  std::map<Track, std::string> threads;
  std::map<int64_t, std::string> processes;
  std::vector<std::pair<double, int64_t>> kv;
};

void parse_event(const Json& event, Parsed& parsed) {
  const std::string_view phase = event.at("ph").as_string();
  const int64_t pid = event.at("pid").as_int();
  const std::string name(event.at("name").as_string());
  if (phase == "M") {
    const std::string value = event.at("args").string_or("name", "");
    if (name == "process_name") parsed.processes[pid] = value;
    if (name == "thread_name") parsed.threads[{pid, event.at("tid").as_int()}] = value;
  } else if (phase == "X") {
    const double start = event.at("ts").as_double(), length = event.at("dur").as_double();
    EXPECT_GE(start, 0);
    EXPECT_GE(length, 0);
    parsed.slices[{pid, event.at("tid").as_int()}].push_back(
        {name, std::string(event.at("cat").as_string()), start, start + length});
  } else if (phase == "C") {
    EXPECT_EQ(name, "KV length");
    parsed.kv.emplace_back(event.at("ts").as_double(), event.at("args").at("positions").as_int());
  } else {
    ADD_FAILURE() << "phase " << phase;
  }
}

Parsed parse(const std::string& text) {
  Parsed parsed;
  const Json json = Json::parse(text, "trace");
  EXPECT_EQ(json.at("displayTimeUnit").as_string(), "ms");
  json.at("traceEvents").for_each_element([&](size_t, const Json& event) {
    parse_event(event, parsed);
  });
  return parsed;
}

// Two slices of a track lie one inside the other, or do not overlap.
void expect_nested(std::vector<Slice> slices, const std::string& track) {
  constexpr double kSameMoment = 1e-4;  // microseconds read back as doubles
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  std::vector<const Slice*> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back()->end <= slice.start + kSameMoment) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(slice.end, open.back()->end + kSameMoment)
          << track << ": " << slice.name << " overlaps " << open.back()->name;
    }
    open.push_back(&slice);
  }
}

class Perfetto : public testing::Test {
 protected:
  const Profile profile_ = ProfileBuilder().take();
  const std::string text_ = perfetto_report(profile_, profile_.runs[0]);
  const Parsed parsed_ = parse(text_);
};

TEST_F(Perfetto, EveryTrackIsNamedAndItsSlicesNest) {
  for (const auto& [track, slices] : parsed_.slices) {
    ASSERT_TRUE(parsed_.threads.contains(track));
    ASSERT_TRUE(parsed_.processes.contains(track.first));
    expect_nested(slices, parsed_.threads.at(track));
  }
  std::set<std::string> names;
  for (const auto& [track, name] : parsed_.threads)
    names.insert(parsed_.processes.at(track.first) + ": " + name);
  EXPECT_EQ(names,
            (std::set<std::string>{"host: engine thread", "host: set-up", "vnpu (modelled): queue",
                                   "vnpu (modelled): programs", "vnpu (modelled): launches",
                                   "cpu: queue", "cpu: programs", "cpu: launches"}));
}

TEST_F(Perfetto, ADevicesTimeIsMarkedAsItIs) {
  for (const auto& [track, slices] : parsed_.slices)
    for (const Slice& slice : slices) {
      const bool on_virtual = parsed_.processes.at(track.first) == "vnpu (modelled)";
      const bool waits = slice.name.starts_with("wait ") &&
                         (slice.name.ends_with("block") || slice.name.ends_with("lm_head"));
      EXPECT_EQ(slice.category, on_virtual || waits ? "modelled" : "measured") << slice.name;
    }
}

TEST_F(Perfetto, TheRequestBeginsAfterTheSetUp) {
  double setup_end = 0, request = 1e18;
  for (const auto& [track, slices] : parsed_.slices)
    for (const Slice& slice : slices) {
      if (parsed_.threads.at(track) == "set-up")
        setup_end = std::max(setup_end, slice.end);
      else
        request = std::min(request, slice.start);
    }
  EXPECT_DOUBLE_EQ(setup_end, 90'000);
  EXPECT_DOUBLE_EQ(request, 90'000);
}

TEST_F(Perfetto, CountsTheKvCache) {
  ASSERT_EQ(parsed_.kv.size(), 3u);
  EXPECT_EQ(parsed_.kv[0].second, 10);
  EXPECT_EQ(parsed_.kv[1].second, 11);
  EXPECT_EQ(parsed_.kv[2].second, 12);
  EXPECT_DOUBLE_EQ(parsed_.kv[0].first, 90'000 + 96'000);
}

TEST_F(Perfetto, HasEveryDispatchAndLaunch) {
  std::map<std::string, size_t> count;
  for (const auto& [track, slices] : parsed_.slices)
    count[parsed_.processes.at(track.first) + ": " + parsed_.threads.at(track)] = slices.size();
  EXPECT_EQ(count["vnpu (modelled): queue"], 9u);
  EXPECT_EQ(count["vnpu (modelled): programs"], 9u);
  EXPECT_EQ(count["vnpu (modelled): launches"], 18u);
  EXPECT_EQ(count["cpu: launches"], 7u);
}

}  // namespace
}  // namespace tyto::test
