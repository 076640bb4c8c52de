// The page at `/`, as it lies in the binary. The build makes it of the files of this folder
// (embed_files.cmake).
#pragma once

#include <span>
#include <string_view>

namespace tyto {

struct PageFile {
  std::string_view path;  // "/", "/page/app.mjs"
  std::string_view type;  // for Content-Type
  std::string_view etag;  // strong, with its quotes; changes with the bytes and with nothing else
  std::string_view bytes;
};

std::span<const PageFile> page_files();

// For every answer that a browser may show: only our own scripts, styles and connections, no
// frames, and no text that becomes markup.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace tyto
