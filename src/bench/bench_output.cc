#include "bench/bench_output.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "bench/bench_comparison.h"
#include "evidence/ledger.h"
#include "report/energy.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

std::string dump(const JsonValue& json, int indent = -1) {
  return json.dump(indent);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::vector<uint64_t> nanoseconds(const std::vector<double>& seconds) {
  std::vector<uint64_t> result;
  for (double each : seconds) result.push_back(static_cast<uint64_t>(each * 1e9 + 0.5));
  return result;
}

// The device that was asked for, or both, unless another did its work.
std::string backend(const BenchRow& row) {
  if (row.facts.device.find('/') != std::string::npos) return row.facts.device;
  std::string host = row.facts.device;
  for (const DeviceCounters& device : row.receipt.devices) {
    if (!device.has_executed()) continue;
    if (device.device == row.facts.device) return device.device;
    if (device.is_host) host = device.device;
  }
  return host;
}

// llama-bench's settings, with what stands for them here. Those for which there is no choice have
// the value that its own neutral setting has.
JsonValue setting_fields(const BenchRow& row, const BenchOrigin& origin) {
  const BenchFacts& facts = row.facts;
  return {{"build_commit", origin.build.commit},
          {"build_number", origin.build.number},
          {"cpu_info", origin.machine.cpu},
          {"gpu_info", facts.on_host ? "" : facts.device_description},
          {"backends", upper(backend(row))},
          {"model_filename", facts.model_path},
          {"model_type", facts.model_type},
          {"model_size", facts.model_bytes},
          {"model_n_params", facts.parameters},
          {"n_batch", facts.batch},
          {"n_ubatch", facts.ubatch},
          {"n_threads", facts.threads},
          {"cpu_mask", "0x0"},
          {"cpu_strict", false},
          {"poll", 0},
          {"type_k", facts.kv_type},
          {"type_v", facts.kv_type},
          {"n_gpu_layers", facts.on_host ? 0 : facts.layers},
          {"n_cpu_moe", 0},
          {"split_mode", "none"},
          {"main_gpu", 0},
          {"no_kv_offload", false},
          {"flash_attn", 0},
          {"devices", facts.device},
          {"tensor_split", "0.00"},
          {"tensor_buft_overrides", "none"},
          {"load_mode", "mmap"},
          {"embeddings", false},
          {"no_op_offload", 0},
          {"no_host", false},
          {"fit_target", 0},
          {"fit_min_ctx", 0},
          {"n_prompt", row.test.prompt},
          {"n_gen", row.test.generate},
          {"n_depth", row.test.depth},
          {"test_time", row.time}};
}

constexpr const char* kSpeedFields[] = {"avg_ns",    "stddev_ns",  "avg_ts",
                                        "stddev_ts", "samples_ns", "samples_ts"};

void add_speed(JsonValue& json, const BenchRow& row, const std::string& prefix, bool has_any) {
  for (const char* field : kSpeedFields) json[prefix + field] = nullptr;
  if (!has_any) return;
  const Statistics time = statistics(row.seconds);
  const Statistics speed = statistics(row.tokens_per_second());
  json[prefix + "avg_ns"] = static_cast<uint64_t>(time.mean * 1e9 + 0.5);
  json[prefix + "stddev_ns"] = static_cast<uint64_t>(time.deviation * 1e9 + 0.5);
  json[prefix + "avg_ts"] = speed.mean;
  json[prefix + "stddev_ts"] = speed.deviation;
  json[prefix + "samples_ns"] = nanoseconds(row.seconds);
  json[prefix + "samples_ts"] = row.tokens_per_second();
}

JsonValue number_or_null(double value) {
  return value > 0 ? JsonValue(value) : JsonValue(nullptr);
}

JsonValue share_or_null(const BenchRow& row, double rate, double DeviceLimits::* most) {
  return number_or_null(row.facts.peak ? rate / *row.facts.peak.*most : 0);
}

// What was moved and computed, and what share that is of what the machine can do at best.
void add_work(JsonValue& json, const BenchRow& row) {
  const WorkRate work = work_rate(row);
  json["bytes_per_token"] = work.bytes_per_token;
  json["flops_per_token"] = work.flops_per_token;
  json["gb_per_s"] = number_or_null(row.modelled ? 0 : work.gb_per_s);
  json["gflop_per_s"] = number_or_null(row.modelled ? 0 : work.gflop_per_s);
  json["modelled_gb_per_s"] = number_or_null(row.modelled ? work.gb_per_s : 0);
  json["modelled_gflop_per_s"] = number_or_null(row.modelled ? work.gflop_per_s : 0);
  json["peak"] = row.facts.peak ? JsonValue(row.facts.peak->source) : JsonValue(nullptr);
  json["peak_gb_per_s"] = number_or_null(row.facts.peak ? row.facts.peak->gb_s : 0);
  json["peak_gflop_per_s"] = number_or_null(row.facts.peak ? row.facts.peak->gflops : 0);
  json["share_of_peak_gb_per_s"] = share_or_null(row, work.gb_per_s, &DeviceLimits::gb_s);
  json["share_of_peak_gflop_per_s"] = share_or_null(row, work.gflop_per_s, &DeviceLimits::gflops);
}

const RailEnergy* measured_rail(const BenchRow& row) {
  for (const RailEnergy& rail : row.energy.rails)
    if (rail.joules) return &rail;
  return nullptr;
}

void add_energy(JsonValue& json, const BenchRow& row) {
  const RailEnergy* rail = measured_rail(row);
  json["j_per_token"] =
      rail != nullptr ? JsonValue(*rail->joules / row.all_tokens()) : JsonValue(nullptr);
  json["energy_rail"] = rail != nullptr ? JsonValue(rail->rail.label()) : JsonValue(nullptr);
  json["energy_reason"] = rail != nullptr ? JsonValue(nullptr) : JsonValue(row.energy_reason);
  if (!row.energy.rails.empty()) json["energy"] = energy_json(row.energy, row.all_tokens());
}

std::string csv_cell(const JsonValue& value) {
  std::string text = value.is_null() ? "" : value.is_string() ? value.text() : dump(value);
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Lists and objects are left to JSON; every row has the same columns.
std::string csv_line(const JsonValue& fields, bool names) {
  constexpr const char* kJsonOnly[] = {"samples_ns",          "samples_ts", "modelled_samples_ns",
                                       "modelled_samples_ts", "energy",     "ab",
                                       "fallbacks",           "on_host",    "speculation"};
  std::string line;
  for (const auto& [name, value] : fields.members()) {
    if (std::find(std::begin(kJsonOnly), std::end(kJsonOnly), name) != std::end(kJsonOnly))
      continue;
    line += (line.empty() ? "" : ",") + (names ? name : csv_cell(value));
  }
  return line + "\n";
}

enum class Cells : uint8_t {
  text,
  number,
  left_number,  // in Markdown to the left
};

struct BenchColumn {
  std::string name;
  Cells kind;
  uint8_t rank;  // among the table's, as in report/tables.h
  std::function<std::string(const BenchRow&)> cell;
  bool is_wanted = true;
  std::string widest = {};  // that a later row may have; the table makes room for it
};

std::string reasons(const BenchRow& row) {
  std::string text;
  for (const std::string& reason : row.receipt.plausibility.reasons)
    text += (text.empty() ? "" : "; ") + reason;
  return text;
}

std::string speed_cell(const BenchRow& row) {
  if (row.refused()) return "refused: " + reasons(row);
  const Statistics speed = statistics(row.tokens_per_second());
  return fmt::format("{:.2f} ± {:.2f}{}", speed.mean, speed.deviation,
                     row.modelled ? " modelled" : "");
}

// As llama-batched-bench has it: all sequences' tokens.
uint64_t kv_tokens(const BenchRow& row) {
  return row.test.sequences * row.test.positions();
}

std::string seconds_cell(const BenchRow& row, Phase phase) {
  const PhaseSpeed speed = phase_speed(row, phase);
  if (speed.seconds <= 0) return "-";
  return fmt::format("{:.3f}{}", speed.seconds, row.modelled ? " modelled" : "");
}

std::string rate_cell(const BenchRow& row, Phase phase) {
  const PhaseSpeed speed = phase_speed(row, phase);
  if (speed.seconds <= 0) return "-";
  constexpr double kManyDigits = 10'000;  // the table has room for eight characters
  const double rate = speed.tokens / speed.seconds;
  return fmt::format("{:.{}f}{}", rate, rate < kManyDigits ? 2 : 0,
                     row.modelled ? " modelled" : "");
}

std::string work_cell(const BenchRow& row) {
  const double rate = work_rate(row).gb_per_s;
  if (rate <= 0) return "-";
  return fmt::format("{:.1f}{}", rate, row.modelled ? " modelled" : "");
}

std::string share_cell(const BenchRow& row, double rate, double DeviceLimits::* most) {
  if (!row.facts.peak) return "-";
  return fmt::format("{:.0f} %", 100 * rate / *row.facts.peak.*most);
}

std::string joules_cell(const BenchRow& row) {
  const RailEnergy* rail = measured_rail(row);
  if (rail == nullptr) return "n/a (" + row.energy_reason + ")";
  return fmt::format("{:.3g} ({}, idle included)", *rail->joules / row.all_tokens(),
                     rail->rail.label());
}

std::string parameters_cell(const BenchRow& row) {
  const auto count = static_cast<double>(row.facts.parameters);
  return count >= 1e9 ? fmt::format("{:.2f} B", count / 1e9) : fmt::format("{:.2f} M", count / 1e6);
}

std::vector<BenchColumn> setting_columns(const ShownSettings& shown) {
  using Row = const BenchRow&;
  const auto file = [](Row row) {
    return std::filesystem::path(row.facts.model_path).filename().string();
  };
  return {{"model", Cells::text, 2, [](Row row) { return row.facts.model_type; }, true,
           shown.file ? std::string(20, 'x') : ""},
          {"size", Cells::number, 5, [](Row row) { return human_bytes(row.facts.model_bytes); }},
          {"params", Cells::number, 6, parameters_cell},
          {"backend", Cells::text, 7, [](Row row) { return upper(backend(row)); }},
          {"threads", Cells::number, 6, [](Row row) { return std::to_string(row.facts.threads); }},
          {"file", Cells::text, 0, file, shown.file},
          {"n_batch", Cells::left_number, 0,
           [](Row row) { return std::to_string(row.facts.batch); }, shown.batch},
          {"n_ubatch", Cells::left_number, 0,
           [](Row row) { return std::to_string(row.facts.ubatch); }, shown.ubatch},
          {"type_kv", Cells::text, 0, [](Row row) { return row.facts.kv_type; }, shown.kv_type},
          {"fusion", Cells::text, 0, [](Row row) { return row.facts.fusion; }, shown.fusion}};
}

std::vector<BenchColumn> speed_columns(const ShownSettings& shown) {
  using Row = const BenchRow&;
  const auto seconds = [](Phase phase) {
    return [phase](Row row) { return seconds_cell(row, phase); };
  };
  const auto rate = [](Phase phase) { return [phase](Row row) { return rate_cell(row, phase); }; };
  const bool several = shown.sequences;
  return {
      {"test", Cells::number, 0, [](Row row) { return row.test.name(); }, true, shown.widest_test},
      {"t/s", Cells::number, 0, speed_cell, true,
       shown.devices ? "12345.67 ± 123.45 modelled" : "12345.67 ± 123.45"},
      {"executed on", Cells::text, 0, [](Row row) { return execution_text(row.receipt); }, true,
       shown.devices ? "vnpu (modelled)+cpu" : ""},
      {"GB/s", Cells::number, 3, work_cell, true, shown.devices ? "12.3 modelled" : ""},
      {"B", Cells::left_number, 2, [](Row row) { return std::to_string(row.test.sequences); },
       several},
      {"N_KV", Cells::left_number, 4, [](Row row) { return std::to_string(kv_tokens(row)); },
       several},
      {"T_PP s", Cells::left_number, 3, seconds(Phase::prefill), several},
      {"S_PP t/s", Cells::left_number, 2, rate(Phase::prefill), several, "12345.67"},
      {"T_TG s", Cells::left_number, 3, seconds(Phase::decode), several},
      {"S_TG t/s", Cells::left_number, 1, rate(Phase::decode), several, "12345.67"}};
}

std::vector<BenchColumn> work_columns(const ShownSettings& shown) {
  using Row = const BenchRow&;
  const auto of_bandwidth = [](Row row) {
    return share_cell(row, work_rate(row).gb_per_s, &DeviceLimits::gb_s);
  };
  const auto of_arithmetic = [](Row row) {
    return share_cell(row, work_rate(row).gflop_per_s, &DeviceLimits::gflops);
  };
  const auto per_token = [](Row row) {
    return fmt::format("{:.1f}", work_rate(row).bytes_per_token * 1e-6);
  };
  return {{"of peak", Cells::left_number, 2, of_bandwidth, shown.peak},
          {"MB/token", Cells::left_number, 3, per_token, shown.peak},
          {"GFLOP/s", Cells::left_number, 2,
           [](Row row) { return fmt::format("{:.1f}", work_rate(row).gflop_per_s); }, shown.peak},
          {"of peak", Cells::left_number, 2, of_arithmetic, shown.peak},
          {"dispatches/token", Cells::number, 4,
           [](Row row) { return fmt::format("{:.4g}", dispatches_per_token(row)); }},
          {"J/token", Cells::left_number, 1, joules_cell},
          {"receipt", Cells::text, 2, [](Row row) { return row.receipt_id.substr(0, 8); }}};
}

std::vector<BenchColumn> columns(const ShownSettings& shown) {
  std::vector<BenchColumn> all;
  for (const auto part : {setting_columns, speed_columns, work_columns})
    for (BenchColumn& column : part(shown))
      if (column.is_wanted) all.push_back(std::move(column));
  return all;
}

// What the table on a terminal shows: nothing that was not asked for, and why a row is refused
// below it.
std::vector<BenchColumn> table_columns(const ShownSettings& shown) {
  std::vector<BenchColumn> all = columns(shown);
  std::erase_if(
      all, [&](const BenchColumn& column) { return column.name == "J/token" && !shown.energy; });
  return all;
}

TableRow table_row(const std::vector<BenchColumn>& all, const BenchRow& row) {
  TableRow result{{}, row.refused() ? RowStyle::alarm : RowStyle::plain};
  for (const BenchColumn& column : all)
    result.cells.push_back(column.name == "t/s" && row.refused() ? "refused" : column.cell(row));
  return result;
}

// Rows come one by one; the first one and what is known of others say how wide columns are.
TableText table_text(const std::vector<BenchColumn>& all, const BenchRow& first,
                     const TextStyle& style) {
  Table table{.id = "bench", .title = "", .rows = {table_row(all, first), {}}};
  for (const BenchColumn& column : all) {
    table.columns.push_back({column.name, column.kind != Cells::text, column.rank});
    table.rows.back().cells.push_back(column.widest);
  }
  return {table, style};
}

std::string markdown_header(const std::vector<BenchColumn>& all) {
  std::string names = "|", lines = "|";
  for (const BenchColumn& column : all) {
    names += " " + column.name + " |";
    lines += column.kind == Cells::number ? " ---: |" : " --- |";
  }
  return names + "\n" + lines + "\n";
}

std::string markdown_row(const std::vector<BenchColumn>& all, const BenchRow& row) {
  std::string line = "|";
  for (const BenchColumn& column : all) line += " " + printable_line(column.cell(row)) + " |";
  return line + "\n";
}

}  // namespace

BenchFormat bench_format(const std::string& name) {
  if (name == "csv") return BenchFormat::csv;
  if (name == "table") return BenchFormat::table;
  if (name == "json") return BenchFormat::json;
  return name == "jsonl" ? BenchFormat::jsonl : BenchFormat::markdown;
}

JsonValue row_fields(const BenchRow& row, const BenchOrigin& origin) {
  JsonValue json = setting_fields(row, origin);
  add_speed(json, row, "", !row.modelled && !row.refused());
  json["test"] = row.test.name();
  json["n_sequences"] = row.test.sequences;
  json["n_kv"] = kv_tokens(row);
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const std::string suffix = phase == Phase::prefill ? "pp" : "tg";
    const PhaseSpeed speed = phase_speed(row, phase);
    const double rate = speed.seconds > 0 ? speed.tokens / speed.seconds : 0;
    for (const bool modelled : {false, true}) {
      const std::string prefix = modelled ? "modelled_" : "";
      const bool is_this = row.modelled == modelled;
      json[prefix + "t_" + suffix] = number_or_null(is_this ? speed.seconds : 0);
      json[prefix + "speed_" + suffix] = number_or_null(is_this ? rate : 0);
    }
  }
  json["executed_on"] = device_names(row.receipt.devices);
  json["failed_dispatches"] = failed_dispatches(row.receipt);
  json["recoveries"] = row.receipt.recoveries;
  json["modelled"] = row.modelled;
  add_speed(json, row, "modelled_", row.modelled && !row.refused());
  json["simulation_s"] = number_or_null(row.simulation_seconds);
  json["plausibility"] = std::string(name(row.receipt.plausibility.verdict));
  json["refused"] = row.refused() ? JsonValue(reasons(row)) : JsonValue(nullptr);
  json["dispatches_per_token"] = dispatches_per_token(row);
  json["cpu_us_per_token"] =
      number_or_null(row.modelled ? 0 : row.cpu_seconds * 1e6 / row.all_tokens());
  add_work(json, row);
  add_energy(json, row);
  json["fusion"] = row.facts.fusion;
  json["n_ctx"] = row.facts.context;
  json["weights_hash"] = row.facts.weights_hash;
  json["fallbacks"] = row.receipt.fallbacks;
  json["on_host"] = row.receipt.on_host;
  json["receipt_id"] = row.receipt_id;
  json["speculation"] = speculation_json(row);
  if (row.ab) json["ab"] = ab_json(*row.ab);
  return json;
}

std::string BenchWriter::add(const BenchRow& row) {
  const bool is_first = std::exchange(is_first_, false);
  if (format_ == BenchFormat::markdown) {
    const std::vector<BenchColumn> all = columns(shown_);
    return (is_first ? markdown_header(all) : "") + markdown_row(all, row);
  }
  if (format_ == BenchFormat::table) return add_to_table(row);
  const JsonValue fields = row_fields(row, origin_);
  if (format_ == BenchFormat::csv)
    return (is_first ? csv_line(fields, true) : "") + csv_line(fields, false);
  if (format_ == BenchFormat::jsonl) return dump(fields) + "\n";
  return (is_first ? "[\n" : ",\n") + dump(fields, 2);
}

std::string BenchWriter::add_to_table(const BenchRow& row) {
  const std::vector<BenchColumn> all = table_columns(shown_);
  std::string text;
  if (!table_) {
    table_.emplace(table_text(all, row, style_));
    text = table_->head();
  }
  text += table_->row(table_row(all, row));
  if (!row.refused()) return text;
  const std::string why = printable_line(refusal_line(row));
  for (const std::string& line : wrapped_lines(why, style_.width == 0 ? SIZE_MAX : style_.width))
    text += inked(line, Ink::red, style_) + "\n";
  return text;
}

std::string BenchWriter::close() const {
  if (table_) return table_->foot();
  if (format_ != BenchFormat::json) return "";
  return is_first_ ? "[]\n" : "\n]\n";
}

JsonValue ledger_record(const BenchRow& row, const BenchOrigin& origin) {
  const JsonValue& receipt = row.receipt_json;
  return result_record(row.receipt_id, row.time,
                       {{"tyto", receipt.at("tyto")},
                        {"command", receipt.at("command")},
                        {"machine",
                         {{"cpu", origin.machine.cpu},
                          {"cpu_threads", origin.machine.cpu_threads},
                          {"memory_bytes", origin.machine.memory_bytes},
                          {"kernel", origin.machine.kernel}}},
                        {"hashes", receipt.at("hashes")},
                        {"row", row_fields(row, origin)},
                        {"receipt", receipt}});
}

std::string refusal_line(const BenchRow& row) {
  return fmt::format("{}: refused: {}", row.test.name(), reasons(row));
}

}  // namespace tyto
