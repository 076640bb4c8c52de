#include "shell/output.h"

#include "base/error.h"
#include "shell/command_line.h"
#include "shell/terminal.h"

namespace tyto {

Flag force_flag(bool& force, const std::vector<std::string>& outputs) {
  return {"--force", &force, "overwrite existing output files (never an input file)",
          Rules{.needs_one_of = outputs}};
}

OutputFile::OutputFile(const std::string& path, const FileKind& kind, bool force) : path_(path) {
  if (!path.empty()) file_.emplace(path, replacing(force), kind);
}

OutputFile::~OutputFile() {
  try {
    if (is_written_) note("wrote " + path_);
  } catch (const Error&) {  // stderr cannot be written, and so not be told of either
  }
}

void OutputFile::write(std::string_view text) {
  TYTO_ASSERT(is_wanted());
  file_->write(text);
  file_->commit();
  is_written_ = true;
}

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
