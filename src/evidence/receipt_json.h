// The receipt as JSON; docs/profile.md describes the fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/file_kind.h"
#include "trace/receipt.h"

namespace tyto {

inline constexpr const char* kReceiptSchema = "tyto-receipt-1";
inline constexpr FileKind kReceiptFile = {"a receipt", "{\n  \"schema\": \"tyto-receipt-"};

// The text of a file.
std::string receipt_json(const Receipt& receipt, const ReceiptContext& context);
// The same fields, for the files that hold a receipt among other things.
nlohmann::ordered_json receipt_fields(const Receipt& receipt, const ReceiptContext& context);

}  // namespace tyto
