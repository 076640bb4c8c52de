#include "plan/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/environment.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_value.h"
#include "base/spelling.h"

namespace tyto {
namespace {

constexpr const char* kSchema = "tyto-calibration-1";
constexpr uint64_t kMostBytes = 4 << 20;
constexpr uint64_t kLongestRate = 1u << 24;
constexpr double kFewTimes = 4;  // sizes of models between which figures carry over

// Modelled figures have a name of their own, so that they are not taken for measured ones.
const char* rate_key(bool is_modelled) {
  return is_modelled ? "modelled_tok_s" : "tok_s";
}

JsonValue points_json(const std::vector<RatePoint>& points, bool is_modelled) {
  JsonValue list = JsonValue::array();
  for (const RatePoint& point : points)
    list.push_back({{"tokens", point.tokens}, {rate_key(is_modelled), point.tokens_per_second}});
  return list;
}

JsonValue device_json(const CalibratedDevice& device) {
  JsonValue json = {{"name", device.name},
                    {"description", device.description},
                    {"driver", device.driver},
                    {"settings", device.settings},
                    {"modelled", device.is_modelled},
                    {"prefill", points_json(device.prefill, device.is_modelled)},
                    {"decode", points_json(device.decode, device.is_modelled)},
                    {"kv_gb_s", nullptr}};
  if (device.kv_gb_s > 0) json["kv_gb_s"] = device.kv_gb_s;
  return json;
}

JsonValue model_json(const CalibratedModel& model) {
  JsonValue json = {{"model", model.name},
                    {"type", model.type},
                    {"weight_bytes", model.weight_bytes},
                    {"time", model.time},
                    {"devices", JsonValue::array()}};
  for (const CalibratedDevice& device : model.devices)
    json["devices"].push_back(device_json(device));
  return json;
}

std::string text_at(const Json& json, std::string_view key) {
  return std::string(json.at(key).as_string());
}

double positive(const Json& json) {
  const double value = json.as_double();
  if (!(value > 0) || !std::isfinite(value)) json.fail("is not a rate");
  return value;
}

std::vector<RatePoint> points_from(const Json& json, bool is_modelled) {
  std::vector<RatePoint> points;
  json.for_each_element([&](size_t, const Json& each) {
    const RatePoint point{static_cast<uint32_t>(each.at("tokens").as_uint(kLongestRate)),
                          positive(each.at(rate_key(is_modelled)))};
    if (!points.empty() && point.tokens <= points.back().tokens)
      each.fail("does not have more tokens than the one before");
    points.push_back(point);
  });
  return points;
}

CalibratedDevice device_from(const Json& json) {
  CalibratedDevice device{.name = text_at(json, "name"),
                          .description = text_at(json, "description"),
                          .driver = text_at(json, "driver"),
                          .settings = text_at(json, "settings"),
                          .is_modelled = json.at("modelled").as_bool()};
  device.prefill = points_from(json.at("prefill"), device.is_modelled);
  device.decode = points_from(json.at("decode"), device.is_modelled);
  if (const auto rate = json.find("kv_gb_s")) device.kv_gb_s = positive(*rate);
  return device;
}

CalibratedModel model_from(const Json& json) {
  CalibratedModel model{.name = text_at(json, "model"),
                        .type = text_at(json, "type"),
                        .weight_bytes = json.at("weight_bytes").as_uint(INT64_MAX),
                        .time = text_at(json, "time")};
  if (model.weight_bytes == 0) json.fail("has no weights");
  json.at("devices").for_each_element(
      [&](size_t, const Json& device) { model.devices.push_back(device_from(device)); });
  return model;
}

double size_ratio(const CalibratedModel& a, const ModelDescription& b) {
  const auto sizes = std::minmax(a.weight_bytes, b.weight_bytes);
  return static_cast<double>(sizes.second) /
         static_cast<double>(std::max<uint64_t>(1, sizes.first));
}

std::vector<RatePoint> times(std::vector<RatePoint> points, double factor) {
  for (RatePoint& point : points) point.tokens_per_second *= factor;
  return points;
}

}  // namespace

std::filesystem::path default_calibration() {
  return cache_folder() / "calibration.json";
}

std::string calibration_json(const Calibration& calibration) {
  const CalibratedMachine& machine = calibration.machine;
  JsonValue json = {{"schema", kSchema},
                    {"tyto", machine.tyto},
                    {"cpu", machine.cpu},
                    {"cpu_threads", machine.cpu_threads},
                    {"models", JsonValue::array()}};
  for (const CalibratedModel& model : calibration.models)
    json["models"].push_back(model_json(model));
  return json.dump(2) + "\n";
}

Calibration calibration_from(const std::filesystem::path& path) {
  const Json json = Json::parse_file(path.string(), kMostBytes);
  const Json schema = json.at("schema");
  if (schema.as_string() != kSchema) schema.fail(fmt::format("is not {}", kSchema));
  Calibration calibration;
  calibration.machine = {
      .cpu = text_at(json, "cpu"),
      .cpu_threads = static_cast<unsigned>(json.at("cpu_threads").as_uint(UINT32_MAX)),
      .tyto = text_at(json, "tyto")};
  json.at("models").for_each_element(
      [&](size_t, const Json& model) { calibration.models.push_back(model_from(model)); });
  return calibration;
}

std::optional<std::string> why_not_here(const Calibration& calibration,
                                        const CalibratedMachine& here) {
  const CalibratedMachine& there = calibration.machine;
  if (there.cpu != here.cpu || there.cpu_threads != here.cpu_threads)
    return fmt::format("is of another machine ({}, {})", there.cpu,
                       counted(there.cpu_threads, "thread"));
  if (there.tyto != here.tyto) return fmt::format("was made with Tyto {}", there.tyto);
  return std::nullopt;
}

void add(Calibration& calibration, CalibratedModel measured) {
  std::erase_if(calibration.models, [&](const CalibratedModel& each) {
    return each.type == measured.type && each.weight_bytes == measured.weight_bytes;
  });
  calibration.models.push_back(std::move(measured));
}

const CalibratedModel* nearest_model(const Calibration& calibration,
                                     const ModelDescription& model) {
  const CalibratedModel* nearest = nullptr;
  for (const CalibratedModel& each : calibration.models) {
    if (each.type != model.main_type || size_ratio(each, model) > kFewTimes) continue;
    if (nearest == nullptr || size_ratio(each, model) < size_ratio(*nearest, model))
      nearest = &each;
  }
  return nearest;
}

KnownRates calibrated_rates(const CalibratedModel& with, const DeviceInfo& device,
                            const std::string& settings, const ModelDescription& model) {
  const auto found = std::ranges::find(with.devices, device.name, &CalibratedDevice::name);
  if (found == with.devices.end()) return {.why_none = device.name + " was not measured"};
  if (found->description != device.description || found->driver != device.driver)
    return {.why_none =
                fmt::format("{} was measured as another: {}{}{}", device.name, found->description,
                            found->driver.empty() ? "" : ", ", found->driver)};
  if (found->settings != settings)
    return {.why_none = fmt::format("{} was measured with {}", device.name,
                                    found->settings.empty() ? "other settings" : found->settings)};
  const bool is_same = with.weight_bytes == model.weight_bytes;
  const double factor =
      static_cast<double>(with.weight_bytes) / static_cast<double>(model.weight_bytes);
  return {.rates = DeviceRates{.name = device.name,
                               .kind = found->is_modelled ? PlanKind::modelled
                                       : is_same          ? PlanKind::measured
                                                          : PlanKind::estimated,
                               .prefill = times(found->prefill, factor),
                               .decode = times(found->decode, factor),
                               .kv_gb_s = found->kv_gb_s}};
}

}  // namespace tyto
