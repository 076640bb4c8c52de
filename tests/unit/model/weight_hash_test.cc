#include "model/weight_hash.h"

#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::string hash_of(const Scratch& scratch, const std::vector<std::string>& files) {
  Model model;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto path = scratch / std::to_string(i);
    write_file(path, files[i]);
    model.files.emplace_back(path);
  }
  return weight_hash(model).hash;
}

TEST(WeightHash, SeesSizeHeaderLastByteAndOrder) {
  const Scratch scratch;
  const std::string file(3 << 20, 'w');
  const std::string whole = hash_of(scratch, {file});
  EXPECT_EQ(hash_of(scratch, {file}), whole);
  EXPECT_NE(hash_of(scratch, {file.substr(1)}), whole);
  std::string changed = file;
  changed[1000] = 'x';
  EXPECT_NE(hash_of(scratch, {changed}), whole);
  changed = file;
  changed.back() = 'x';
  EXPECT_NE(hash_of(scratch, {changed}), whole);
  EXPECT_NE(hash_of(scratch, {file, "a"}), hash_of(scratch, {"a", file}));
}

TEST(WeightHash, SaysThatItDoesNotReadEverything) {
  const Scratch scratch;
  std::string file(3 << 20, 'w');
  const std::string whole = hash_of(scratch, {file});
  // Between two of the pages that are read, past the header.
  file[(2 << 20) + 24000] = 'x';
  EXPECT_EQ(hash_of(scratch, {file}), whole);
  EXPECT_NE(weight_hash(Model{}).form.find("not of every byte"), std::string::npos);
}

TEST(WeightHash, SmallFilesAreReadWhole) {
  const Scratch scratch;
  EXPECT_NE(hash_of(scratch, {"abc"}), hash_of(scratch, {"abd"}));
  EXPECT_NE(hash_of(scratch, {""}), hash_of(scratch, {}));
}

}  // namespace
}  // namespace tyto::test
