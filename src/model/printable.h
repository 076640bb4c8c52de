// Names out of files, made fit for a one-line error.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

// Control characters and bytes above ASCII become \xNN, long names are cut.
std::string printable(std::string_view text);

}  // namespace tyto
