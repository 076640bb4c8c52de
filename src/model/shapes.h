// Shapes of public models, by name: what their config.json says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace tyto {

// Throws a usage Error that lists the names when there is no such shape.
Config shape_by_name(std::string_view name);
std::vector<std::string> shape_names();

}  // namespace tyto
