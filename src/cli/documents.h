// Where the documents are that messages name as docs/NAME.md.
#pragma once

#include <string>

namespace tyto {

// With the path of each page that is installed or in the source tree in place of its name.
std::string with_documents_found(const std::string& text);

}  // namespace tyto
