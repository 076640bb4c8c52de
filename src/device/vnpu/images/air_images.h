// Images with the calling convention of MLIR-AIR's Llama programs, for the virtual NPU to run:
// what its compiler would have made, written down from the argument positions alone. What fills the
// arguments (device/npu) shares air_models.h's tables and offsets with this and nothing else, so
// that a tensor in the wrong layout or place shows as wrong results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/q4nx.h"
#include "device/vnpu/images/image.h"

namespace tyto::vxrt {

constexpr float kAirEps = 1e-5f;    // for the norms in the bf16 ELFs
constexpr float kFusedEps = 1e-6f;  // for those in the fused decode

// One of the programs that air_models.h gives a model of these dimensions: an ELF of one instance
// that takes no call. Prefill programs run on dims.seq rows, decode programs on one. Throws an
// unsupported Error where air_program does, and an input Error for dimensions whose tiles do not
// fit the array.
Image air_image(const AirDims& dims, std::string_view program, float eps = kAirEps);

// The single-dispatch decode, an xclbin. Its arguments from index 3 on are x, w, rms, y and kv, and
// more weights where one buffer of `buffer_bytes` does not take them; how many positions are live,
// the token's own included, is in the instruction words.
Image fused_decode_image(const AirDims& dims, uint32_t window,
                         uint64_t buffer_bytes = kQ4nxBufferBytes, float eps = kFusedEps);

// The same as a full ELF: the arguments from index 0 on, the length behind them. `adds_up`: as
// builds before mlir-aie #3061 was finished have it.
Image fused_decode_elf_image(const AirDims& dims, uint32_t positions,
                             uint64_t buffer_bytes = kQ4nxBufferBytes, bool adds_up = false,
                             float eps = kFusedEps);

// Its words for `live` of 1..window positions: what decode_L<live>.insts.bin of a build for that
// window would hold. In each layer one word per attention core is L itself, and two are where K and
// V of position L - 1 go: the byte in kv of the first group's row. No other word depends on L.
std::vector<uint32_t> decode_words(const AirDims& dims, uint32_t window, uint32_t live);

// C = A * B^T in integers, an xclbin: A is m x k i8, B is n x k i8 (each row of B one column of the
// product), C is m x n i32, all row-major. m, n and k are those of one dispatch.
Image gemm_i8_image(uint32_t k, uint32_t n, uint32_t m, uint32_t columns = kColumns);
std::vector<uint32_t> gemm_i8_words(uint32_t k, uint32_t n, uint32_t m);

// The device's own reading of the q4nx weight stream. It shares nothing with the packer in
// device/npu, on purpose: a mistake there must not cancel out here.

// Rows of `cols` values as the cores decode them: code * scale + minimum, rounded to bf16. `phase`
// is where the phase's first block begins.
void decode_q4nx(const std::byte* phase, const Q4nxPlace& place, uint64_t rows, uint64_t cols,
                 uint16_t* out, ThreadPool& pool);

// What the images of air_images.h are written with: the operations of a layer as launches, with the
// tiles their kernels work on.

// Writing an instance over the arguments of an MLIR-AIR program, slot by slot and launch by launch.

class InstanceBuilder {
 public:
  // `first` is the XRT index of the first buffer: 0 of an ELF, 3 of an xclbin.
  InstanceBuilder(const AirProgram& abi, size_t first);

  using SlotIndex = uint16_t;

  // All of an argument as rows x cols values.
  SlotIndex whole(size_t argument, uint64_t rows, uint64_t cols);
  // All of an argument that holds a weight of `rows` outputs the other way round, (in, out).
  SlotIndex turned(size_t argument, uint64_t rows, uint64_t cols);
  // Some of an argument.
  SlotIndex part(const std::string& name, SlotKind kind, size_t argument, uint64_t rows,
                 uint64_t cols, const Pattern& pattern);
  SlotIndex q4nx(const std::string& name, size_t argument, uint64_t rows, uint64_t cols,
                 uint64_t offset, const Q4nxPlace& place);
  SlotIndex scratch(const std::string& name, DType dtype, uint64_t rows, uint64_t cols);

  // For the launches from here on.
  void set_layer(uint16_t layer) { layer_ = layer; }
  // Kernels that read all their arguments but the last, which they write.
  void launch(Kernel kernel, Role role, std::vector<SlotIndex> slots, const LaunchNeeds& needs,
              const LaunchShape& shape = {});
  void append(SlotIndex k, SlotIndex v, SlotIndex k_cache, SlotIndex v_cache,
              const LaunchNeeds& needs, const LaunchShape& shape);

  // `launches`: as the hardware counts them.
  Instance take(uint32_t tokens, uint32_t launches);

 private:
  SlotIndex add(const Slot& slot, const SlotPlace& place);

  const AirProgram& abi_;
  size_t first_;
  uint16_t layer_ = kNoLayer;
  Instance instance_;
};

// Memory of the array that a launch takes, from the tiles its kernel works on. MLIR-AIR's registry
// lists the tiles; how many buffers each has is our reading of its designs.

// The array holds columns * m rows by 4 * n columns of C at a time.
struct GemmTiles {
  uint32_t m, k_l2, k_l1, n;
  uint32_t in_bytes = 2, out_bytes = 4;  // per value of A and B, of C
  uint32_t columns = kColumns;

  // No larger than the matrices.
  GemmTiles within(uint64_t rows, uint64_t k, uint64_t cols) const;
};
LaunchNeeds gemm_needs(const GemmTiles& tiles);

// Each core takes `m_input` weight rows of `k` columns at a time, and makes `tile_m` outputs from
// them before it hands them on. Rows too long for L1 come one or two at a time instead of four,
// and without a second buffer where even that is too much.
struct GemvTiles {
  uint32_t tile_m, m_input;
  uint64_t k;
};
LaunchNeeds gemv_needs(const GemvTiles& tiles);

// `q_rows` of the queries stay while blocks of `kv_rows` keys and values pass by; causal masking
// needs as many rows in a core's block of queries as in one of keys.
struct AttentionTiles {
  uint32_t q_rows, kv_rows;
};
LaunchNeeds attention_needs(const AttentionTiles& tiles, uint32_t head_dim);

// Chunks of `values` of every operand, `bytes` for one value of all of them, twice.
LaunchNeeds element_needs(uint64_t values, uint32_t bytes);
LaunchNeeds rmsnorm_needs(uint64_t width);

// The fused decode: two blocks of weights at a time against all of the activations.
LaunchNeeds q4nx_needs(uint64_t cols);
LaunchNeeds decode_attention_needs(uint64_t position_values, uint32_t head_dim);

using SlotIndex = InstanceBuilder::SlotIndex;

struct ImageWriter {
  InstanceBuilder& to;
  const AirProgram& abi;
  const AirDims& dims;
  float eps;
  uint32_t launches = 0;  // as the hardware counts them

  uint64_t rows() const { return abi.phase == AirPhase::prompt ? dims.seq : 1; }
  uint64_t cols(size_t argument) const { return abi.arguments[argument].cols; }
  // The first `used` columns of an argument that has more.
  SlotIndex columns(size_t argument, uint64_t used);
  // One row for all rows of a call.
  SlotIndex repeated(size_t argument, uint64_t width);

  void rmsnorm(Role role, SlotIndex x, SlotIndex weight, SlotIndex y, uint64_t width,
               bool bf16_sums = false);
  void rope(Role role, uint32_t heads, SlotIndex x, SlotIndex table, SlotIndex y);
  void add(Role role, SlotIndex x, SlotIndex y, SlotIndex z);
  void swiglu(SlotIndex gate, SlotIndex up, SlotIndex y);

  // A GEMM of a prompt from `x` into argument `result` over the weight in argument `weight`, (in,
  // out). Where the program has an argument of this name, f32 goes there, and a launch rounds it.
  SlotIndex gemm(Role role, SlotIndex x, uint64_t k, size_t weight, size_t result,
                 std::string_view wide);
  // A GEMV over a weight as it is stored; `k` of a row are in a core at once.
  void gemv(Role role, uint64_t k, SlotIndex x, SlotIndex weight, SlotIndex y);
};

// One of MLIR-AIR's bf16 programs.
struct NamedWriter {
  std::string_view program;
  void (*write)(ImageWriter& to);
};
std::span<const NamedWriter> attention_images();  // in front of it, and itself
std::span<const NamedWriter> prompt_images();     // behind it
std::span<const NamedWriter> token_images();      // behind it, and the head

}  // namespace tyto::vxrt
