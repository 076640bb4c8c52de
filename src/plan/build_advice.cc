#include "plan/build_advice.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "device/npu/store/kernel_store.h"
#include "llama/pipeline.h"
#include "model/synth.h"

namespace tyto {
namespace {

// Folders below MLIR-AIR's programming_examples, as of August 2026 (e972f29). Empty: there is none.
struct Example {
  std::string_view shape;
  std::string_view bf16;         // `make compile`
  std::string_view decode;       // `make compile-decode`: the single-dispatch decode
  bool has_own_prefill = false;  // `make compile` in the decode's folder builds that of prompts
};
constexpr Example kExamples[] = {
    {"llama-3.2-1b", "llms/llama32_1b", "fused_decode"},
    {"llama-3.2-3b", "llms/llama32_3b", "llms/llama32_3b_q4nx"},
    {"llama-3.1-8b", "", "llms/llama31_8b_q4nx", true},
    {"smollm2-1.7b", "llms/smollm2_1_7b", ""},
    {"qwen2.5-0.5b", "llms/qwen25_0_5b", ""},
    {"qwen2.5-1.5b", "llms/qwen25_1_5b", ""},
    {"qwen2.5-3b", "llms/qwen25_3b", ""},
    {"qwen2.5-7b", "", "llms/qwen25_7b_q4nx", true},
    {"qwen3-0.6b", "llms/qwen3_0_6b", ""},
    {"qwen3-1.7b", "llms/qwen3_1_7b", ""},
    {"qwen3-4b", "llms/qwen3_4b", "llms/qwen3_4b_q4nx"},
    {"qwen3-8b", "", "llms/qwen3_8b_q4nx", true},
};

constexpr uint32_t kBuiltRows = 2048;

// An int8 product of the whole array: 4 rows and 8 columns of cores, each with tiles of C. mlir-aie
// wants an even number of row blocks (M / m / 4) since 14273685b of June 2026, up to 3ca0193ce of
// August at least.
struct Int8Product {
  std::string_view use;
  uint32_t m, tile_m;
};
constexpr Int8Product kInt8Products[] = {{"tokens", 128, 16}, {"prompts", 256, 32}};
constexpr uint32_t kTileK = 64, kTileN = 64, kCoreRows = 4, kCoreColumns = 8;
constexpr uint32_t kProductN = 2048;
static_assert(kProductN % (kTileN * kCoreColumns) == 0);
static_assert(std::ranges::all_of(kInt8Products, [](const Int8Product& product) {
  return product.m % (2 * product.tile_m * kCoreRows) == 0;
}));
// Beyond it a step of DMA leaves its range with kTileN; half of it reaches twice as far.
constexpr uint32_t kMostKOfTileN = 8192;

const Example* example_for(const AirDims& dims) {
  for (const Example& example : kExamples)
    if (air_dims(model_dims(shape_by_name(example.shape), 0), kBuiltRows) == dims) return &example;
  return nullptr;
}

std::string mlir_air_setup(bool has_decode) {
  std::string text =
      "MLIR-AIR compiles the kernels. No NPU is needed, and no access to gated weights.\n"
      "XRT's tools are needed: aiebu-asm writes the ELFs, xclbinutil the xclbins, in the last "
      "step.\n"
      "Of XRT's packages, Tyto is built with base-dev and runs with base, npu and the plug-in.\n\n"
      "  git clone https://github.com/Xilinx/mlir-air && cd mlir-air   # set it up: "
      "docs/buildingRyzenLin.md\n"
      "  source /opt/xilinx/xrt/setup.sh     # aiebu-asm and xclbinutil must be on PATH\n"
      "  python3 -m pip install \"$(grep -o 'llvm-aie==[^\\\"]*' "
      "utils/build-mlir-air-using-wheels.sh)\" \\\n"
      "    -f https://github.com/Xilinx/llvm-aie/releases/expanded_assets/nightly   # the Peano "
      "that MLIR-AIR pins\n"
      "  export AIR_TARGET_DEVICE=npu2       # else it looks for an NPU, and without one builds "
      "for "
      "npu1\n"
      "  export PEANO_INSTALL_DIR=$(python3 -m pip show llvm-aie | awk '/^Location:/ {print "
      "$2}')/llvm-aie\n";
  if (has_decode)
    text +=
        "  llvm-link --version                 # the decode needs one below 23 on PATH\n"
        "  make -C programming_examples/fused_decode preflight-llvm-link   # checks both\n";
  return text + "\n";
}

// In a shell of its own, so that the next one begins where this one did.
std::string commands(std::string_view folder, std::string_view what, std::string_view targets,
                     std::string_view import_from, std::string_view shape) {
  return fmt::format(
      "  # {}\n  (cd programming_examples/{} && {} &&\n   tyto kernels import {} --shape {})\n\n",
      what, folder, targets, import_from, shape);
}

std::string mlir_air_advice(const AirDims& dims, std::string_view weights) {
  const Example* example = example_for(dims);
  const bool wants_decode = weights != "bf16" && example != nullptr && !example->decode.empty();
  const bool wants_bf16 = example != nullptr && !example->bf16.empty();
  const bool is_missing = weights == "q4nx" ? !wants_decode : !wants_bf16 && !wants_decode;
  if (is_missing)
    throw Error(ErrorCode::unsupported, "--device npu",
                fmt::format("MLIR-AIR builds no {}kernels for this model ({} layers, {} wide) at "
                            "{} rows; it does for {}",
                            weights.empty() ? "" : std::string(weights) + " ", dims.layers,
                            dims.emb, dims.seq, joined(kExamples, ", ", &Example::shape)),
                "--weights int8 works for any model; `tyto compile` without --device npu makes "
                "images for the virtual NPU");
  std::string text = mlir_air_setup(wants_decode);
  if (wants_bf16)
    text += commands(example->bf16, "bf16 programs: prompts, and tokens one layer at a time",
                     "make compile", "build_peano", example->shape);
  if (wants_decode)
    text += commands(example->decode,
                     "q4nx: a token in one dispatch, one ELF for every length up to 2048",
                     example->has_own_prefill ? "make compile && make compile-decode-elf"
                                              : "make compile-decode-elf",
                     ".", example->shape);
  if (wants_decode)
    text +=
        "Before September 2026 there is no compile-decode-elf: compile-decode-windows is 12 builds "
        "and\nabout 90 minutes, compile-decode the longest window alone, 2 builds.\n";
  return text;
}

std::string int8_build(const Int8Product& product, uint64_t k, uint32_t tile_n) {
  return fmt::format(
      "  make NPU2=1 dtype_in=i8 dtype_out=i32 b_col_maj=1 n_aie_cols={} M={} K={} N={} m={} k={} "
      "n={} \\\n    build/final_{}x{}x{}_{}x{}x{}_{}c.xclbin\n",
      kCoreColumns, product.m, k, kProductN, product.tile_m, kTileK, tile_n, product.m, k,
      kProductN, product.tile_m, kTileK, tile_n, kCoreColumns);
}

std::string int8_advice(const AirDims& dims) {
  std::string text =
      "--weights int8 needs images for each length of a dot product, one for tokens and one for\n"
      "prompts: mlir-aie's whole-array matrix product, int8 by int8 into int32.\n\n"
      "  git clone https://github.com/Xilinx/mlir-aie && cd mlir-aie   # set it up, with Peano\n"
      "  git checkout 3ca0193ce              # August 2026: the commit that these lines are for\n"
      "  source /opt/xilinx/xrt/setup.sh     # xclbinutil must be on PATH\n"
      "  cd programming_examples/basic/matrix_multiplication/whole_array\n";
  std::set<uint64_t> lengths;
  for (const uint64_t k : {uint64_t{dims.emb}, dims.q_dim(), uint64_t{dims.hidden}})
    lengths.insert(round_up(k, kTileK));
  for (const Int8Product& product : kInt8Products) {
    text += fmt::format("  # for {}\n", product.use);
    for (const uint64_t k : lengths) text += int8_build(product, k, kTileN);
  }
  text +=
      "  tyto kernels import build\n\n"
      "b_col_maj=1 stores B by columns, as Tyto stores weights; import checks it.\n"
      "M / m / 4 is even because mlir-aie asks for that since 14273685b (June 2026). A later\n"
      "version that does not ask reads the weights once instead of twice with M=64 m=16.\n";
  if (*lengths.rbegin() > kMostKOfTileN)
    text += fmt::format(
        "mlir-aie before 1983ac993 (July 2026) needs n={} where K is above {}: \"Stride 3 exceeds "
        "the range\".\n",
        kTileN / 2, kMostKOfTileN);
  return text;
}

}  // namespace

std::string build_advice(const AirDims& dims, std::string_view weights) {
  return (weights == "int8" ? int8_advice(dims) : mlir_air_advice(dims, weights)) +
         "Then run `tyto kernels check` and `tyto run --device npu`.\n"
         "The commands come from the sources of those projects and were not run here.\n";
}

std::string build_examples() {
  std::string text;
  for (const Example& example : kExamples)
    text += fmt::format("  {:<14} {:<20} {}\n", example.shape,
                        example.bf16.empty() ? "-" : example.bf16,
                        example.decode.empty() ? "-" : example.decode);
  return text;
}

}  // namespace tyto
