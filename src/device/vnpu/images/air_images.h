// Images with the calling convention of MLIR-AIR's Llama programs, for the virtual NPU to run:
// what its compiler would have made, written down from the argument positions alone. What fills the
// arguments (device/npu) shares air_abi.h's tables and offsets with this and nothing else, so that
// a tensor in the wrong layout or place shows as wrong results.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace tyto::vxrt
