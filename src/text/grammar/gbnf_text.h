// Writing GBNF: texts and classes of characters as the notation spells them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/gbnf.h"

namespace tyto {

std::string gbnf_text(std::string_view text);  // in quotes; UTF-8
std::string gbnf_class(const std::vector<CharacterRange>& ranges);

}  // namespace tyto
