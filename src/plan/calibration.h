// What `tyto bench --calibrate` measured of this machine's devices, kept as a file: the machine,
// and per model how fast each device was with it. docs/bench.md describes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "device/device.h"
#include "model/description.h"
#include "plan/device_choice.h"

namespace tyto {

// A device as it was when it was measured. With another description, driver or settings it is
// another device.
struct CalibratedDevice {
  std::string name, description, driver;
  std::string settings = {};  // flags that it was measured with
  bool is_modelled = false;   // a virtual device: its time is not this machine's
  std::vector<RatePoint> prefill = {}, decode = {};
  double kv_gb_s = 0;  // as DeviceRates has it
};

// The model that it was measured with.
struct CalibratedModel {
  std::string name;  // "llama 1.24B bf16", for people
  std::string type;  // most weights'
  uint64_t weight_bytes = 0;
  std::string time;  // UTC
  std::vector<CalibratedDevice> devices = {};
};

struct CalibratedMachine {
  std::string cpu;
  unsigned cpu_threads = 0;
  std::string tyto;  // version: kernels are part of the program
  bool operator==(const CalibratedMachine&) const = default;
};

struct Calibration {
  CalibratedMachine machine;
  std::vector<CalibratedModel> models = {};  // no two of one type and size
};

inline constexpr FileKind kCalibrationFile = {"a calibration",
                                              "{\n  \"schema\": \"tyto-calibration-"};

std::filesystem::path default_calibration();  // below the user's cache folder

std::string calibration_json(const Calibration& calibration);
// Throws an input Error that names the field. A file of another form is one.
Calibration calibration_from(const std::filesystem::path& path);

// Why its figures are not this machine's, in words; nothing when they are.
std::optional<std::string> why_not_here(const Calibration& calibration,
                                        const CalibratedMachine& here);

// In the place of what was measured with the same model.
void add(Calibration& calibration, CalibratedModel measured);

// The calibrated model of the same type and size, or else of the same type and the nearest size.
// Figures of a model that is a few times larger or smaller are of use, in proportion; others are
// not. Null: none is.
const CalibratedModel* nearest_model(const Calibration& calibration, const ModelDescription& model);

// Measured with this very model, estimated with another one, modelled of a virtual device.
struct KnownRates {
  std::optional<DeviceRates> rates = {};
  std::string why_none = {};  // one line
};
KnownRates calibrated_rates(const CalibratedModel& with, const DeviceInfo& device,
                            const std::string& settings, const ModelDescription& model);

}  // namespace tyto
