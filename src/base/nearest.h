// "Did you mean …?"
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tyto {

// Which of some names was probably meant by one that is none of them: a few letters wrong, missing,
// too many or in another order, or cut short. Upper and lower case are the same.
std::optional<std::string> nearest(std::string_view typed, std::span<const std::string> names);

}  // namespace tyto
