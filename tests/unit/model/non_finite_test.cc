#include "model/model.h"

#include "model/convert.h"
#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

// Replaces a value of the opened model's file, the model being closed again.
void spoil(const std::filesystem::path& model, const std::string& file, const std::string& tensor,
           uint64_t index, float value) {
  std::ptrdiff_t at = 0;
  {
    const Model opened = open_model(model);
    for (const NamedTensor& each : opened.tensors)
      if (each.name == tensor) at = each.view.bytes.data() - opened.files[0].bytes().data();
  }
  std::string bytes = read_file(file);
  std::memcpy(bytes.data() + at + index * sizeof value, &value, sizeof value);
  write_file(file, bytes);
}

std::string error_in(const Model& model) {
  const auto error = non_finite_weight(model);
  return error ? error->what() : "all are finite";
}

TEST(NonFinite, AWeightIsNamedAsItsFileNamesIt) {
  const Scratch scratch;
  const std::string folder = (scratch / "hf").string(), gguf = (scratch / "m.gguf").string();
  synthesize(small_config(), "f32", 1, folder);
  synthesize(small_config(), "f32", 1, gguf);
  EXPECT_EQ(error_in(open_model(folder)), "all are finite");
  spoil(folder, folder + "/model.safetensors", "model.layers.1.mlp.up_proj.weight", 2 * 64 + 7,
        std::numeric_limits<float>::infinity());
  EXPECT_EQ(error_in(open_model(folder)),
            folder +
                "/model.safetensors: tensor model.layers.1.mlp.up_proj.weight: inf at row 2, "
                "column 7 cannot be a weight");
  spoil(gguf, gguf, "blk.1.ffn_up.weight", 64, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(error_in(open_model(gguf)),
            gguf + ": tensor blk.1.ffn_up.weight: nan at row 1, column 0 cannot be a weight");
}

TEST(NonFinite, NoFileIsMadeOfAWeightThatIsNotFiniteOrDoesNotFit) {
  const Scratch scratch;
  const std::string folder = (scratch / "hf").string();
  ThreadPool pool(2);
  const auto converted = [&](const std::string& type) {
    return error_of([&] { quantize_model(open_model(folder), type, scratch / "out.gguf", pool); });
  };
  const std::string file = folder + "/model.safetensors";
  const std::string tensor = "model.layers.0.self_attn.q_proj.weight";
  synthesize(small_config(), "f32", 1, folder);
  spoil(folder, file, tensor, 64 + 3, 1e30f);
  EXPECT_PRED_FORMAT2(contains, converted("f16"),
                      file + ": tensor " + tensor +
                          ": 1e+30 at row 1, column 3 does not fit into f16, which ends at 65504");
  EXPECT_EQ(converted("bf16"), "no error");
  std::filesystem::remove(scratch / "out.gguf");
  spoil(folder, file, tensor, 64 + 3, -std::numeric_limits<float>::infinity());
  for (const char* type : {"f32", "bf16", "f16", "q8_0"})
    EXPECT_PRED_FORMAT2(contains, converted(type),
                        tensor + ": -inf at row 1, column 3 cannot be a weight");
  EXPECT_FALSE(std::filesystem::exists(scratch / "out.gguf"));
}

}  // namespace
}  // namespace tyto::test
