// FastFlowLM's bundles: a safetensors container called model.q4nx whose matrices are 4-bit blocks
// of 32 rows x 256 columns, in a checkpoint folder beside config.json and tokenizer.json. (As
// MLIR-AIR's examples read them; no bundle was at hand.)
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/progress.h"
#include "model/model.h"

namespace tyto {

constexpr const char* kBundleFile = "model.q4nx";

// Lists the tensors of a bundle in model.tensors; `bytes` outlive the model, `name` is how errors
// call them. Matrices have the shapes of model.config. Their blocks are laid out again, as rows of
// q4_1 in model.copies: the same 5 bits for a weight, codes unchanged, scales and minima from bf16
// to f16. That is exact between 2^-17 and 65504; what is smaller is rounded to multiples of 2^-24,
// what is larger refused. In the older of the two encodings ("Q4NX") a minimum is the product of a
// scale and a zero point, and rounded to 11 bits.
void read_q4nx_bundle(std::span<const std::byte> bytes, const std::string& name,
                      const Progress& progress, Model& model);

}  // namespace tyto
