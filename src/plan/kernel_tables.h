// Images of NPU kernels as `tyto kernels` shows them: what is believed of those of a model, and
// what the store has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/json_value.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/store/kernel_store.h"
#include "report/tables.h"

namespace tyto {

// As MLIR-AIR's builder has been told it; nothing for a model that it builds no decode of.
std::optional<Q4nxLayout> decode_layout(AirDims dims, uint32_t window);
JsonValue to_json(const AirDims& dims);  // by name
JsonValue to_json(const AirProgram& program);
JsonValue to_json(const Q4nxLayout& layout);
Table program_table(const AirProgram& program);

Table kernel_table(const std::vector<KernelEntry>& entries);
JsonValue to_json(const KernelEntry& entry, const std::filesystem::path& store);
JsonValue to_json(const CheckReport& report);

}  // namespace tyto
