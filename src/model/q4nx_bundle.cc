#include "model/q4nx_bundle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "model/safetensors.h"
#include "model/weight_table.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

constexpr uint64_t kRows = 32, kCols = 256, kGroups = kCols / kSimpleValues;
constexpr uint64_t kPairs = 8;  // pairs of rows in each half of a block

struct Block {
  uint16_t scale[kGroups][kRows];   // bf16
  uint16_t offset[kGroups][kRows];  // bf16
  uint8_t codes[2][kCols][kPairs];  // rows 2k (low bits) and 2k + 1 of a half of 16
};
static_assert(sizeof(Block) == 5120);

// The two encodings have blocks of one form, and nothing but the type's name tells them apart.
enum class Offset : uint8_t { is_minimum, is_zero_point };

struct Form {
  std::string_view type;
  Offset offset;
};
constexpr Form kForms[] = {
    {"I8", Offset::is_minimum},       // scale * code + offset; the shape counts blocks
    {"Q4NX", Offset::is_zero_point},  // scale * (code - offset); the shape is the matrix's
};

const Form* form_of(const StoredTensor& tensor) {
  const auto found = std::find_if(std::begin(kForms), std::end(kForms),
                                  [&](const Form& form) { return form.type == tensor.type; });
  return found == std::end(kForms) ? nullptr : found;
}

struct Matrix {
  uint64_t rows, cols;

  uint64_t blocks() const { return rows / kRows * (cols / kCols); }
};

void check_blocks(const StoredTensor& tensor, const Form& form, const Matrix& matrix,
                  const std::string& where) {
  if (matrix.rows % kRows != 0 || matrix.cols % kCols != 0)
    fail_unsupported(where, "{} x {} weights are not whole blocks of {} x {}", matrix.rows,
                     matrix.cols, kRows, kCols);
  const std::vector<uint64_t> shape = form.offset == Offset::is_minimum
                                          ? std::vector<uint64_t>{matrix.blocks(), sizeof(Block)}
                                          : std::vector<uint64_t>{matrix.rows, matrix.cols};
  if (tensor.shape != shape)
    fail_input(where, "shape {}, the config asks for {}", shape_text(tensor.shape),
               shape_text(shape));
  if (tensor.bytes.size() != matrix.blocks() * sizeof(Block))
    fail_input(where, "{} bytes for {} blocks of {}", tensor.bytes.size(), matrix.blocks(),
               sizeof(Block));
}

// The scales and minima of one row of a block. False where one of them is no f16.
bool put_levels(const Block& block, Offset offset, uint64_t row, BlockQ4_1* out) {
  bool fits = true;
  for (uint64_t group = 0; group < kGroups; ++group) {
    const float scale = bf16_to_f32(block.scale[group][row]);
    const float stored = bf16_to_f32(block.offset[group][row]);
    const float minimum = offset == Offset::is_minimum ? stored : -scale * stored;
    fits = fits && std::fabs(scale) <= kLargestHalf && std::fabs(minimum) <= kLargestHalf;
    out[group].d = encode_scale(scale);
    out[group].m = encode_scale(minimum);
  }
  return fits;
}

// The codes of rows 2 * pair and 2 * pair + 1 of a half: q4_1 has the columns i and i + 16 of a
// group in one byte.
void put_codes(const uint8_t (&codes)[kCols][kPairs], uint64_t pair, BlockQ4_1* even,
               BlockQ4_1* odd) {
  for (uint64_t group = 0; group < kGroups; ++group)
    for (uint64_t i = 0; i < kSimpleValues / 2; ++i) {
      const uint64_t col = group * kSimpleValues + i;
      const uint8_t low = codes[col][pair], high = codes[col + kSimpleValues / 2][pair];
      even[group].code[i] = static_cast<uint8_t>((low & 15) | (high << 4));
      odd[group].code[i] = static_cast<uint8_t>((low >> 4) | (high & 0xf0));
    }
}

// Writes the block's 32 rows, `stride` groups apart. The first row that does not fit, or kRows.
uint64_t put_block(const Block& block, Offset offset, BlockQ4_1* out, uint64_t stride) {
  uint64_t unusable = kRows;
  for (uint64_t row = kRows; row-- > 0;)
    if (!put_levels(block, offset, row, out + row * stride)) unusable = row;
  for (uint64_t half = 0; half < 2; ++half)
    for (uint64_t pair = 0; pair < kPairs; ++pair) {
      BlockQ4_1* const even = out + (half * 2 * kPairs + 2 * pair) * stride;
      put_codes(block.codes[half], pair, even, even + stride);
    }
  return unusable;
}

// Blocks of a row of blocks follow each other, then come those of the next 32 rows.
std::vector<std::byte> as_rows(const StoredTensor& tensor, const Form& form, const Matrix& matrix,
                               const std::string& where) {
  std::vector<std::byte> rows(matrix.rows * row_bytes(DType::q4_1, matrix.cols));
  auto* const groups = reinterpret_cast<BlockQ4_1*>(rows.data());
  const uint64_t stride = matrix.cols / kSimpleValues, across = matrix.cols / kCols;
  for (uint64_t i = 0; i < matrix.blocks(); ++i) {
    Block block;
    std::memcpy(&block, tensor.bytes.data() + i * sizeof block, sizeof block);
    const uint64_t first_row = i / across * kRows, col_block = i % across;
    const uint64_t row =
        put_block(block, form.offset, groups + first_row * stride + col_block * kGroups, stride);
    if (row < kRows)
      fail_input(where,
                 "row {} has a scale or a minimum in columns {} to {} that is not between -65504 "
                 "and 65504",
                 first_row + row, col_block * kCols, col_block * kCols + kCols - 1);
  }
  return rows;
}

}  // namespace

void read_q4nx_bundle(std::span<const std::byte> bytes, const std::string& name,
                      const Progress& progress, Model& model) {
  const std::vector<StoredTensor> stored = stored_tensors(bytes, name);
  const std::vector<WeightSpec> specs = weight_specs(model.config, NameStyle::hugging_face);
  uint64_t done = 0;
  for (const StoredTensor& tensor : stored) {
    if (progress) progress("reading 4-bit blocks", done++, stored.size());
    const Form* const form = form_of(tensor);
    if (form == nullptr) {
      model.tensors.push_back(named_tensor(tensor, name));
      continue;
    }
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const WeightSpec& each) {
      return each.name == tensor.name && !each.is_vector();
    });
    // A bundle has a head of its own even where the model's is the embedding, which is not rounded.
    if (spec == specs.end() && model.config.tied_head && tensor.name == "lm_head.weight") continue;
    const std::string where = name + ": tensor " + printable_name(tensor.name);
    if (spec == specs.end())
      fail_unsupported(where, "no matrix of a {} model is called so", model.config.architecture);
    const Matrix matrix = {spec->rows, spec->cols};
    check_blocks(tensor, *form, matrix, where);
    model.copies.push_back(as_rows(tensor, *form, matrix, where));
    release_mapped_pages(tensor.bytes);
    model.tensors.push_back(
        {tensor.name, {DType::q4_1, matrix.rows, matrix.cols, model.copies.back()}});
  }
  if (progress) progress("reading 4-bit blocks", done, stored.size());
  align_views(model.tensors, model);
}

}  // namespace tyto
