// The receipt as JSON; docs/profile.md describes the fields.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "trace/receipt.h"

namespace tyto {

inline constexpr const char* kReceiptSchema = "tyto-receipt-1";
inline constexpr FileKind kReceiptFile = {"a receipt", "{\n  \"schema\": \"tyto-receipt-"};

// The text of a file.
std::string receipt_json(const Receipt& receipt, const ReceiptContext& context);
// The same fields, for the files that hold a receipt among other things.
JsonValue receipt_fields(const Receipt& receipt, const ReceiptContext& context);

// A receipt out of a file. What it claims is taken as it stands; receipt_check.h asks whether it
// can be.

// A field that is missing, of another type or out of range is an input Error.
Receipt receipt_from_json(const Json& json);

// The limits that its verdict rests on; none in files that are older than these.
std::vector<NamedLimits> stated_limits(const Json& receipt);

DeviceLimits limits_from_json(const Json& json);

}  // namespace tyto
