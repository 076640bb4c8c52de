#include "cli/kernels_describe.h"

#include <algorithm>
#include <string>

#include "base/spelling.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"
#include "device/npu/store/kernel_store.h"
#include "llama/pipeline.h"
#include "model/synth.h"
#include "report/tables.h"
#include "shell/json_flag.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct DescribeFlags {
  std::string shape = "llama-3.2-1b";
  uint32_t seq = kLlama32_1b.seq;
  uint32_t window = 2048;
  JsonFlag json;
};

constexpr std::string_view kPhaseNames[] = {"prompt", "token", "head"};  // as JSON has them

std::string_view phase_name(AirPhase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}

bool is_attention(const AirProgram& program) {
  return program.steps.size() == 1 && program.steps.front() == Role::attention;
}

std::string_view attention_order(const AirProgram& program) {
  const bool by_head =
      std::any_of(program.arguments.begin(), program.arguments.end(),
                  [](const AirArgument& a) { return a.layout == AirLayout::heads_first; });
  return by_head ? "by head" : "by position";
}

// As MLIR-AIR's builder has been told it; nothing for a model that it builds no decode of.
std::optional<Q4nxLayout> decode_layout(AirDims dims, uint32_t window) {
  for (const Q4nxBuild& build : q4nx_builds()) {
    AirDims same = dims;
    same.seq = build.dims.seq;
    if (same == build.dims) return q4nx_layout(dims, window);
  }
  return std::nullopt;
}

ordered_json to_json(const AirProgram& program) {
  ordered_json arguments = ordered_json::array();
  for (const AirArgument& argument : program.arguments)
    arguments.push_back({{"name", argument.name},
                         {"role", to_string(argument.role)},
                         {"type", info(argument.dtype).name},
                         {"rows", argument.rows},
                         {"cols", argument.cols},
                         {"bytes", argument.bytes()},
                         {"layout", to_string(argument.layout)},
                         {"source", argument.source}});
  ordered_json steps = ordered_json::array();
  for (const Role step : program.steps) steps.push_back(name(step));
  ordered_json row = {{"name", program.name},
                      {"entry", program.entry},
                      {"phase", phase_name(program.phase)},
                      {"launches", program.launches},
                      {"steps", std::move(steps)},
                      {"arguments", std::move(arguments)}};
  if (is_attention(program)) row["attention"] = attention_order(program);
  return row;
}

ordered_json to_json(const Q4nxLayout& layout) {
  const AirDims& dims = layout.dims;
  ordered_json rows = ordered_json::array(), cols = ordered_json::array();
  for (const Q4nxPhase& phase : {layout.qkv, layout.o, layout.gate_up, layout.down}) {
    rows.push_back(phase.rows / kQ4nxBlockRows);
    cols.push_back(phase.cols / kQ4nxBlockCols);
  }
  ordered_json buffers = ordered_json::array();
  for (const Q4nxWeightBuffer& buffer : layout.weight_buffers)
    buffers.push_back({{"argument", buffer.argument},
                       {"first_layer", buffer.first_layer},
                       {"layers", buffer.layers},
                       {"has_head", buffer.has_head},
                       {"elements", buffer.elements}});
  return {{"layers", dims.layers},
          {"emb", dims.emb},
          {"heads", dims.heads},
          {"kv_heads", dims.kv_heads},
          {"head_dim", dims.head_dim},
          {"vocab", dims.vocab},
          {"qkv_bias", dims.qkv_bias},
          {"qk_norm", dims.qk_norm},
          {"window", layout.window},
          {"qkv_rows", dims.q_dim() + 2 * dims.kv_dim()},
          {"dual_channel", 1},  // what q4nx_block_index packs for
          {"block_rows", kQ4nxBlockRows},
          {"block_cols", kQ4nxBlockCols},
          {"block_elements", kQ4nxBlockElements},
          {"phase_row_blocks", std::move(rows)},
          {"phase_col_blocks", std::move(cols)},
          {"layer_elements", layout.layer_elements},
          {"head_chunk_rows", layout.head_chunk_rows},
          {"head_chunks", layout.head_chunks},
          {"weight_buffers", std::move(buffers)},
          {"norm_elements_per_layer", uint64_t{2} * dims.emb},
          {"rope_row_elements", layout.rope_row_elements},
          {"rope_row_per_layer", layout.rope_rows > 1 ? 1 : 0},
          {"kv_groups", layout.kv_groups},
          {"kv_position_elements", uint64_t{layout.kv_group_heads} * dims.head_dim},
          {"kv_region_elements", layout.kv_region_elements},
          {"kv_layer_elements", layout.kv_layer_elements}};
}

std::string_view use_of(const AirProgram& program) {
  constexpr std::string_view kUses[] = {"for prompts, in every layer",
                                        "for a decoded token, in every layer",
                                        "for the logits, after the last layer"};
  if (program.name == kFusedDecode) return "a whole decoded token";
  return kUses[static_cast<size_t>(program.phase)];
}

void print_program(const AirProgram& program) {
  Table table{.id = "program",
              .title = fmt::format("{} ({}): {}, {}", program.name, program.entry, use_of(program),
                                   counted(program.launches, "launch")),
              .columns = {{"#"},
                          {"argument", false},
                          {"role", false},
                          {"type", false, 1},
                          {"rows"},
                          {"columns"},
                          {"layout", false, 2},
                          {"source", false, 3}}};
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    const AirArgument& argument = program.arguments[i];
    table.rows.push_back(
        {{std::to_string(i), std::string(argument.name), std::string(to_string(argument.role)),
          std::string(info(argument.dtype).name), std::to_string(argument.rows),
          std::to_string(argument.cols),
          argument.layout == AirLayout::none ? "" : std::string(to_string(argument.layout)),
          std::string(argument.source)}});
  }
  print_coloured(to_text(table, stdout_style()) + "\n");
}

void describe(const DescribeFlags& flags) {
  const AirDims dims = air_dims(model_dims(shape_by_name(flags.shape), 0), flags.seq);
  const AirModel model = air_model(dims);
  const std::optional<Q4nxLayout> decode = decode_layout(dims, flags.window);
  const bool is_published = known_air_model(dims) != nullptr;
  if (flags.json.is_given()) {
    ordered_json programs = ordered_json::array();
    for (const AirProgram& program : model.programs) programs.push_back(to_json(program));
    const ordered_json row = {
        {"schema", "tyto-kernels/1"},      {"shape", flags.shape},
        {"dims", to_json(dims)},           {"published", is_published},
        {"programs", std::move(programs)}, {"decode", decode ? to_json(*decode) : ordered_json()}};
    if (put_json(flags.json, row.dump(2) + "\n")) return;
  }
  if (!is_published)
    note("note: MLIR-AIR builds no bf16 images of this model; these follow the rules of others");
  print_prose(fmt::format("Kernels of {}, for prompts of {} rows; --shape names another model.\n\n",
                          flags.shape, flags.seq));
  for (const AirProgram& program : model.programs) print_program(program);
  if (decode) print_program(fused_decode_program(dims, flags.window));
}

}  // namespace

ordered_json to_json(const AirDims& dims) {
  ordered_json fields;
  for (const DimField& field : kDimFields) fields[field.name] = dims.*field.member;
  return fields;
}

void define_kernels_describe(CommandLine& command) {
  DescribeFlags& flags = command.values<DescribeFlags>();
  command.add({
      {"--shape", &flags.shape, OneOf(shape_names(), Letters::as_listed), "shape of the model",
       Rules{.shows_default = true}},
      {"--seq", &flags.seq, "N", "prompt length of the prefill kernels",
       Rules{.range = Range{64, 1 << 20}, .shows_default = true}},
      {"--window", &flags.window, "N", "context length of the decode in one dispatch",
       Rules{.range = Range{64, 1 << 20}, .shows_default = true}},
  });
  add_json_flag(command, flags.json);
  command.footer =
      "Lists every program and its arguments, in the order in which Tyto passes them to XRT. This "
      "is known from MLIR-AIR's sources; no compiled image has been compared with it.\n\n"
      "Example:\n  tyto kernels describe --shape llama-3.2-1b";
  command.run = [&flags] { describe(flags); };
}

}  // namespace tyto
