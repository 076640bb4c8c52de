#include "device/npu/store/image_fit.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/joined.h"
#include "device/npu/formats/dim_fields.h"
#include "device/npu/formats/q4nx.h"

namespace tyto {
namespace {

constexpr const char* kOtherModel =
    "`--shape` says for which model a build is; kernels of another one must not run";

bool is_of_xclbin(AirRole role) {
  return role == AirRole::opcode || role == AirRole::instructions || role == AirRole::word_count;
}

// Every byte of these is moved in each run.
bool is_moved_whole(AirRole role) {
  return role == AirRole::input || role == AirRole::output || role == AirRole::inout ||
         role == AirRole::weight || role == AirRole::kv;
}

struct Touched {
  uint64_t bytes = 0;      // up to the furthest
  bool is_certain = true;  // nothing unread could lie further
};

// Of each argument that is touched at all.
std::map<uint32_t, Touched> touched_arguments(std::span<const AddressPatch> patches) {
  std::map<uint32_t, Touched> arguments;
  for (const AddressPatch& patch : patches) {
    Touched& touched = arguments[patch.argument];
    const uint64_t reach = patch.descriptor ? descriptor_reach(*patch.descriptor) : 1;
    touched.bytes = std::max(touched.bytes, patch.offset + reach);
    touched.is_certain &= patch.descriptor.has_value();
  }
  return arguments;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::input, where, what, kOtherModel);
}

void check_touched(std::span<const AddressPatch> patches, const AirProgram& program,
                   const NamedDims& shape, const std::string& where) {
  // Data buffers are counted from 0 in the code; in XRT's list an xclbin has three before them.
  const auto first = static_cast<uint32_t>(
      std::count_if(program.arguments.begin(), program.arguments.end(),
                    [](const AirArgument& argument) { return is_of_xclbin(argument.role); }));
  for (const auto& [data_index, touched] : touched_arguments(patches)) {
    const uint64_t index = uint64_t{first} + data_index;
    if (index >= program.arguments.size())
      refuse(where, fmt::format("touches argument {}, and {}'s {} has {}", index, shape.name,
                                program.name, program.arguments.size()));
    const AirArgument& argument = program.arguments[index];
    if (argument.role == AirRole::dead)
      refuse(where, fmt::format("touches {} bytes of argument {}, which {}'s {} leaves alone",
                                touched.bytes, index, shape.name, program.name));
    const bool is_short =
        touched.is_certain && is_moved_whole(argument.role) && touched.bytes < argument.bytes();
    if (touched.bytes > argument.bytes() || is_short)
      refuse(where, fmt::format("reaches byte {} of argument {} ({}), which has {} bytes for {}",
                                touched.bytes, index, argument.name, argument.bytes(), shape.name));
  }
}

void check_elf(const ElfImage& elf, const AirProgram& program, const NamedDims& shape,
               const std::string& where) {
  const ElfInstance* instance = elf.instance_of(program.entry);
  if (instance == nullptr)
    refuse(where, fmt::format("has no \"{}\", the entry of {}; it has {}", program.entry,
                              program.name, joined(elf.entries())));
  const uint32_t arguments = elf.kernel_of(program.entry)->arguments;
  if (arguments != program.arguments.size())
    refuse(where, fmt::format("takes {} arguments, {}'s {} has {}", arguments, shape.name,
                              program.name, program.arguments.size()));
  check_touched(instance->patches, program, shape, where);
}

}  // namespace

bool depends_on_prompt(std::string_view program) {
  return is_air_program(program) && air_phase(program) == AirPhase::prompt;
}

bool same_images(std::string_view program, AirDims built, const AirDims& wanted) {
  if (!depends_on_prompt(program)) built.seq = wanted.seq;
  return built == wanted;
}

void check_fit(const ImageFacts& facts, const AirProgram& program, const NamedDims& shape,
               const std::string& where) {
  const bool is_for_model = facts.dims && *facts.dims != AirDims{};
  if (is_for_model && !same_images(program.name, *facts.dims, shape.dims))
    refuse(where, fmt::format("made for another model than {}: {}", shape.name,
                              dims_difference(*facts.dims, shape.dims)));
  if (facts.elf) check_elf(*facts.elf, program, shape, where);
  if (facts.instructions) check_touched(facts.instructions->patches, program, shape, where);
}

void check_lengths(const ImageFacts& longer, const ImageFacts& shorter, uint32_t window,
                   const NamedDims& shape, const std::string& where) {
  if (longer.words.size() != shorter.words.size())
    fail_input(where, "{} instruction words, but decode_L{} has {}: not two builds of one program",
               longer.words.size(), window - 1, shorter.words.size());
  const auto position = static_cast<int64_t>(kv_position_bytes(q4nx_layout(shape.dims, window)));
  for (size_t i = 0; i < longer.words.size(); ++i) {
    const int64_t change = int64_t{longer.words[i]} - shorter.words[i];
    if (change != 0 && change != 1 && change != position)
      refuse(where, fmt::format("word {} changes by {} from one position to the next; {}'s change "
                                "by 1, the length, or by {}, the bytes of a position",
                                i, change, shape.name, position));
  }
}

}  // namespace tyto
