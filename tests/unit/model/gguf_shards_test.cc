// Models in several GGUF files.
#include "model/gguf.h"

#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

namespace fs = std::filesystem;

TEST(ShardName, OnlyTheFormOfGgufSplitIsOne) {
  const auto name = shard_name("a-b.gguf-00002-of-00013.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->stem, "a-b.gguf");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 13u);
  EXPECT_EQ(name->file(13), "a-b.gguf-00013-of-00013.gguf");
  for (const char* other :
       {"a.gguf", "a-1-of-2.gguf", "a-00000-of-00002.gguf", "a-00003-of-00002.gguf",
        "-00001-of-00002.gguf", "a-00001-of-00002.safetensors", "a-0x001-of-00002.gguf",
        "a-00001_of_00002.gguf", "a-+0001-of-00002.gguf", ""})
    EXPECT_FALSE(shard_name(other).has_value()) << other;
}

// A small model as gguf-split leaves it: all metadata in the first file, two tensors less in the
// last than in the others; what is to be wrong can be set before it is written.
struct Split {
  Scratch scratch;
  uint64_t files = 3;
  std::vector<uint64_t> numbers = {0, 1, 2};
  std::vector<uint64_t> counts = {3, 3, 3};
  uint64_t tensors = 0;  // as promised
  bool repeats_a_tensor = false;

  Split() {
    synthesize(small_config(), "bf16", 1, scratch / "whole.gguf");
    tensors = open_model(scratch / "whole.gguf").tensors.size();
  }
  fs::path file(uint64_t which) const {
    return scratch / fmt::format("m-{:05}-of-{:05}.gguf", which + 1, files);
  }
  void write() const {
    const MappedFile whole(scratch / "whole.gguf");
    const Gguf gguf = parse_gguf(whole.bytes(), "whole");
    for (uint64_t which = 0; which < files; ++which) {
      GgufMetadata metadata;
      if (which == 0) metadata.assign(gguf.metadata.begin(), gguf.metadata.end());
      metadata.push_back({"split.no", {numbers[which]}});
      metadata.push_back({"split.count", {counts[which]}});
      metadata.push_back({"split.tensors.count", {tensors}});
      std::vector<NamedTensor> mine;
      for (size_t i = 0; i < gguf.tensors.size(); ++i)
        if (i % files == which || (repeats_a_tensor && i == 0)) mine.push_back(gguf.tensors[i]);
      write_one(file(which), metadata, mine);
    }
  }
  static void write_one(const fs::path& path, const GgufMetadata& metadata,
                        const std::vector<NamedTensor>& tensors) {
    std::vector<TensorPlan> plan;
    for (const NamedTensor& tensor : tensors)
      plan.push_back({tensor.name, tensor.view.dtype, tensor.view.rows, tensor.view.cols});
    GgufWriter writer(path, metadata, plan);
    for (const NamedTensor& tensor : tensors) writer.append(tensor.view.bytes);
    writer.commit();
  }
  std::string error() const {
    write();
    return error_of([&] { open_model(file(0)); });
  }
};

TEST(GgufShards, OpenAsTheWholeFileDoes) {
  const Split split;
  split.write();
  const Model whole = open_model(split.scratch / "whole.gguf");
  const Model model = open_model(split.file(0));
  EXPECT_EQ(model.files.size(), 3u);
  EXPECT_EQ(model.parameters(), whole.parameters());
  EXPECT_EQ(model.weight_bytes(), whole.weight_bytes());
  EXPECT_EQ(values_of(model.weights.layers[1].down), values_of(whole.weights.layers[1].down));
  EXPECT_EQ(values_of(model.weights.embedding), values_of(whole.weights.embedding));
  ASSERT_TRUE(model.vocabulary.has_value());
  EXPECT_EQ(model.vocabulary->pieces, whole.vocabulary->pieces);
}

TEST(GgufShards, AnyOfTheFilesMeansAll) {
  const Split split;
  split.write();
  const Model whole = open_model(split.scratch / "whole.gguf");
  const Model model = open_model(split.file(1));
  EXPECT_EQ(model.files.size(), 3u);
  EXPECT_EQ(model.files.front().path(), split.file(0));
  EXPECT_EQ(values_of(model.weights.embedding), values_of(whole.weights.embedding));
  for (uint64_t which = 0; which < 3; ++which)
    fs::rename(split.file(which), fs::path(split.file(which)).replace_extension(".GGUF"));
  const fs::path capitals = fs::path(split.file(0)).replace_extension(".GGUF");
  EXPECT_EQ(open_model(capitals).parameters(), whole.parameters());
}

TEST(GgufShards, WhatContradictsItselfIsRefused) {
  {
    Split split;
    split.write();
    fs::remove(split.file(1));
    EXPECT_MESSAGE([&] { open_model(split.file(0)); },
                   "is the first of 3 files, but m-00002-of-00003.gguf is missing");
    fs::rename(split.file(0), split.scratch / "renamed.gguf");
    EXPECT_MESSAGE([&] { open_model(split.file(2)); },
                   "is file 3 of 3, but m-00001-of-00003.gguf is missing | put all files");
    EXPECT_MESSAGE([&] { open_model(split.scratch / "renamed.gguf"); },
                   "is file 1 of 3 of a model, but is not called so");
  }
  Split number;
  number.numbers[2] = 1;
  EXPECT_PRED_FORMAT2(contains, number.error(),
                      "says that it is file 2 of 3, its name that it is 3 of 3");
  Split count;
  count.counts[1] = 4;
  EXPECT_PRED_FORMAT2(contains, count.error(), "says that it is file 2 of 4");
  Split promise;
  ++promise.tensors;
  EXPECT_PRED_FORMAT2(contains, promise.error(), "but the 3 files have");
  Split repeated;
  repeated.repeats_a_tensor = true;
  EXPECT_PRED_FORMAT2(contains, repeated.error(), "is in another file of the model, too");
}

// Sixty thousand files that are promised cost nothing until they are there.
TEST(GgufShards, AHugeCountIsJustAFileThatIsMissing) {
  const Scratch scratch;
  const fs::path path = scratch / "m-00001-of-65535.gguf";
  write_file(path, GgufBytes(0, 3)
                       .string("split.no")
                       .number<uint32_t>(2)
                       .number<uint16_t>(0)
                       .string("split.count")
                       .number<uint32_t>(2)
                       .number<uint16_t>(65535)
                       .string("split.tensors.count")
                       .number<uint32_t>(5)
                       .number<int32_t>(1));
  EXPECT_MESSAGE([&] { open_model(path); }, "m-00002-of-65535.gguf is missing");
}

}  // namespace
}  // namespace tyto::test
