#include "shell/output_file.h"

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

}  // namespace tyto
