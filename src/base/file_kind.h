// How a file is known that Tyto wrote earlier, so that it may be replaced by a newer one.
#pragma once

#include <string_view>

namespace tyto {

struct FileKind {
  std::string_view name = {};       // "a receipt", for errors
  std::string_view beginning = {};  // of every such file; empty: none is recognised
  bool is_private = false;          // nobody but its owner may read it
};

}  // namespace tyto
