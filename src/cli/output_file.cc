#include "cli/output_file.h"

#include "base/error.h"

namespace tyto {

OutputFile::OutputFile(const std::string& path, const FileKind& kind, bool force) {
  if (!path.empty()) file_.emplace(path, replacing(force), kind);
}

void OutputFile::write(std::string_view text) {
  TYTO_ASSERT(is_wanted());
  file_->write(text);
  file_->commit();
}

}  // namespace tyto
