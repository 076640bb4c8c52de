// Names from strangers that become paths.
#pragma once

#include <string_view>

namespace tyto {

// A relative path that stays below whatever folder it is put into: of names that file systems take,
// none of them "..", and none git's own folder.
bool stays_below(std::string_view path);

}  // namespace tyto
