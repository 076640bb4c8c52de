// Which of MLIR-AIR's programs computes a piece of the forward pass, and where the piece's slots
// lie in that program's arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "device/npu/formats/air_models.h"
#include "program/pattern.h"
#include "program/program.h"
#include "tensor/dtype.h"

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

// The program that computes a launch, by its role and the rows of its slots; nothing when the model
// has none. Looks at what is to be done, not at who will run it.
const AirProgram* air_program_for(const AirModel& model, const Program& program,
                                  const Launch& launch);

// Whether the launches of a piece are exactly the program's steps.
bool is_whole(const Program& piece, const AirProgram& air);

// Why what air_program_for names cannot take the launch and its neighbours after all, or nothing.
std::optional<std::string> air_problem(const AirProgram& air, const Program& program,
                                       const Launch& launch);

// The kernels rotate halves of a head. A checkpoint that rotates neighbouring pairs has its rows in
// another order, which this place undoes: row 2i + b of a head becomes row b * head_dim / 2 + i.
Pattern halves_from_pairs(uint64_t rows, uint64_t cols, uint64_t head_dim, bool is_transposed);

// A product whose operand and result both stay in arguments, where the host can look at them.
struct AirProduct {
  Role role = Role::none;
  uint16_t weight = 0;  // slot of the piece
  uint64_t first_row = 0;
  uint64_t rows = 0;               // the weight's: values in a row of the result
  size_t operand = 0, result = 0;  // arguments
};
std::vector<AirProduct> air_products(const AirBinding& binding);

// `piece` is whole, and nothing speaks against it.
AirBinding bind_to_air(const Program& piece, const AirModel& model);

// Writing a model's tensors into the layouts that kernels were compiled for.

// Rows [first_row, first_row + rows) of `tensor`, of whatever type, to `argument` as bf16: the
// place of the r-th of them is the place of row r of `place`.
void place_rows(const TensorView& tensor, uint64_t first_row, uint64_t rows, const Pattern& place,
                std::span<uint16_t> argument, ThreadPool& pool);

}  // namespace tyto
