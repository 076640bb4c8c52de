// Programs: ordered launches over named slots, as plain values. Nothing here knows a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tensor/dtype.h"

namespace tyto {

// Who moves a slot's bytes, and when.
enum class SlotKind : uint8_t {
  weight,   // written once, at load
  kv,       // resident on the device between calls
  scratch,  // never leaves the device
  input,    // host to device before each call
  output,   // device to host after each call
  inout,    // both
};

struct Slot {
  std::string name;  // "L03.k_cache", "ffn_hidden"; not part of a program's identity
  SlotKind kind = SlotKind::scratch;
  DType dtype = DType::f32;
  uint64_t rows = 0;  // activations: the most tokens one call may carry
  uint64_t cols = 0;

  uint64_t bytes() const { return rows * row_bytes(dtype, cols); }
};

// The operations of a Llama-family forward pass. program/kernel_spec.h says what each one means.
enum class Kernel : uint8_t {
  embed,
  rope_table,
  rmsnorm,
  matmul,
  rope,
  kv_append,
  attention,
  add,
  swiglu,
  gather_rows,
  cast,
  prompt_attention,
  matmul_i8,
  matmul_q8,
};

struct Arg {
  uint16_t slot = 0;
  bool reads = true;
  bool writes = false;
};

// Sizes a kernel needs beyond what its slots say.
struct LaunchShape {
  uint32_t heads = 0;     // rows of `head_dim` per token: rmsnorm, rope, attention
  uint32_t kv_heads = 0;  // attention, kv_append
  uint32_t head_dim = 0;
  uint32_t context = 0;     // positions the KV slots hold
  uint32_t kv_group = 1;    // KV slots lie as [kv_heads / kv_group][context][kv_group][head_dim]
  bool rope_pairs = false;  // RopeLayout::pairs
  float eps = 0;            // rmsnorm
  bool bf16_sums = false;   // rmsnorm: squares are added up in bf16, as one NPU kernel does
};

struct Launch {
  Kernel kernel = Kernel::add;
  std::string step;   // stable name of what it computes: "L03.attn_norm"
  std::string block;  // launches with equal block names are stitched at --fusion block
  std::vector<Arg> args;
  LaunchShape shape;
  std::string op = {};  // launches with equal op names are one operator at --fusion op
};

struct Program {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Launch> launches;
};

// What changes from call to call of one loaded program.
struct Call {
  uint32_t tokens = 1;     // rows of this call, at most the activation slots' rows
  uint32_t position = 0;   // position of the first row in the sequence
  uint32_t first_row = 0;  // gather_rows: where the rows to keep begin
};

// Identity of a program: everything but the names and who moves an activation's bytes, so that the
// layers of a model share one image (the first one's input comes from the host, the others' do
// not).
Hash128 program_hash(const Program& program);

}  // namespace tyto
