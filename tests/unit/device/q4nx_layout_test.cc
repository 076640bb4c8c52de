// The buffers of the single-dispatch decode, against numbers worked out from MLIR-AIR's text
// (programming_examples at e972f29): fused_decode/fused_decode.py for the geometry, the Makefiles
// of llms/*_q4nx for VOCAB_CHUNK_I2 and DECODE_WGROUP.
#include "device/npu/formats/q4nx.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

TEST(Q4nxLayout, OfLlama1b) {
  const Q4nxLayout layout = q4nx_layout(kLlama32_1b, 2048);
  EXPECT_EQ(layout.qkv.offset, 0u);
  EXPECT_EQ(layout.qkv.rows, 3072u);
  EXPECT_EQ(layout.o.offset, 1'966'080u);
  EXPECT_EQ(layout.gate_up.offset, 3'276'800u);
  EXPECT_EQ(layout.gate_up.rows, 16384u);
  EXPECT_EQ(layout.down.offset, 13'762'560u);
  EXPECT_EQ(layout.layer_elements, 19'005'440u);
  EXPECT_EQ(layout.head_offset, 304'087'040u);
  EXPECT_EQ(layout.head_chunks, 7u);
  EXPECT_EQ(layout.head_chunk_elements, 11'796'480u);
  EXPECT_EQ(layout.weight_elements, 386'662'400u);
  EXPECT_EQ(layout.rope_offset, 65'536u);
  EXPECT_EQ(layout.final_norm_offset, 65'600u);
  EXPECT_EQ(layout.kv_layer_elements, 2048u * 1024);
  EXPECT_EQ(layout.kv_elements, 33'554'432u);
  EXPECT_EQ(layout.kv_groups, 2u);
  EXPECT_EQ(layout.kv_group_heads, 4u);
  EXPECT_EQ(layout.kv_region_elements, 2048u * 256);
  EXPECT_EQ(layout.logits_offset, 5120u);
  EXPECT_EQ(layout.logits_elements, 7u * 18432);
}

// Nothing is padded, whatever way the sizes are added up.
TEST(Q4nxLayout, OfLlama1bHoldsItsWeightsAndNoMore) {
  const Q4nxLayout layout = q4nx_layout(kLlama32_1b, 2048);
  const uint64_t layer = 3072ull * 2048 + 2048ull * 2048 + 16384ull * 2048 + 2048ull * 8192;
  EXPECT_EQ(layout.layer_elements, layer * 5 / 16);  // 5120 bytes for 8192 weights
  EXPECT_EQ(layout.down.rows, 2048u);
  EXPECT_EQ(layout.down.cols, 8192u);
}

// Owlet: 768 rows of q, k and v, 768 of up and of gate; a vocabulary below one chunk of the head.
TEST(Q4nxLayout, PadsOtherShapes) {
  const AirDims owlet = {5, 512, 8, 2, 64, 768, 4096, 1024};
  const Q4nxLayout layout = q4nx_layout(owlet, 256);
  EXPECT_EQ(layout.qkv.rows, 1024u);
  EXPECT_EQ(layout.qkv.cols, 512u);
  EXPECT_EQ(layout.o.offset, 1024u * 512 * 5 / 16);
  EXPECT_EQ(layout.o.rows, 512u);
  EXPECT_EQ(layout.gate_up.offset, 1536u * 512 * 5 / 16);
  EXPECT_EQ(layout.gate_up.rows, 2048u);
  EXPECT_EQ(layout.down.offset, 3584u * 512 * 5 / 16);
  EXPECT_EQ(layout.down.rows, 512u);
  EXPECT_EQ(layout.down.cols, 768u);
  EXPECT_EQ(layout.layer_elements, (3584u * 512 + 512 * 768) * 5 / 16);
  EXPECT_EQ(layout.head_chunk_rows, 4096u);
  EXPECT_EQ(layout.head_chunks, 1u);
  EXPECT_EQ(layout.head_offset, 5 * layout.layer_elements);
  EXPECT_EQ(layout.weight_elements, layout.head_offset + 4096u * 512 * 5 / 16);
  EXPECT_EQ(layout.logits_offset, 1024u + 512);
  EXPECT_EQ(layout.logits_elements, 4096u);
  EXPECT_EQ(layout.kv_groups, 1u);
  EXPECT_EQ(layout.kv_group_heads, 2u);
  EXPECT_EQ(layout.kv_layer_elements, 2u * 256 * 128);
  EXPECT_EQ(fused_decode_program(owlet, 256).launches, 6u);

  const AirDims tiny = {2, 64, 6, 6, 32, 96, 18433, 64};
  const Q4nxLayout small = q4nx_layout(tiny, 64);
  EXPECT_EQ(small.qkv.rows, 1024u);
  EXPECT_EQ(small.qkv.cols, 256u);
  EXPECT_EQ(small.o.cols, 256u);
  EXPECT_EQ(small.head_chunk_rows, 18432u);
  EXPECT_EQ(small.head_chunks, 2u);
  EXPECT_EQ(small.kv_groups, 1u);
  EXPECT_EQ(small.kv_group_heads, 6u);
}

TEST(Q4nxLayout, ArgumentsOfLlama1b) {
  const AirProgram program = fused_decode_program(kLlama32_1b, 2048);
  ASSERT_EQ(program.arguments.size(), 8u);
  EXPECT_EQ(program.entry, "MLIR_AIE");
  EXPECT_EQ(program.launches, 23u);
  const AirRole roles[] = {
      AirRole::opcode, AirRole::instructions, AirRole::word_count, AirRole::inout,
      AirRole::weight, AirRole::weight,       AirRole::output,     AirRole::kv};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(program.arguments[i].role, roles[i]) << i;
  EXPECT_EQ(program.arguments[3].bytes(), 4096u);
  EXPECT_EQ(program.arguments[4].bytes(), 773'324'800u);
  EXPECT_EQ(program.arguments[5].bytes(), 135'296u);
  EXPECT_EQ(program.arguments[5].per_call, (ByteRange{131'072, 128}));
  EXPECT_EQ(program.arguments[6].bytes(), 268'288u);
  EXPECT_EQ(program.arguments[6].per_call, (ByteRange{10'240, 258'048}));
  EXPECT_EQ(program.arguments[7].bytes(), 67'108'864u);
  EXPECT_EQ(fused_decode_program(kLlama32_1b, 64).arguments[7].bytes(), 67'108'864u / 32);
}

AirDims dims_of(std::string_view model) {
  const auto builds = q4nx_builds();
  const auto found = std::find_if(builds.begin(), builds.end(),
                                  [&](const Q4nxBuild& build) { return build.model == model; });
  EXPECT_NE(found, builds.end()) << model;
  AirDims dims = found->dims;
  dims.seq = 2048;
  return dims;
}

struct Expected {
  const char* model;
  // W_LAYER, and where phases 1 to 3 begin in a layer.
  uint64_t layer, o, gate_up, down;
  uint64_t glu_rows;                        // GLU_CHUNK
  uint64_t head_chunk_rows, head_chunks;    // VOCAB_SIZE_PADDED, UNI_LM
  uint64_t head_elements;                   // UNI_LM * VOCAB_W_BLOCKS * 2560
  std::vector<uint32_t> layers_in_buffers;  // by DECODE_WGROUP; the head's own at the end
  uint64_t rope_offset, rope_row;           // UNI_DEC * RMS_LAYER, ROPE_W_LEN
  uint32_t rope_rows;                       // ROPE_W_PER_LAYER
  uint64_t final_norm, logits;              // the slot before the last K; HOST and LAYER rounds
  uint32_t kv_groups, kv_group_heads;       // NGRP, heads of REGION_W
  uint64_t append_bytes;                    // from one position to the next, in bytes
};

// Every elements number is rows * columns * 5 / 16: a block of 8192 weights is 2560 elements.
const Expected kExpected[] = {
    {"llama-3.2-3b",
     31'457'280,
     4'915'200,
     7'864'320,
     23'592'960,
     512,
     9216,
     14,
     123'863'040,
     {28},
     172'032,
     128,
     1,
     172'160,
     8192,
     2,
     4,
     1024},
    {"llama-3.1-8b",
     68'157'440,
     7'864'320,
     13'107'200,
     49'807'360,
     512,
     16384,
     8,
     167'772'160,
     {8, 8, 8, 8, 0},
     262'144,
     128,
     1,
     262'272,
     10240,
     2,
     4,
     1024},
    {"qwen3-4b",
     31'539'200,
     4'915'200,
     8'192'000,
     23'756'800,
     256,
     15360,
     10,
     122'880'000,
     {36},
     184'320,
     384,
     36,
     198'144,
     8704,
     2,
     4,
     1024},
    {"qwen3-8b",
     60'293'120,
     7'864'320,
     13'107'200,
     44'564'480,
     512,
     8192,
     19,
     199'229'440,
     {9, 9, 9, 9, 0},
     294'912,
     384,
     36,
     308'736,
     10240,
     2,
     4,
     1024},
    {"qwen2.5-7b",
     72'826'880,
     5'160'960,
     9'175'040,
     51'609'600,
     256,
     3584,
     43,
     172'605'440,
     {7, 7, 7, 7, 0},
     200'704,
     4736,
     28,
     333'312,
     8192,
     2,
     2,
     512},
};

TEST(Q4nxLayout, OfEveryOtherBuild) {
  for (const Expected& e : kExpected) {
    SCOPED_TRACE(e.model);
    const Q4nxLayout l = q4nx_layout(dims_of(e.model), 2048);
    EXPECT_EQ(l.layer_elements, e.layer);
    EXPECT_EQ(l.o.offset, e.o);
    EXPECT_EQ(l.gate_up.offset, e.gate_up);
    EXPECT_EQ(l.down.offset, e.down);
    EXPECT_EQ(l.glu_rows, e.glu_rows);
    EXPECT_EQ(l.head_chunk_rows, e.head_chunk_rows);
    EXPECT_EQ(l.head_chunks, e.head_chunks);
    EXPECT_EQ(l.head_chunks * l.head_chunk_elements, e.head_elements);
    EXPECT_EQ(l.rope_offset, e.rope_offset);
    EXPECT_EQ(l.rope_row_elements, e.rope_row);
    EXPECT_EQ(l.rope_rows, e.rope_rows);
    EXPECT_EQ(l.final_norm_offset, e.final_norm);
    EXPECT_EQ(l.norm_elements, e.final_norm + l.dims.emb);
    EXPECT_EQ(l.logits_offset, e.logits);
    EXPECT_EQ(l.kv_groups, e.kv_groups);
    EXPECT_EQ(l.kv_group_heads, e.kv_group_heads);
    EXPECT_EQ(uint64_t{l.kv_group_heads} * l.dims.head_dim * 2, e.append_bytes);
    EXPECT_EQ(l.kv_elements, uint64_t{l.dims.layers} * 2048 * 2 * l.dims.kv_dim());
    ASSERT_EQ(l.weight_buffers.size(), e.layers_in_buffers.size());
    uint32_t layer = 0;
    for (size_t i = 0; i < l.weight_buffers.size(); ++i) {
      const Q4nxWeightBuffer& buffer = l.weight_buffers[i];
      const bool is_last = i + 1 == l.weight_buffers.size();
      EXPECT_EQ(buffer.argument, i == 0 ? 4 : 7 + i);  // group ids 4, then 8, 9, ...
      EXPECT_EQ(buffer.first_layer, layer);
      EXPECT_EQ(buffer.layers, e.layers_in_buffers[i]);
      EXPECT_EQ(buffer.has_head, is_last);
      EXPECT_EQ(buffer.elements, buffer.layers * e.layer + (is_last ? e.head_elements : 0));
      EXPECT_LE(buffer.elements * 2, kQ4nxBufferBytes);
      layer += buffer.layers;
    }
    EXPECT_EQ(layer, l.dims.layers);
    EXPECT_EQ(l.head_offset, l.weight_buffers.size() == 1 ? l.dims.layers * e.layer : 0);
    EXPECT_EQ(l.weight_elements, l.dims.layers * e.layer + e.head_elements);
  }
}

TEST(Q4nxLayout, LaterBuffersOfWeightsFollowTheCache) {
  const AirProgram program = fused_decode_program(dims_of("llama-3.1-8b"), 2048);
  ASSERT_EQ(program.arguments.size(), 12u);
  EXPECT_EQ(program.launches, 32u + 8);
  EXPECT_EQ(program.arguments[4].bytes(), 8u * 136'314'880);
  EXPECT_EQ(program.arguments[7].role, AirRole::kv);
  for (size_t i : {8, 9, 10}) {
    EXPECT_EQ(program.arguments[i].role, AirRole::weight);
    EXPECT_EQ(program.arguments[i].layout, AirLayout::q4nx);
    EXPECT_EQ(program.arguments[i].bytes(), 8u * 136'314'880);
  }
  EXPECT_EQ(program.arguments[11].name, "w_head");
  EXPECT_EQ(program.arguments[11].bytes(), 335'544'320u);
}

TEST(Q4nxLayout, OtherModelsAreSplitWhereOneBufferDoesNotTakeThem) {
  const AirDims dims = {5, 512, 8, 2, 64, 768, 4096, 1024};
  const Q4nxLayout whole = q4nx_layout(dims, 64);
  ASSERT_EQ(whole.weight_buffers.size(), 1u);
  const uint64_t layer = whole.layer_elements * 2;
  const Q4nxLayout split = q4nx_layout(dims, 64, 2 * layer + 100);
  ASSERT_EQ(split.weight_buffers.size(), 4u);
  EXPECT_EQ(split.weight_buffers[2].first_layer, 4u);
  EXPECT_EQ(split.weight_buffers[2].layers, 1u);
  EXPECT_EQ(&buffer_of(split, 3), &split.weight_buffers[1]);
  EXPECT_EQ(split.weight_elements, whole.weight_elements);
  EXPECT_EQ(split.head_offset, 0u);
}

// .decode_flags as the Makefiles of llms/*_q4nx write them.
TEST(Q4nxLayout, FlagsOfAnotherBuildAreRefused) {
  const auto refusal = [](const char* model, const std::string& flags) -> std::string {
    try {
      check_q4nx_flags(flags, dims_of(model), "flags");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("llama-3.2-3b", "W_DUAL_CHAN=1"), "");
  EXPECT_EQ(refusal("llama-3.1-8b", "W_DUAL_CHAN=1 DECODE_STACK=8064 DECODE_WGROUP=8"), "");
  EXPECT_EQ(refusal("qwen2.5-7b", "W_DUAL_CHAN=1 DECODE_STACK=6144 DECODE_WGROUP=7"), "");
  EXPECT_EQ(refusal("llama-3.1-8b", "W_DUAL_CHAN=1"),
            "flags: \"W_DUAL_CHAN=1\" lacks DECODE_WGROUP=8");
  EXPECT_EQ(refusal("qwen3-8b", "W_DUAL_CHAN=1 DECODE_STACK=8064 DECODE_WGROUP=8"),
            "flags: \"DECODE_WGROUP=8\" is not a flag of a build whose layout Tyto knows");
  EXPECT_NE(refusal("llama-3.2-1b", "W_DUAL_CHAN=1 DECODE_WGROUP=8"), "");
  EXPECT_NE(refusal("llama-3.2-1b", "W_DUAL_CHAN=0"), "");
  EXPECT_NE(refusal("llama-3.2-1b", ""), "");
}

TEST(Q4nxLayout, ImpossibleDimensionsAreRefused) {
  const auto with = [](uint32_t AirDims::* member, uint32_t value) {
    AirDims dims = kLlama32_1b;
    dims.*member = value;
    return dims;
  };
  EXPECT_ERROR(q4nx_layout(with(&AirDims::hidden, 8200), 2048),
               "down has 8200 columns");  // not whole groups
  EXPECT_ERROR(q4nx_layout(with(&AirDims::emb, 2050), 2048), "q, k and v has 2050 columns");
  AirDims huge = {1u << 24, 1u << 24, 1, 1, 1u << 24, 1u << 24, 1u << 24, 1};
  EXPECT_ERROR(q4nx_layout(huge, 1u << 24), "16777216 layers");
  huge = {1u << 24, 32, 1, 1, 1u << 24, 32, 32, 1};
  EXPECT_ERROR(q4nx_layout(huge, 1u << 24), "13422018560 bytes of a layer");
  EXPECT_ERROR(q4nx_layout(kLlama32_1b, 0), "a window of 0 positions");
  EXPECT_ERROR(q4nx_layout(with(&AirDims::vocab, 1u << 23), 2048),
               "10758389760 bytes of a layer");  // a head of 10 GiB
  AirDims both = kLlama32_1b;
  both.qkv_bias = both.qk_norm = 1;
  EXPECT_ERROR(q4nx_layout(both, 2048), "biases or norms per head, not both");
  // A layer, or a head, that no buffer takes, and more buffers than a run has.
  const uint64_t layer = q4nx_layout(kLlama32_1b, 64).layer_elements * 2;
  const AirDims other = with(&AirDims::layers, 1000);
  EXPECT_ERROR(q4nx_layout(other, 64, layer - 1), "do not fit one buffer of 38010879");
  EXPECT_ERROR(q4nx_layout(other, 64, layer), "do not fit one buffer of 38010880");
}

}  // namespace
}  // namespace tyto
