#include "shell/json_flag.h"

#include "shell/command_line.h"
#include "shell/output_file.h"
#include "shell/terminal.h"

namespace tyto {

Flag json_flag(JsonFlag& flag, const std::string& meaning) {
  return {"--json", &flag.file, "[FILE]", meaning, Rules{.may_lack_value = true}};
}

void add_json_flag(CommandLine& command, JsonFlag& flag, const std::string& meaning) {
  command.add({json_flag(flag, meaning), force_flag(flag.force, {"--json"})});
}

bool put_json(const JsonFlag& flag, std::string_view json) {
  if (flag.is_for_stdout()) {
    print(json);
    return true;
  }
  OutputFile(flag.path(), {}, flag.force).write(json);
  return false;
}

}  // namespace tyto
