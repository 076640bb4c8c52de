// What ran where, in one line for the terminal and as JSON for a file.
#pragma once

#include <string>

#include "base/file_kind.h"
#include "ggml/session.h"

namespace tyto::plugin {

struct Origin {
  std::string device;  // as llama.cpp calls it
  std::string version, ggml_version;
};

std::string receipt_line(const Session& session, const Origin& origin);
inline constexpr FileKind kPluginReceiptFile = {"a receipt of this plug-in",
                                                "{\n  \"tyto_version\": "};
std::string receipt_json(const Session& session, const Origin& origin);
// Chrome trace events; the session must have recorded.
std::string trace_json(const Session& session, const Origin& origin);

}  // namespace tyto::plugin
