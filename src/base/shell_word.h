// Text that is pasted into a shell.
#pragma once

#include <string>

namespace tyto {

// As it is where a shell takes it so, else in single quotes.
std::string shell_word(const std::string& word);

}  // namespace tyto
