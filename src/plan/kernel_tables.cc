#include "plan/kernel_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/spelling.h"
#include "tensor/dtype.h"

namespace tyto {
namespace {

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

std::string_view use_of(const AirProgram& program) {
  constexpr std::string_view kUses[] = {"for prompts, in every layer",
                                        "for a decoded token, in every layer",
                                        "for the logits, after the last layer"};
  if (program.name == kFusedDecode) return "a whole decoded token";
  if (program.name == kFusedDecodeElf) return "a whole decoded token, whatever the length";
  return kUses[static_cast<size_t>(program.phase)];
}

uint64_t bytes_of(const KernelEntry& entry) {
  uint64_t bytes = 0;
  for (const StoredImage& image : entry.images) bytes += image.bytes;
  return bytes;
}

std::string columns_text(const KernelEntry& entry) {
  return entry.columns ? std::to_string(*entry.columns) : "unknown";
}

}  // namespace

std::optional<Q4nxLayout> decode_layout(AirDims dims, uint32_t window) {
  for (const Q4nxBuild& build : q4nx_builds()) {
    AirDims same = dims;
    same.seq = build.dims.seq;
    if (same == build.dims) return q4nx_layout(dims, window);
  }
  return std::nullopt;
}

JsonValue to_json(const AirDims& dims) {
  JsonValue fields;
  for (const DimField& field : kDimFields) fields[field.name] = dims.*field.member;
  return fields;
}

JsonValue to_json(const AirProgram& program) {
  JsonValue arguments = JsonValue::array();
  for (const AirArgument& argument : program.arguments)
    arguments.push_back({{"name", argument.name},
                         {"role", to_string(argument.role)},
                         {"type", info(argument.dtype).name},
                         {"rows", argument.rows},
                         {"cols", argument.cols},
                         {"bytes", argument.bytes()},
                         {"layout", to_string(argument.layout)},
                         {"source", argument.source}});
  JsonValue steps = JsonValue::array();
  for (const Role step : program.steps) steps.push_back(name(step));
  JsonValue row = {{"name", program.name},
                   {"entry", program.entry},
                   {"phase", phase_name(program.phase)},
                   {"launches", program.launches},
                   {"steps", std::move(steps)},
                   {"arguments", std::move(arguments)}};
  if (is_attention(program)) row["attention"] = attention_order(program);
  return row;
}

JsonValue to_json(const Q4nxLayout& layout) {
  const AirDims& dims = layout.dims;
  JsonValue rows = JsonValue::array(), cols = JsonValue::array();
  for (const Q4nxPhase& phase : {layout.qkv, layout.o, layout.gate_up, layout.down}) {
    rows.push_back(phase.rows / kQ4nxBlockRows);
    cols.push_back(phase.cols / kQ4nxBlockCols);
  }
  JsonValue buffers = JsonValue::array();
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

Table program_table(const AirProgram& program) {
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
  return table;
}

Table kernel_table(const std::vector<KernelEntry>& entries) {
  Table table{.id = "kernels",
              .title = "",
              .columns = {{"name", false},
                          {"entry", false, 2},
                          {"arguments", true, 3},
                          {"launches", true, 3},
                          {"columns", true, 4},
                          {"size"},
                          {"platform", false},
                          {"imported", false, 1}}};
  for (const KernelEntry& entry : entries)
    table.rows.push_back(
        {{entry.name, entry.entry, std::to_string(entry.arguments), std::to_string(entry.launches),
          columns_text(entry), human_bytes(bytes_of(entry)),
          entry.platform.starts_with("not checked") ? "unproven" : entry.platform,
          entry.imported_at}});
  return table;
}

JsonValue to_json(const KernelEntry& entry, const std::filesystem::path& store) {
  JsonValue images = JsonValue::array();
  for (const StoredImage& image : entry.images)
    images.push_back({{"file", image_path(store, image).string()},
                      {"kind", to_string(image.kind)},
                      {"length", image.length},
                      {"bytes", image.bytes},
                      {"hash", image.hash}});
  JsonValue row = {{"name", entry.name},           {"program", entry.program},
                   {"entry", entry.entry},         {"shape", entry.shape},
                   {"arguments", entry.arguments}, {"launches", entry.launches},
                   {"columns", nullptr},           {"run_bytes", entry.run_bytes},
                   {"window", entry.window},       {"platform", entry.platform},
                   {"flags", entry.flags},         {"toolchain", entry.toolchain},
                   {"source", entry.source},       {"imported_at", entry.imported_at},
                   {"dims", to_json(entry.dims)},  {"images", std::move(images)}};
  if (entry.columns) row["columns"] = *entry.columns;
  return row;
}

JsonValue to_json(const CheckReport& report) {
  JsonValue problems = JsonValue::array();
  for (const ImageProblem& problem : report.problems)
    problems.push_back({{"fault", to_string(problem.fault)},
                        {"kernel", problem.entry},
                        {"file", problem.file},
                        {"reason", problem.reason}});
  return {{"images", report.images},
          {"unchanged", report.trusted},
          {"hashed", report.hashed},
          {"bytes_read", report.bytes_read},
          {"problems", std::move(problems)}};
}

}  // namespace tyto
