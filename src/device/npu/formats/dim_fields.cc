#include "device/npu/formats/dim_fields.h"

#include <fmt/format.h>

#include "base/joined.h"

namespace tyto {

std::string dims_difference(const AirDims& has, const AirDims& wanted) {
  std::vector<std::string> parts;
  for (const DimField& field : kDimFields)
    if (has.*field.member != wanted.*field.member)
      parts.push_back(
          fmt::format("{} {} and not {}", field.name, has.*field.member, wanted.*field.member));
  return joined(parts);
}

}  // namespace tyto
