// What people who come from llama.cpp, Ollama and their like call our flags and commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tyto {

std::optional<std::string> our_flag_for(std::string_view theirs);  // "--ctx-size" -> "--context"
std::optional<std::string> our_command_for(std::string_view theirs);

}  // namespace tyto
