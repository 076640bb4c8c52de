// Where the documents are that messages name as docs/NAME.md.
#pragma once

#include <filesystem>
#include <string>

namespace tyto {

// With the path of each page that is installed or in the source tree in place of its name.
// Whatever prints such a name while it runs calls this; help and hints of errors do so by
// themselves. JSON and reports that are sent to others keep the names.
std::string with_documents_found(const std::string& text);

// This one is told in which folder the program lies.
std::string with_documents_found(const std::string& text, const std::filesystem::path& folder);

}  // namespace tyto
