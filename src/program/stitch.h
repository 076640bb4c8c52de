// Cutting one long program into the programs that are dispatched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tyto {

enum class Fusion : uint8_t {
  op,     // one dispatch per operator: a launch, or several of one op_group
  block,  // one per block of a layer
  token,  // as few as the devices allow
};

std::string_view name(Fusion fusion);
std::optional<Fusion> fusion_from_name(std::string_view name);

// Launches of one layer that a device takes in one dispatch, where that is not the program's Block:
// of a prompt's rows or of one row.
struct DispatchBlock {
  std::string name;
  bool is_prompt = false;
  std::vector<Role> roles;
};

struct Piece {
  Program program;
  uint8_t device = 0;                 // index given by `device_of`
  std::vector<uint16_t> whole_slots;  // [program.slots], the same slot in the whole program
};

// Splits where the device changes and where `fusion` asks for it, in order. `device_of` has one
// entry per launch of `whole`. Scratch that crosses from one device to another becomes input,
// output or inout, so that its bytes move; what a device has already stays there.
// `blocks` are those of each device; none: blocks are the launches' own.
// The law, tested on every device: running the pieces in order equals running `whole`.
std::vector<Piece> stitch(const Program& whole, Fusion fusion, std::span<const uint8_t> device_of,
                          std::span<const std::vector<DispatchBlock>> blocks = {});

}  // namespace tyto
