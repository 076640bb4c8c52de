// Whether a model runs on a machine, and where.
#include "plan/models_here.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

ModelHere described(uint64_t weight_bytes) {
  ModelHere here;
  here.description.emplace();
  here.description->weight_bytes = weight_bytes;
  here.description->has_tokenizer = true;
  return here;
}

TEST(ModelsHere, WhereAModelRuns) {
  const MachineHere without{.memory_bytes = 1 << 30, .why_no_npu = "none", .kernels = {}};
  const MachineHere with{.memory_bytes = 1 << 30, .why_no_npu = std::nullopt, .kernels = {}};
  ModelHere model = described(1000);
  EXPECT_EQ(where_it_runs(model, with), "cpu");
  model.npu = NpuImages::possible;
  EXPECT_EQ(where_it_runs(model, with), "cpu, npu (no images imported)");
  EXPECT_EQ(where_it_runs(model, without), "cpu");
  model.npu = NpuImages::imported;
  EXPECT_EQ(where_it_runs(model, with), "cpu, npu");
  EXPECT_EQ(where_it_runs(model, without), "cpu");
  model.description->has_tokenizer = false;
  EXPECT_EQ(where_it_runs(model, without), "cpu (has no tokenizer)");
}

TEST(ModelsHere, ReasonsAreShortInATable) {
  const MachineHere machine;
  ModelHere model;
  const auto shown = [&](const char* reason) {
    model.reason = reason;
    return where_it_runs(model, machine);
  };
  EXPECT_EQ(shown("its weights are q2_k, which Tyto does not read (tensor x)"),
            "no: its weights are q2_k");
  EXPECT_EQ(shown("architecture gemma4, which is not supported; these are: llama"),
            "no: architecture gemma4");
  EXPECT_EQ(shown("it needs 9.0 GB, with 4096 positions"), "no: it needs 9.0 GB");
  EXPECT_EQ(shown("has no tokenizer.json (tokenizer.model alone is not read)"),
            "no: has no tokenizer.json");
  EXPECT_EQ(shown("the file is cut off: 5.0 of at least 219 MB"), "no: the file is cut off");
  EXPECT_EQ(shown("a sentence that goes on and on without a comma"),
            "no: a sentence that goes on …");
  EXPECT_LE(shown(std::string(500, 'x').c_str()).size(), 31u);
}

TEST(ModelsHere, WeightsAndAShortCacheMustFitIntoTheMemory) {
  Listing listing;
  listing.models.push_back({.name = "tyto:owlet", .path = TYTO_SOURCE_DIR "/models/owlet"});
  MachineHere machine{.memory_bytes = 20 << 20, .why_no_npu = "none"};
  const ModelHere tight = models_here(listing, machine, {}).front();
  EXPECT_EQ(tight.reason.substr(0, 9), "it needs ");
  EXPECT_NE(tight.reason.find("with 2048 positions; this machine has 21.0 MB"), std::string::npos)
      << tight.reason;
  machine.memory_bytes = 1 << 30;
  const ModelHere ample = models_here(listing, machine, {}).front();
  EXPECT_EQ(where_it_runs(ample, machine), "cpu");
  EXPECT_EQ(ample.description->type, "bf16");
}

TEST(ModelsHere, OneThatCannotBeOpenedDoesNotStopTheOthers) {
  Listing listing;
  listing.models.push_back({.name = "hf:a/absent", .path = "/no/such/file.gguf"});
  listing.models.push_back(
      {.name = "hf:a/half", .why_not = "incomplete, the download was not finished"});
  const auto models = models_here(listing, {}, {});
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].reason, "no such file or folder");
  EXPECT_EQ(models[1].reason, "incomplete, the download was not finished");
  EXPECT_EQ(models[1].shown, "half");
  EXPECT_FALSE(models[0].is_model || models[1].is_model);
}

}  // namespace
}  // namespace tyto
