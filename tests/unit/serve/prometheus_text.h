// Reads Prometheus's text format 0.0.4 as strictly as promtool: what is not exactly so is a failure
// of the test that reads it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tyto::testing_support {

struct PrometheusText {
  using Labels = std::map<std::string, std::string>;
  struct Sample {
    std::string name;
    Labels labels;
    double value = 0;
  };
  struct Family {
    std::string help, type;
    std::vector<Sample> samples;
  };
  std::map<std::string, Family> families;

  explicit PrometheusText(const std::string& text) {
    EXPECT_TRUE(text.ends_with('\n'));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read(line);
    for (const auto& [name, family] : families) {
      EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
      if (family.type == "histogram") check_histogram(name, family);
    }
  }

  // The one sample of that name with exactly these labels.
  double value(const std::string& family, const Labels& labels,
               const std::string& suffix = "") const {
    const auto found = families.find(family);
    if (found != families.end())
      for (const Sample& sample : found->second.samples)
        if (sample.name == family + suffix && sample.labels == labels) return sample.value;
    ADD_FAILURE() << "there is no " << family << suffix << " with these labels";
    return std::numeric_limits<double>::quiet_NaN();
  }

 private:
  void read(const std::string& line) {
    static const std::regex kHelp("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static const std::regex kType("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) {
      EXPECT_FALSE(families.contains(match[1])) << "twice: " << line;
      current_ = match[1];
      families[current_].help = match[2];
    } else if (std::regex_match(line, match, kType)) {
      EXPECT_EQ(match[1], current_) << "type without help: " << line;
      EXPECT_TRUE(families[current_].type.empty() && families[current_].samples.empty()) << line;
      families[current_].type = match[2];
    } else {
      read_sample(line);
    }
  }

  void read_sample(const std::string& line) {
    static const std::regex kSample(
        R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? ([-+0-9.eE]+|\+Inf|-Inf|Nan))re");
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, kSample)) << line;
    Sample sample{match[1], labels_of(match[3], line), std::strtod(match[4].str().c_str(), {})};
    ASSERT_TRUE(families.contains(current_)) << line;
    Family& family = families[current_];
    const bool is_histogram = family.type == "histogram";
    EXPECT_EQ(sample.name.starts_with(current_), true) << line;
    const std::string suffix = sample.name.substr(current_.size());
    EXPECT_TRUE(is_histogram ? suffix == "_bucket" || suffix == "_sum" || suffix == "_count"
                             : suffix.empty())
        << line;
    EXPECT_GE(sample.value, 0) << line;
    EXPECT_TRUE(seen_.emplace(sample.name, sample.labels).second) << "twice: " << line;
    family.samples.push_back(std::move(sample));
  }

  static Labels labels_of(const std::string& text, const std::string& line) {
    static const std::regex kLabel(
        R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$))re");
    Labels labels;
    std::string rest = text;
    for (std::smatch match; !rest.empty(); rest = match.suffix()) {
      if (!std::regex_search(rest, match, kLabel, std::regex_constants::match_continuous)) {
        ADD_FAILURE() << "not a label: " << rest << " in " << line;
        break;
      }
      EXPECT_TRUE(labels.emplace(match[1], match[2]).second) << "label twice: " << line;
    }
    return labels;
  }

  // Buckets grow, end with +Inf, and that one is the count.
  static void check_histogram(const std::string& name, const Family& family) {
    std::map<Labels, std::pair<double, double>> last;  // upper bound, count
    for (const Sample& sample : family.samples) {
      Labels labels = sample.labels;
      if (sample.name == name + "_bucket") {
        const std::string bound = labels["le"];
        labels.erase("le");
        const double upper = bound == "+Inf" ? HUGE_VAL : std::strtod(bound.c_str(), nullptr);
        if (last.contains(labels)) {
          EXPECT_GT(upper, last[labels].first) << name;
          EXPECT_GE(sample.value, last[labels].second) << name;
        }
        last[labels] = {upper, sample.value};
      }
    }
    for (const Sample& sample : family.samples) {
      if (sample.name != name + "_count") continue;
      EXPECT_EQ(last[sample.labels].first, HUGE_VAL) << name;
      EXPECT_EQ(last[sample.labels].second, sample.value) << name;
    }
  }

  std::string current_;
  std::set<std::pair<std::string, Labels>> seen_;
};

}  // namespace tyto::testing_support
