// The receipt's fields as a JSON value, for the files that hold one among other things.
#pragma once

#include <nlohmann/json.hpp>

#include "trace/receipt.h"

namespace tyto {

nlohmann::ordered_json receipt_fields(const Receipt& receipt, const ReceiptContext& context);

}  // namespace tyto
