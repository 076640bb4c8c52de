// Which of MLIR-AIR's programs computes a piece of the forward pass, and where the piece's slots
// lie in that program's arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_models.h"
#include "program/pattern.h"
#include "program/program.h"

namespace tyto {

// Rows of a slot, and where their values lie in an argument.
struct AirPart {
  uint16_t slot = 0;
  uint64_t first_row = 0;
  uint64_t rows = 0;
  Pattern place;
};

// parts[i] is what argument i holds of the piece: nothing for scratch and dead arguments, several
// parts where a weight argument interleaves tensors.
struct AirBinding {
  AirProgram program;
  std::vector<std::vector<AirPart>> parts;
};

// The block of a launch: everything of `program` that shares its block and layer.
std::vector<const Launch*> block_of(const Program& program, const Launch& launch);

// The program that computes a block, by its launches and the rows of its slots; nothing when there
// is none. Looks at what the block does, not at who will run it.
std::optional<std::string_view> air_program_for(const Program& program, const Launch& launch);

// Why a block that air_program_for names cannot run there after all (a bias, a norm per head), or
// nothing.
std::optional<std::string> air_problem(const Program& program, const Launch& launch);

// The kernels rotate halves of a head. A checkpoint that rotates neighbouring pairs has its rows in
// another order, which this place undoes: row 2i + b of a head becomes row b * head_dim / 2 + i.
Pattern halves_from_pairs(uint64_t rows, uint64_t cols, uint64_t head_dim, bool is_transposed);

// A product whose operand and result both stay in arguments, where the host can look at them.
struct AirProduct {
  Role role = Role::none;
  uint16_t weight = 0;  // slot of the piece
  uint64_t first_row = 0;
  uint64_t rows = 0;               // of the weight: values in a row of the result
  size_t operand = 0, result = 0;  // arguments
};
std::vector<AirProduct> air_products(const Program& piece, const AirBinding& binding);

// `piece` holds exactly one block, for which the two above say yes.
AirBinding bind_to_air(const Program& piece, const AirDims& dims);

}  // namespace tyto
