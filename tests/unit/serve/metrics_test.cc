#include "serve/metrics.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "base/file.h"
#include "unit/serve/prometheus_text.h"

namespace tyto {
namespace {

using testing_support::PrometheusText;

Outcome outcome_of(StopReason reason) {
  Outcome outcome;
  outcome.answer.reason = reason;
  Receipt& receipt = outcome.answer.receipt;
  receipt.prompt_tokens = 7;
  receipt.cached_tokens = 256;
  receipt.generated_tokens = 12;
  return outcome;
}

// A server with one model that is loaded and one that is not.
std::vector<Gauge> some_gauges() {
  ModelStatus owlet, barn;
  barn.name = "barn";
  owlet.name = "owlet";
  owlet.is_loaded = true;
  owlet.kv_pages = 8;
  owlet.kv_pages_in_use = 3;
  owlet.kv_window_pages = 5;
  owlet.kv_window_pages_in_use = 4;
  owlet.prefix_pages = 2;
  owlet.slots = 16;
  owlet.prefixes = {.lookups = 9, .hits = 4, .tokens_found = 1024, .evictions = 1};
  owlet.counters = {{.device = "vnpu", .is_virtual = true, .submissions = 96, .completions = 95},
                    {.device = "cpu", .is_host = true, .submissions = 5, .completions = 5}};
  const std::vector<SlotStatus> slots = {
      {.id = "a", .model = "owlet", .request = {.is_running = true}},
      {.id = "b", .model = "owlet", .request = {.is_running = true}},
      {.id = "c", .model = "owlet", .request = {.is_running = false}}};
  return gauges_of(slots, {owlet, barn},
                   {.connections = 2, .accepted = 10, .refused = 1, .requests = 30});
}

TEST(Metrics, WallTimesOfSimulationsAreKeptApart) {
  ServeMetrics metrics;
  metrics.first_token(0.003);
  metrics.first_token(100);
  metrics.first_token(0.5, true);
  metrics.between_tokens(0.01);
  metrics.queued(0);
  const PrometheusText text(metrics.text({}));
  const std::string first = "tyto_time_to_first_token_seconds";
  EXPECT_EQ(text.value(first, {{"executed", "real"}}, "_count"), 2);
  EXPECT_EQ(text.value(first, {{"executed", "real"}}, "_sum"), 100.003);
  EXPECT_EQ(text.value(first, {{"executed", "virtual"}}, "_count"), 1);
  EXPECT_EQ(text.value(first, {{"executed", "virtual"}}, "_sum"), 0.5);
  EXPECT_EQ(text.value(first, {{"executed", "real"}, {"le", "60"}}, "_bucket"), 1);
  EXPECT_EQ(text.value(first, {{"executed", "real"}, {"le", "0.002"}}, "_bucket"), 0);
  EXPECT_EQ(text.value(first, {{"executed", "real"}, {"le", "0.005"}}, "_bucket"), 1);
  EXPECT_EQ(text.value("tyto_inter_token_seconds", {{"executed", "real"}}, "_count"), 1);
  EXPECT_EQ(text.value("tyto_queue_seconds", {{"executed", "real"}}, "_count"), 1);
}

TEST(Metrics, RequestsAreCountedByTheirEnd) {
  ServeMetrics metrics;
  metrics.finished("owlet", outcome_of(StopReason::eos));
  metrics.finished("owlet", outcome_of(StopReason::eos));
  metrics.finished("barn", outcome_of(StopReason::cancelled));
  Outcome failed = outcome_of(StopReason::max_tokens);
  failed.error = Error(ErrorCode::device, "vnpu", "timed out");
  failed.answer.receipt.recoveries = 2;
  metrics.finished("owlet", failed);
  metrics.refused("the queue is full");
  const PrometheusText text(metrics.text({}));
  const std::string requests = "tyto_requests_total";
  EXPECT_EQ(text.value(requests, {{"model", "owlet"}, {"reason", "end of turn"}}), 2);
  EXPECT_EQ(text.value(requests, {{"model", "owlet"}, {"reason", "device error"}}), 1);
  EXPECT_EQ(text.value(requests, {{"model", "barn"}, {"reason", "cancelled"}}), 1);
  EXPECT_EQ(text.value("tyto_prompt_tokens_total", {{"model", "owlet"}, {"cached", "false"}}), 21);
  EXPECT_EQ(text.value("tyto_prompt_tokens_total", {{"model", "owlet"}, {"cached", "true"}}), 768);
  EXPECT_EQ(text.value("tyto_generated_tokens_total", {{"model", "barn"}}), 12);
  EXPECT_EQ(text.value("tyto_recoveries_total", {{"model", "owlet"}}), 2);
  EXPECT_EQ(text.value("tyto_refused_total", {{"reason", "the queue is full"}}), 1);
}

TEST(Metrics, EveryErrorHasAName) {
  ServeMetrics metrics;
  const auto all = {ErrorCode::input,  ErrorCode::usage,   ErrorCode::unsupported,
                    ErrorCode::device, ErrorCode::require, ErrorCode::busy};
  for (const ErrorCode code : all) {
    Outcome outcome;
    outcome.error = Error(code, "", "x");
    metrics.finished("owlet", outcome);
  }
  const PrometheusText text(metrics.text({}));
  EXPECT_EQ(text.families.at("tyto_requests_total").samples.size(), all.size());
  EXPECT_EQ(text.value("tyto_requests_total", {{"model", "owlet"}, {"reason", "busy"}}), 1);
}

TEST(Metrics, JoulesPerRailWhereTheyWereRead) {
  const auto energy = [](const char* rail, std::optional<double> joules) {
    RailEnergy result{};
    result.rail.source = "rapl";
    result.rail.name = rail;
    result.joules = joules;
    return result;
  };
  ServeMetrics metrics;
  metrics.energy({.seconds = 1, .rails = {energy("package-0", 1.5), energy("core", {})}});
  metrics.energy({.seconds = 1, .rails = {energy("package-0", 2.0), energy("core", {})}});
  const PrometheusText text(metrics.text({}));
  EXPECT_EQ(text.value("tyto_energy_joules_total", {{"rail", "rapl package-0"}}), 3.5);
  EXPECT_EQ(text.families.at("tyto_energy_joules_total").samples.size(), 1u);
}

TEST(Metrics, ReasonsAreNeitherLongNorMany) {
  ServeMetrics metrics;
  Outcome outcome = outcome_of(StopReason::eos);
  std::vector<std::string>& fallbacks = outcome.answer.receipt.fallbacks;
  fallbacks.push_back(std::string(5000, 'x'));
  fallbacks.push_back("a \"quoted\" path\\name\nin two lines");
  for (int i = 0; i < 100; ++i) fallbacks.push_back("reason " + std::to_string(i));
  metrics.finished("owlet", outcome);
  metrics.finished("owlet", outcome);
  const PrometheusText text(metrics.text({}));
  const auto& samples = text.families.at("tyto_fallbacks_total").samples;
  EXPECT_EQ(samples.size(), 65u);
  double sum = 0;
  for (const auto& sample : samples) {
    EXPECT_LE(sample.labels.at("reason").size(), 130u);
    sum += sample.value;
  }
  EXPECT_EQ(sum, 204);
  EXPECT_EQ(text.value("tyto_fallbacks_total", {{"reason", "other"}}), 2 * (102 - 64));
}

TEST(Metrics, GaugesOfTheMoment) {
  const PrometheusText text(ServeMetrics().text(some_gauges()));
  EXPECT_EQ(text.value("tyto_requests_running", {{"model", "owlet"}}), 2);
  EXPECT_EQ(text.value("tyto_requests_waiting", {{"model", "owlet"}}), 1);
  EXPECT_EQ(text.value("tyto_requests_waiting", {{"model", "barn"}}), 0);
  EXPECT_EQ(text.value("tyto_model_loaded", {{"model", "barn"}}), 0);
  EXPECT_EQ(text.value("tyto_kv_pages_in_use", {{"model", "owlet"}}), 3);
  EXPECT_EQ(text.value("tyto_kv_window_pages", {{"model", "owlet"}}), 5);
  EXPECT_EQ(text.value("tyto_kv_window_pages_in_use", {{"model", "owlet"}}), 4);
  EXPECT_EQ(text.value("tyto_prefix_hits_total", {{"model", "owlet"}}), 4);
  EXPECT_EQ(text.families.at("tyto_prefix_hits_total").type, "counter");
  EXPECT_EQ(text.families.at("tyto_kv_pages").type, "gauge");
  EXPECT_EQ(text.value("tyto_device_failures_total",
                       {{"model", "owlet"}, {"device", "vnpu"}, {"virtual", "true"}}),
            1);
  EXPECT_EQ(text.value("tyto_device_completions_total",
                       {{"model", "owlet"}, {"device", "cpu"}, {"virtual", "false"}}),
            5);
  EXPECT_EQ(text.value("tyto_connections", {}), 2);
}

TEST(Metrics, ManyThreadsCountAtOnce) {
  ServeMetrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&metrics, i] {
      const std::string model = "model " + std::to_string(i % 2);
      for (int n = 0; n < 200; ++n) {
        metrics.finished(model, outcome_of(StopReason::eos));
        metrics.between_tokens(0.01 * n);
        if (n % 50 == 0) PrometheusText(metrics.text({}));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const PrometheusText text(metrics.text({}));
  EXPECT_EQ(text.value("tyto_generated_tokens_total", {{"model", "model 0"}}), 400 * 12);
  EXPECT_EQ(text.value("tyto_inter_token_seconds", {{"executed", "real"}}, "_count"), 800);
}

// From a server that has seen everything.
std::set<std::string> names_of_metrics() {
  ServeMetrics metrics;
  Outcome outcome = outcome_of(StopReason::eos);
  outcome.answer.receipt.fallbacks = {"x"};
  outcome.answer.receipt.speculation = SpeculationCounters{.source = "lookup", .calls = 1};
  RailEnergy energy{};
  energy.joules = 1;
  metrics.energy({.seconds = 1, .rails = {energy}});
  metrics.finished("owlet", outcome);
  metrics.refused("x");
  std::set<std::string> names;
  for (const auto& [name, family] : PrometheusText(metrics.text(some_gauges())).families)
    names.insert(name);
  return names;
}

std::set<std::string> metrics_named_in(const std::string& text) {
  static const std::regex kName("tyto_[a-z_]+");
  static const std::regex kOfHistogram("_seconds_(bucket|sum|count)$");
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), kName), end; i != end; ++i)
    names.insert(std::regex_replace(i->str(), kOfHistogram, "_seconds"));
  return names;
}

TEST(Metrics, TheDashboardShowsWhatThereIs) {
  const std::filesystem::path root = TYTO_SOURCE_DIR;
  const std::string text = read_text_file(root / "deploy/grafana-dashboard.json", 1 << 20);
  std::set<std::string> shown;
  const auto add_target = [&](size_t, const Json& target) {
    shown.merge(metrics_named_in(std::string(target.at("expr").as_string())));
  };
  const auto add_panel = [&](size_t, const Json& panel) {
    if (const auto targets = panel.find("targets")) targets->for_each_element(add_target);
  };
  Json::parse(text, "dashboard").at("panels").for_each_element(add_panel);
  EXPECT_GE(shown.size(), 15u);
  const std::set<std::string> all = names_of_metrics();
  for (const std::string& name : shown) EXPECT_TRUE(all.contains(name)) << name;
}

TEST(Metrics, TheDocumentationNamesThemAll) {
  const std::filesystem::path root = TYTO_SOURCE_DIR;
  EXPECT_EQ(metrics_named_in(read_text_file(root / "docs/metrics.md", 1 << 20)),
            names_of_metrics());
}

}  // namespace
}  // namespace tyto
