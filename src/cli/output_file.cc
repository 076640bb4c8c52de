#include "cli/output_file.h"

#include "base/error.h"
#include "cli/terminal.h"

namespace tyto {

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
