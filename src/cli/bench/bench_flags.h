// What `tyto bench` takes, and which tests on which devices it asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_run.h"
#include "bench/bench_tests.h"
#include "cli/flags.h"

namespace tyto {

struct BenchFlags {
  EngineChoice engine;  // its device is a list here
  std::vector<std::string> models;
  std::vector<std::string> prompt = {"512"};
  std::vector<std::string> generate = {"128"};
  std::vector<std::string> pairs;
  std::vector<std::string> depth = {"0"};
  std::vector<std::string> sequences = {"1"};
  std::vector<std::string> batch = {"2048"};
  std::vector<std::string> ubatch;
  std::vector<std::string> threads;
  std::string type_k, type_v;
  std::string ab;
  uint32_t repetitions = 5;
  double delay = 0;
  std::string output;  // empty: as suits who reads it
  std::string output_err;
  bool no_warmup = false;
  bool progress = false;
  bool energy = false;
  bool peak = false;
  bool no_ledger = false;
  bool calibrate = false;
  std::string sign;
  std::vector<std::string> speculate;
  std::string draft;
  uint32_t draft_max = 8;
};

void add_bench_flags(CommandLine& command, BenchFlags& flags);

BenchSetup bench_setup(EngineOptions options);  // for one model and device

// -ctk and -ctv, where they were given, become --kv-type.
void settle_kv_type(BenchFlags& flags);

inline constexpr uint32_t kMostThreads = 1024;  // as everywhere
std::vector<uint32_t> positive_counts(const std::vector<std::string>& texts,
                                      const std::string& flag, uint32_t most = UINT32_MAX);

// What is asked for; each throws a usage Error for what cannot be.
std::vector<BenchTest> wanted_tests(const BenchFlags& flags);
std::vector<std::string> named_devices(const std::string& text, const std::string& flag);
std::vector<std::string> wanted_devices(const BenchFlags& flags);
std::vector<SpeculationName> wanted_speculations(const BenchFlags& flags,
                                                 const std::vector<BenchTest>& tests);

// One engine to measure, or two to compare in turns.
struct BenchWork {
  BenchSetup first;
  std::optional<BenchSetup> second;
};

std::vector<BenchWork> plan_work(const CommandLine& command, const BenchFlags& flags,
                                 const std::vector<BenchTest>& tests);

// A phase of --require that no test has is an Error.
void check_required_phase(const BenchFlags& flags, const std::vector<BenchTest>& tests);

std::string widest_name(const BenchFlags& flags, std::vector<BenchTest> tests);

}  // namespace tyto
