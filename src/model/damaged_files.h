#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "model/model.h"

namespace tyto {

// Files that end before what they announce, as after a download that was not finished.

// An input Error with the next step. `least` is what the file would have to have as far as it can
// be read, in bytes; more than any disk holds is damage of another kind, and is called so.
[[noreturn]] void fail_cut_off(const std::string& file, uint64_t has, uint64_t least);

// What a clone without git-lfs has in place of a large file: a short text that names its hash.

// An input Error with the next step, where a file that begins with `bytes` is such a text.
void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file);

// Weights that are no finite numbers.

// What to throw about the first value of a weight that is infinite or not a number, by file, tensor
// and place; none: all are finite.
std::optional<Error> non_finite_value(const Model& model, const TensorView& weight);

// The same of all weights. It reads them all, so this is for when something has gone wrong.
std::optional<Error> non_finite_weight(const Model& model);

}  // namespace tyto
