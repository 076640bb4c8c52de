#include "model/lfs_pointer.h"

#include <string_view>

#include "base/error.h"

namespace tyto {

void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs.github.com/spec/"))
    throw Error(ErrorCode::input, file, "is a git-LFS pointer, not the file itself",
                "run `git lfs pull` in its repository, or get the model with `tyto pull NAME`");
}

}  // namespace tyto
