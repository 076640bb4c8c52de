// The single-dispatch decode on the virtual NPU: weights packed here by hand from the description
// of the format, a model stepped through token by token, and instruction words that are wrong.
#include <cstring>
#include <map>

#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "support/expect_error.h"
#include "unit/device/plain_math.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using plain::Values;
using plain::Words;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---- Packing

// A matrix of a phase with 16 levels per row and 32 columns; the rest of the phase stays zero.
struct Phase {
  Phase(size_t height, size_t width)
      : rows(round_up(height, 512)),
        cols(round_up(width, 256)),
        words(rows / 32 * (cols / 256) * 2560) {}

  // Returns what the codes stand for.
  float put(size_t row, size_t col, int code, float scale, float minimum) {
    const size_t gi = row / 32, in_block = row % 32, group = col % 256 / 32;
    // Column of the array, its half (two of its four cores each), pass, block of columns, core.
    const size_t cx = gi % 16 / 4, cy = gi % 4, i = gi / 16, j = col / 256;
    const size_t nbi = rows / 32 / 16, nbj = cols / 256;
    const size_t block = (((cx * 2 + cy / 2) * nbi + i) * nbj + j) * 2 + cy % 2;
    uint16_t* at = words.data() + block * 2560;
    at[group * 32 + in_block] = f32_to_bf16(scale);
    at[256 + group * 32 + in_block] = f32_to_bf16(minimum);
    uint8_t* bytes = reinterpret_cast<uint8_t*>(at + 512);
    const size_t half = in_block / 16, pair = in_block % 16 / 2;
    bytes[(half * 256 + col % 256) * 8 + pair] |=
        static_cast<uint8_t>(code << (in_block % 2 == 1 ? 4 : 0));
    return plain::rounded(static_cast<float>(code) * scale + minimum);
  }

  size_t rows, cols;
  Words words;
};

// Random weights written at `row_of(r)`; the values they decode to, as stored (out, in).
template <typename RowOf>
Values fill(Phase& phase, size_t rows, size_t cols, uint32_t seed, const RowOf& row_of) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> codes(0, 15);
  std::uniform_real_distribution<float> sizes(0.5f, 1.5f);
  Values values(rows * cols);
  float scale = 0, minimum = 0;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) {
      if (c % 32 == 0) {
        scale = plain::rounded(sizes(random) * 0.012f);
        minimum = plain::rounded(-7.5f * scale * sizes(random));
      }
      values[r * cols + c] = phase.put(row_of(r), c, codes(random), scale, minimum);
    }
  return values;
}

void append(Words& to, const Words& from) {
  to.insert(to.end(), from.begin(), from.end());
}

struct Layer {
  Values q, k, v, o, gate, up, down, attn_norm, ffn_norm;
  Values q_bias, k_bias, v_bias, q_norm, k_norm;  // some models have them
};

// A model with its buffers, and the same model in plain loops with its own cache.
struct Model {
  // With `layers_per_buffer` the weights are split, and the head has a buffer of its own.
  Model(const AirDims& d, uint32_t positions, uint32_t group_heads, uint32_t layers_per_buffer = 0);

  Values step(Values x, const Values& rope, size_t position);

  AirDims dims;
  size_t window, group_heads, chunk_rows, chunks;
  std::vector<Layer> layers;
  Values head, final_norm;
  std::vector<Words> weights;  // by buffer
  Words norms;
  std::vector<size_t> rope_at;  // every place of the position's row
  size_t logits_at = 0, y_size = 0, kv_size = 0;
  std::vector<Values> keys, values;  // [layer], position after position
};

Model::Model(const AirDims& d, uint32_t positions, uint32_t heads_per_group,
             uint32_t layers_per_buffer)
    : dims(d), window(positions), group_heads(heads_per_group), keys(d.layers), values(d.layers) {
  Words rope_rows;
  const size_t q_dim = d.q_dim(), kv_dim = d.kv_dim();
  uint32_t seed = 100;
  const size_t qkv_rows = round_up(q_dim + 2 * kv_dim, 512);
  for (uint32_t l = 0; l < d.layers; ++l) {
    Layer layer;
    const auto at = [](size_t first) { return [first](size_t r) { return first + r; }; };
    Phase qkv(q_dim + 2 * kv_dim, d.emb), o(d.emb, q_dim);
    Phase gate_up(2 * round_up(d.hidden, 512), d.emb), down(d.emb, d.hidden);
    layer.q = fill(qkv, q_dim, d.emb, ++seed, at(0));
    layer.k = fill(qkv, kv_dim, d.emb, ++seed, at(q_dim));
    layer.v = fill(qkv, kv_dim, d.emb, ++seed, at(q_dim + kv_dim));
    layer.o = fill(o, d.emb, q_dim, ++seed, at(0));
    // Chunks of 512 rows, up first; of 256 where an odd number of 512 would be left.
    const size_t chunk = (d.hidden + 511) / 512 % 2 == 0 ? 512 : 256;
    const auto up_row = [&](size_t r) { return r / chunk * 2 * chunk + r % chunk; };
    layer.up = fill(gate_up, d.hidden, d.emb, ++seed, up_row);
    layer.gate =
        fill(gate_up, d.hidden, d.emb, ++seed, [&](size_t r) { return up_row(r) + chunk; });
    layer.down = fill(down, d.emb, d.hidden, ++seed, at(0));
    if (l == 0 || (layers_per_buffer > 0 && l % layers_per_buffer == 0)) weights.emplace_back();
    for (const Phase* phase : {&qkv, &o, &gate_up, &down}) append(weights.back(), phase->words);
    layer.attn_norm = plain::random_values(d.emb, ++seed);
    layer.ffn_norm = plain::random_values(d.emb, ++seed);
    append(norms, plain::to_bf16(layer.attn_norm));
    append(norms, plain::to_bf16(layer.ffn_norm));
    const auto behind_rope = [&](Values& vector, size_t width) {
      vector = plain::random_values(width, ++seed);
      append(rope_rows, plain::to_bf16(vector));
    };
    const bool has_row = l == 0 || d.qkv_bias != 0 || d.qk_norm != 0;
    if (has_row) {
      rope_at.push_back(rope_rows.size());
      rope_rows.resize(rope_rows.size() + d.head_dim);
    }
    if (d.qkv_bias != 0) {
      behind_rope(layer.q_bias, q_dim);
      behind_rope(layer.k_bias, kv_dim);
      behind_rope(layer.v_bias, kv_dim);
    }
    if (d.qk_norm != 0) {
      behind_rope(layer.q_norm, d.head_dim);
      behind_rope(layer.k_norm, d.head_dim);
    }
    layers.push_back(std::move(layer));
  }
  for (size_t& at : rope_at) at += norms.size();
  append(norms, rope_rows);
  final_norm = plain::random_values(d.emb, ++seed);
  append(norms, plain::to_bf16(final_norm));
  chunk_rows = std::min<size_t>(18432, round_up(d.vocab, 512));
  chunks = (d.vocab + chunk_rows - 1) / chunk_rows;
  if (layers_per_buffer > 0) weights.emplace_back();
  for (size_t c = 0; c < chunks; ++c) {
    Phase phase(chunk_rows, d.emb);
    const Values rows = fill(phase, std::min<size_t>(chunk_rows, d.vocab - c * chunk_rows), d.emb,
                             ++seed, [](size_t r) { return r; });
    head.insert(head.end(), rows.begin(), rows.end());
    append(weights.back(), phase.words);
  }
  logits_at = qkv_rows + round_up(d.emb, 512);
  y_size = logits_at + chunks * chunk_rows;
  kv_size = d.layers * 2 * kv_dim * window;
}

Values norm_heads(const Values& heads, const Values& norm) {
  Values result;
  for (auto head = heads.begin(); head != heads.end();
       head += static_cast<std::ptrdiff_t>(norm.size())) {
    const Values one =
        plain::rmsnorm(Values(head, head + static_cast<std::ptrdiff_t>(norm.size())), norm, 1e-6);
    result.insert(result.end(), one.begin(), one.end());
  }
  return result;
}

Values Model::step(Values x, const Values& rope, size_t position) {
  const size_t dim = dims.head_dim, q_dim = dims.q_dim(), kv_dim = dims.kv_dim();
  const size_t shared = dims.heads / dims.kv_heads;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Layer& w = layers[l];
    const Values normed = plain::rmsnorm(x, w.attn_norm, 1e-6);
    Values q = plain::rounded(plain::matmul(normed, w.q, dims.emb));
    Values k = plain::rounded(plain::matmul(normed, w.k, dims.emb));
    Values v = plain::rounded(plain::matmul(normed, w.v, dims.emb));
    if (dims.qkv_bias != 0) {
      q = plain::add(q, w.q_bias);
      k = plain::add(k, w.k_bias);
      v = plain::add(v, w.v_bias);
    }
    if (dims.qk_norm != 0) {
      q = norm_heads(q, w.q_norm);
      k = norm_heads(k, w.k_norm);
    }
    for (size_t h = 0; h < dims.heads; ++h) plain::rotate_head(&q[h * dim], rope.data(), dim);
    for (size_t h = 0; h < dims.kv_heads; ++h) plain::rotate_head(&k[h * dim], rope.data(), dim);
    q = plain::rounded(q);
    k = plain::rounded(k);
    keys[l].insert(keys[l].end(), k.begin(), k.end());
    values[l].insert(values[l].end(), v.begin(), v.end());
    Values attended(q_dim);
    for (size_t h = 0; h < dims.heads; ++h)
      plain::attend(
          &q[h * dim], dim, position + 1,
          [&](size_t p) { return &keys[l][p * kv_dim + h / shared * dim]; },
          [&](size_t p) { return &values[l][p * kv_dim + h / shared * dim]; }, &attended[h * dim]);
    x = plain::add(x, plain::rounded(plain::matmul(attended, w.o, q_dim)));
    const Values normed2 = plain::rmsnorm(x, w.ffn_norm, 1e-6);
    const Values product = plain::swiglu(plain::rounded(plain::matmul(normed2, w.gate, dims.emb)),
                                         plain::rounded(plain::matmul(normed2, w.up, dims.emb)));
    x = plain::add(x, plain::rounded(plain::matmul(product, w.down, dims.hidden)));
  }
  return plain::matmul(plain::rmsnorm(x, final_norm, 1e-6), head, dims.emb);
}

// ---- The device's side

struct FusedRig {
  explicit FusedRig(const Model& model)
      : FusedRig(model, fused_decode_image(model.dims, window(model), largest_buffer(model))) {}
  FusedRig(const Model& model, const Image& image) : xclbin(load_xclbin(image)) {
    device.register_xclbin(xclbin);
    context = xrt::hw_context(device, xclbin.get_uuid());
    kernel = xrt::kernel(context, "MLIR_AIE");
    const auto words = decode_words(model.dims, window(model), 1);
    instructions = xrt::bo(device, words.size() * 4, xrt::bo::flags::cacheable,
                           static_cast<xrt::memory_group>(kernel.group_id(1)));
    x = xrt::ext::bo(device, model.dims.emb * 2);
    for (const Words& buffer : model.weights) weights.push_back(upload(device, buffer));
    norms = upload(device, model.norms);
    y = xrt::ext::bo(device, model.y_size * 2);
    kv = xrt::ext::bo(device, model.kv_size * 2);
    run = xrt::run(kernel);
    run.set_arg(0, 3);
    run.set_arg(1, instructions);
    run.set_arg(2, static_cast<uint32_t>(words.size()));
    const xrt::bo* data[] = {&x, &weights[0], &norms, &y, &kv};
    for (int i = 0; i < 5; ++i) run.set_arg(3 + i, *data[i]);
    for (size_t i = 1; i < weights.size(); ++i) run.set_arg(static_cast<int>(7 + i), weights[i]);
  }

  static uint64_t largest_buffer(const Model& model) {
    uint64_t largest = 0;
    for (const Words& words : model.weights)
      largest = std::max(largest, uint64_t{words.size()} * 2);
    return largest;
  }

  static uint32_t window(const Model& model) { return static_cast<uint32_t>(model.window); }

  void write(xrt::bo& to, const Words& words, size_t at = 0) {
    put(to, words, at);
    to.sync(XCL_BO_SYNC_BO_TO_DEVICE, words.size() * 2, at * 2);
  }
  ert_cmd_state start(const std::vector<uint32_t>& words) {
    put(instructions, words);
    instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    run.start();
    return run.wait(std::chrono::milliseconds(60000));
  }

  xrt::device device{0};
  xrt::xclbin xclbin;
  xrt::hw_context context;
  xrt::kernel kernel;
  xrt::bo instructions, x, norms, y, kv;
  std::vector<xrt::bo> weights;
  xrt::run run;
};

Values rope_row(size_t position, size_t dim) {
  Values row(dim);
  for (size_t i = 0; i < dim / 2; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(10000.0, -2.0 * double(i) / double(dim));
    row[i] = plain::rounded(static_cast<float>(std::cos(angle)));
    row[dim / 2 + i] = plain::rounded(static_cast<float>(std::sin(angle)));
  }
  return row;
}

using FusedDecode = VxrtTest;

// Region by region: K of each group of heads, then V; in a region position after position.
void expect_cache(const Model& model, const Words& kv, size_t positions) {
  const size_t dim = model.dims.head_dim, per_group = model.group_heads;
  const size_t region = model.window * per_group * dim;
  const size_t groups = model.dims.kv_heads / per_group;
  for (size_t l = 0; l < model.layers.size(); ++l)
    for (size_t side = 0; side < 2; ++side)
      for (size_t p = 0; p < positions; ++p)
        for (size_t h = 0; h < model.dims.kv_heads; ++h) {
          const size_t at = ((l * 2 + side) * groups + h / per_group) * region +
                            (p * per_group + h % per_group) * dim;
          const Values& expected = side == 0 ? model.keys[l] : model.values[l];
          for (size_t i = 0; i < dim; ++i)
            ASSERT_NEAR(bf16_to_f32(kv[at + i]), expected[(p * model.dims.kv_heads + h) * dim + i],
                        0.1f)
                << "layer " << l << " side " << side << " position " << p << " head " << h;
        }
}

void expect_decodes(Model model, size_t tokens) {
  FusedRig rig(model);
  for (size_t position = 0; position < tokens; ++position) {
    const Values x = plain::random_values(model.dims.emb, 500 + static_cast<uint32_t>(position));
    const Values rope = rope_row(position, model.dims.head_dim);
    rig.write(rig.x, plain::to_bf16(x));
    for (const size_t at : model.rope_at) rig.write(rig.norms, plain::to_bf16(rope), at);
    const auto live = static_cast<uint32_t>(position + 1);
    ASSERT_EQ(rig.start(decode_words(model.dims, rig.window(model), live)), ERT_CMD_STATE_COMPLETED)
        << counters().last_error;
    const Values expected = model.step(x, rope, position);
    const Values y = plain::to_f32(download(rig.y));
    const auto logits = y.begin() + static_cast<std::ptrdiff_t>(model.logits_at);
    plain::expect_close(Values(logits, logits + model.dims.vocab), expected, 0.03f, "logits");
    EXPECT_NE(download(rig.x), plain::to_bf16(x));  // overwritten with the last layer's output
  }
  expect_cache(model, download(rig.kv), tokens);
}

// Nothing padded but the last chunk of the head; two groups of KV heads.
TEST_F(FusedDecode, WholePhases) {
  expect_decodes(Model({2, 512, 16, 8, 32, 1024, 18500, 64}, 64, 4), 4);
}

// q, k and v, the FFN and the columns padded; one group.
TEST_F(FusedDecode, PaddedPhases) {
  expect_decodes(Model({3, 320, 6, 2, 32, 768, 1000, 64}, 128, 2), 5);
}

// A feed-forward of an odd number of packets, four KV heads in two groups.
TEST_F(FusedDecode, BiasesLieBehindTheRotationOfTheirLayer) {
  expect_decodes(Model({3, 256, 8, 4, 32, 512, 700, 64, 1, 0}, 64, 2), 4);
}

TEST_F(FusedDecode, HeadNormsLieBehindTheRotationOfTheirLayer) {
  expect_decodes(Model({3, 256, 8, 4, 64, 1024, 700, 64, 0, 1}, 64, 2), 4);
}

// Two layers to a buffer, one in the last, and one for the head.
TEST_F(FusedDecode, WeightsInSeveralBuffers) {
  const Model model({3, 256, 8, 4, 32, 512, 700, 64}, 64, 2, 2);
  ASSERT_EQ(model.weights.size(), 3u);
  expect_decodes(model, 3);
}

TEST_F(FusedDecode, ArgumentsOf1b) {
  const Image image = fused_decode_image(kLlama32_1b, 2048);
  const Instance& instance = image.instances[0];
  EXPECT_EQ(image.form, ImageForm::xclbin);
  ASSERT_EQ(instance.arguments.size(), 5u);
  const uint64_t bytes[] = {4096, 773'324'800, 135'296, 268'288, 67'108'864};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(instance.arguments[i].bytes, bytes[i]) << i;
  EXPECT_EQ(instance.counted_launches(), 23u);
  // Where argument `arg` of a launch lies; of several with one role the `ordinal`-th.
  const auto slot = [&](Role role, uint16_t layer, size_t arg,
                        size_t ordinal = 0) -> const SlotPlace& {
    for (const Launch& launch : instance.program.launches)
      if (launch.role == role && launch.layer == layer && ordinal-- == 0)
        return instance.places[launch.args[arg].slot];
    ADD_FAILURE() << name(role) << " of layer " << layer;
    return instance.places[0];
  };
  EXPECT_EQ(slot(Role::k, 0, 1).q4nx, (Q4nxPlace{3072, 2048, 2048, 512, 512}));
  EXPECT_EQ(slot(Role::o, 1, 1).pattern.offset, 19'005'440u + 1'966'080u);
  EXPECT_EQ(slot(Role::gate, 0, 1).pattern.offset, 3'276'800u);
  EXPECT_EQ(slot(Role::gate, 0, 1).q4nx, (Q4nxPlace{16384, 2048, 512, 512, 1024}));
  EXPECT_EQ(slot(Role::down, 15, 1).pattern.offset, 15 * 19'005'440u + 13'762'560u);
  EXPECT_EQ(slot(Role::lm_head, kNoLayer, 1, 6).pattern.offset, 304'087'040u + 6 * 11'796'480u);
  EXPECT_EQ(slot(Role::lm_head, kNoLayer, 2, 1).pattern.offset, 5120u + 18432u);
  EXPECT_EQ(slot(Role::q_rope, 3, 1).pattern.offset, 65'536u);
  EXPECT_EQ(slot(Role::final_norm, kNoLayer, 1).pattern.offset, 65'600u);
  const Pattern v = {(2048 * 1024) + 2 * 2048 * 256,
                     {{2, 2048 * 256}, {4, 64}, {2048, 256}, {64, 1}}};
  EXPECT_EQ(slot(Role::attention, 1, 2).pattern, v);
}

// What MLIR-AIR builds has tiles that fit, places inside the arguments, and words for every L.
TEST_F(FusedDecode, ImagesOfEveryBuild) {
  for (const Q4nxBuild& build : q4nx_builds()) {
    SCOPED_TRACE(build.model);
    AirDims dims = build.dims;
    dims.seq = 2048;
    const Instance instance = fused_decode_image(dims, 2048).instances[0];
    const AirProgram abi = fused_decode_program(dims, 2048);
    ASSERT_EQ(instance.arguments.size() + 3, abi.arguments.size());
    for (size_t i = 0; i < instance.arguments.size(); ++i)
      EXPECT_EQ(instance.arguments[i].bytes, abi.arguments[i + 3].bytes()) << i;
    // Every element of the weights is read by some launch.
    std::map<int32_t, uint64_t> reached;
    for (size_t i = 0; i < instance.places.size(); ++i) {
      uint64_t& bytes = reached[instance.places[i].argument];
      bytes = std::max(bytes, reach(instance.program.slots[i], instance.places[i]));
    }
    for (const Q4nxWeightBuffer& buffer : q4nx_layout(dims, 2048).weight_buffers)
      EXPECT_EQ(reached[static_cast<int32_t>(buffer.argument) - 3], buffer.elements * 2);
    const auto base = decode_words(dims, 64, 64), less = decode_words(dims, 64, 63);
    std::map<uint32_t, size_t> slopes;
    for (size_t i = 0; i < base.size(); ++i)
      if (base[i] != less[i]) ++slopes[base[i] - less[i]];
    const uint32_t position = dims.kv_heads / 2 * dims.head_dim * 2;  // in one of two groups
    EXPECT_EQ(slopes,
              (std::map<uint32_t, size_t>{{1, dims.layers * 8}, {position, dims.layers * 2}}));
  }
}

// L in each layer's core words, the append addresses, and nothing else.
TEST(FusedDecodeWords, DependOnLAlongStraightLines) {
  const auto base = decode_words(kLlama32_1b, 2048, 2048),
             less = decode_words(kLlama32_1b, 2048, 2047);
  ASSERT_EQ(base.size(), less.size());
  EXPECT_GT(base.size(), 10'000u);
  std::map<uint32_t, size_t> slopes;
  size_t first = base.size(), last = 0;
  std::vector<uint32_t> addresses;
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i] == less[i]) continue;
    ++slopes[base[i] - less[i]];
    first = std::min(first, i);
    last = i;
    if (base[i] - less[i] == 1)
      EXPECT_EQ(base[i], 2048u);
    else
      addresses.push_back(base[i]);
  }
  EXPECT_EQ(slopes, (std::map<uint32_t, size_t>{{1, 16 * 8}, {512, 16 * 2}}));
  EXPECT_GT(first, 2u);
  EXPECT_LT(last - first, base.size() - 1000);             // a ranged sync is worth it
  EXPECT_EQ(addresses[0], 2047u * 512);                    // K of the first layer
  EXPECT_EQ(addresses[1], 2047u * 512 + 2 * 2048 * 512u);  // V
  EXPECT_EQ(addresses[2], 2047u * 512 + 4 * 2048 * 512u);  // K of the next layer
  for (uint32_t live : {1u, 77u}) {
    const auto words = decode_words(kLlama32_1b, 2048, live);
    for (size_t i = 0; i < words.size(); ++i)
      ASSERT_EQ(words[i], base[i] - (2048 - live) * (base[i] - less[i])) << i;
  }
}

TEST_F(FusedDecode, WordsThatDoNotAgreeEndAsError) {
  const Model model({2, 256, 4, 2, 64, 512, 512, 64}, 64, 2);
  FusedRig rig(model);
  const auto good = decode_words(model.dims, 64, 10), next = decode_words(model.dims, 64, 11);
  std::vector<size_t> dependent;
  for (size_t i = 0; i < good.size(); ++i)
    if (good[i] != next[i]) dependent.push_back(i);
  ASSERT_EQ(dependent.size(), 2u * (8 + 2));
  const auto ends_as_error = [&](const std::vector<uint32_t>& words, const char* says) {
    EXPECT_EQ(rig.start(words), ERT_CMD_STATE_ERROR) << says;
    EXPECT_NE(counters().last_error.find(says), std::string::npos) << counters().last_error;
  };
  for (size_t i : dependent) {  // every one of them matters
    auto words = good;
    words[i] = next[i];
    ends_as_error(words, "instruction word");
  }
  for (size_t i : {size_t{2}, size_t{63}, dependent.front() - 1, dependent.back() + 1,
                   good.size() - 1}) {  // and so do those that never change
    auto words = good;
    words[i] ^= 0x100;
    ends_as_error(words, "instruction word");
  }
  const auto with_live = [&](uint32_t live) {
    auto words = good;
    for (size_t i : dependent) words[i] += (live - 10) * (next[i] - good[i]);
    return words;
  };
  EXPECT_EQ(with_live(11), next);
  ends_as_error(with_live(0), "not in 1..64");
  ends_as_error(with_live(65), "not in 1..64");
  EXPECT_EQ(rig.start(with_live(64)), ERT_CMD_STATE_COMPLETED);
  ends_as_error(std::vector<uint32_t>(good.size()), "not an image's");
  rig.run.set_arg(2, static_cast<uint32_t>(good.size() - 1));
  ends_as_error(good, "instead of");
}

// Another window has other regions and another stream, though the model is the same.
TEST_F(FusedDecode, WordsOfAnotherWindowEndAsError) {
  const Model model({2, 256, 4, 2, 64, 512, 512, 64}, 64, 2);
  FusedRig rig(model);
  auto words = decode_words(model.dims, 128, 3);
  words.resize(decode_words(model.dims, 64, 3).size());
  EXPECT_EQ(rig.start(words), ERT_CMD_STATE_ERROR);
  EXPECT_NE(counters().last_error.find("window of 128"), std::string::npos);
}

TEST_F(FusedDecode, OnlySyncedWordsCount) {
  const Model model({2, 256, 4, 2, 64, 512, 512, 64}, 64, 2);
  FusedRig rig(model);
  const auto first = decode_words(model.dims, 64, 1), second = decode_words(model.dims, 64, 2);
  EXPECT_EQ(rig.start(first), ERT_CMD_STATE_COMPLETED);
  size_t lo = first.size(), hi = 0;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i] != second[i]) {
      lo = std::min(lo, i);
      hi = i + 1;
    }
  const auto sync = [&](size_t begin, size_t end) {
    put(rig.instructions, std::vector<uint32_t>(second.begin() + lo, second.begin() + hi), lo);
    rig.instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE, (end - begin) * 4, begin * 4);
    rig.run.start();
    return rig.run.wait(std::chrono::milliseconds(60000));
  };
  const size_t last_line = (hi - 1) / 16 * 16;  // the least that a sync moves
  ASSERT_GT(last_line, lo);
  EXPECT_EQ(sync(lo, last_line), ERT_CMD_STATE_ERROR);  // the last words stayed behind
  EXPECT_EQ(sync(last_line, hi), ERT_CMD_STATE_COMPLETED);
}

TEST_F(FusedDecode, EpsIsAParameterWithTheDevicesDefault) {
  const AirDims dims = {2, 256, 4, 2, 64, 512, 512, 64};
  const auto eps = [](const Image& image) {
    return image.instances[0].program.launches[0].shape.eps;
  };
  EXPECT_EQ(eps(fused_decode_image(dims, 64)), 1e-6f);
  EXPECT_EQ(eps(fused_decode_image(dims, 64, kQ4nxBufferBytes, 1e-5f)), 1e-5f);
}

// ---- As one ELF for every length

struct ElfRig {
  explicit ElfRig(const Model& model, bool adds_up = false)
      : image(fused_decode_elf_image(model.dims, static_cast<uint32_t>(model.window),
                                     FusedRig::largest_buffer(model), adds_up)),
        elf(load_elf(image)),
        context(device, elf),
        kernel(context, "main:q4nx_decode"),
        x(xrt::ext::bo(device, model.dims.emb * 2)),
        norms(upload(device, model.norms)),
        y(xrt::ext::bo(device, model.y_size * 2)),
        kv(xrt::ext::bo(device, model.kv_size * 2)),
        run(kernel) {
    for (const Words& buffer : model.weights) weights.push_back(upload(device, buffer));
    run.set_arg(0, x);
    run.set_arg(1, weights[0]);
    run.set_arg(2, norms);
    run.set_arg(3, y);
    run.set_arg(4, kv);
    for (size_t i = 1; i < weights.size(); ++i) run.set_arg(static_cast<int>(4 + i), weights[i]);
  }

  const DecodeParameters& parameters() const { return image.instances[0].scratchpad->parameters; }

  void write(xrt::bo& to, const Words& words, size_t at = 0) {
    put(to, words, at);
    to.sync(XCL_BO_SYNC_BO_TO_DEVICE, words.size() * 2, at * 2);
  }
  ert_cmd_state start(uint32_t live, uint32_t append, uint32_t mask) {
    xrt::bo words = run.get_ctrl_scratchpad_bo();
    words.map<uint32_t*>()[parameters().append] = append;
    words.map<uint32_t*>()[parameters().mask] = mask;
    words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    run.set_arg(static_cast<int>(parameters().scalar), live);
    run.start();
    return run.wait(std::chrono::milliseconds(60000));
  }
  ert_cmd_state start(uint32_t live) {
    return start(live, parameters().append_word(live), DecodeParameters::mask_word(live));
  }

  xrt::device device{0};
  const Image image;
  xrt::elf elf;
  xrt::hw_context context;
  xrt::ext::kernel kernel;
  xrt::bo x, norms, y, kv;
  std::vector<xrt::bo> weights;
  xrt::run run;
};

Model small_model() {
  return Model({2, 256, 4, 2, 64, 512, 512, 64}, 64, 2);
}

void decode_with_elf(Model model, size_t tokens, bool adds_up) {
  ElfRig rig(model, adds_up);
  uint32_t before = 0;
  for (size_t position = 0; position < tokens; ++position) {
    const Values x = plain::random_values(model.dims.emb, 500 + static_cast<uint32_t>(position));
    const Values rope = rope_row(position, model.dims.head_dim);
    rig.write(rig.x, plain::to_bf16(x));
    for (const size_t at : model.rope_at) rig.write(rig.norms, plain::to_bf16(rope), at);
    const auto live = static_cast<uint32_t>(position + 1);
    const uint32_t mask = live << 2;
    ASSERT_EQ(rig.start(live, (live - 1) * rig.parameters().append_word(2),
                        adds_up ? mask - before : mask),
              ERT_CMD_STATE_COMPLETED)
        << counters().last_error;
    before = mask;
    const Values expected = model.step(x, rope, position);
    const Values y = plain::to_f32(download(rig.y));
    const auto logits = y.begin() + static_cast<std::ptrdiff_t>(model.logits_at);
    plain::expect_close(Values(logits, logits + model.dims.vocab), expected, 0.03f, "logits");
  }
  expect_cache(model, download(rig.kv), tokens);
}

TEST_F(FusedDecode, OneElfServesEveryLength) {
  decode_with_elf(Model({3, 320, 6, 2, 32, 768, 1000, 64}, 128, 2), 5, false);
}

TEST_F(FusedDecode, CoresThatAddUpTakeDifferences) {
  decode_with_elf(small_model(), 4, true);
}

// Five buffers of weights: the length is argument 9.
TEST_F(FusedDecode, TheLengthIsBehindAllBuffersOfWeights) {
  const Model model({3, 256, 8, 4, 32, 512, 700, 64}, 64, 2, 1);
  ASSERT_EQ(model.weights.size(), 4u);
  EXPECT_EQ(ElfRig(model).parameters().scalar, 8u);
  decode_with_elf(model, 2, false);
}

TEST_F(FusedDecode, WordsThatFirmwareWouldFollowAstrayEndAsError) {
  const Model model = small_model();
  ElfRig rig(model);
  const auto ends_as_error = [&](uint32_t append, uint32_t mask, const char* says) {
    EXPECT_EQ(rig.start(3, append, mask), ERT_CMD_STATE_ERROR) << says;
    EXPECT_NE(counters().last_error.find(says), std::string::npos) << counters().last_error;
  };
  EXPECT_EQ(rig.start(3), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  ends_as_error(2 * 128, 2 << 2, "for L = 2 that is 128");
  ends_as_error(2 * 128, 0, "L = 0, not in 1..64");
  ends_as_error(64 * 128, 65 << 2, "L = 65, not in 1..64");
  ends_as_error(2 * 128, 3, "L = 0");             // not shifted
  ends_as_error(2 * 256, 3 << 2, "element 512");  // another model's width
  EXPECT_EQ(rig.start(64), ERT_CMD_STATE_COMPLETED);
}

TEST_F(FusedDecode, OnlyASyncedScratchpadCounts) {
  const Model model = small_model();
  ElfRig rig(model);
  EXPECT_EQ(rig.start(1), ERT_CMD_STATE_COMPLETED);
  xrt::bo words = rig.run.get_ctrl_scratchpad_bo();
  words.map<uint32_t*>()[1] = 99 << 2;
  rig.run.start();
  EXPECT_EQ(rig.run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_COMPLETED);
  words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  rig.run.start();
  EXPECT_EQ(rig.run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_ERROR);
}

// Words that add up are applied by every run, also by one that changes nothing.
TEST_F(FusedDecode, AWordThatAddsUpIsAppliedAgain) {
  const Model model = small_model();
  ElfRig rig(model, true);
  EXPECT_EQ(rig.start(1), ERT_CMD_STATE_COMPLETED);
  rig.run.start();
  EXPECT_EQ(rig.run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_ERROR);
  EXPECT_NE(counters().last_error.find("for L = 2"), std::string::npos) << counters().last_error;
}

TEST_F(FusedDecode, ALengthThatWasNotGivenEndsAsError) {
  const Model model = small_model();
  ElfRig rig(model);
  xrt::bo words = rig.run.get_ctrl_scratchpad_bo();
  EXPECT_EQ(words.map<uint32_t*>()[0], 0u);
  EXPECT_EQ(words.map<uint32_t*>()[1], 0u);
  words.map<uint32_t*>()[1] = 1 << 2;
  words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  rig.run.start();
  EXPECT_EQ(rig.run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_ERROR);
  EXPECT_NE(counters().last_error.find("argument 5 was given no length"), std::string::npos);
}

TEST_F(FusedDecode, RunsWithoutAScratchpadHaveNone) {
  Rig rig;
  EXPECT_THROW(rig.make_run().get_ctrl_scratchpad_bo(), std::system_error);
}

TEST_F(FusedDecode, ScratchpadsThatNoFirmwareHasAreNoImages) {
  Image image = fused_decode_elf_image({2, 256, 4, 2, 64, 512, 512, 64}, 64);
  image.instances[0].scratchpad->parameters.words = 33;
  EXPECT_ERROR(serialise(image), "the firmware's state table has 32");
  image.instances[0].scratchpad->parameters.words = 2;
  image.instances[0].scratchpad->parameters.mask = 2;
  EXPECT_ERROR(serialise(image), "words 0 and 2 of a scratchpad of 2");
  image.instances[0].scratchpad->parameters.mask = 1;
  EXPECT_EQ(parse_image(serialise(image), "").instances[0].scratchpad,
            image.instances[0].scratchpad);
}

// Eight positions of values have one exponent: what lies behind the last one that counts takes bits
// away from those that do.
TEST_F(FusedDecode, ARowBehindTheLastOneChangesTheResultWhereItIsNotZero) {
  Hardware hardware;
  hardware.numerics = cpu::Numerics::bfp16;
  reset(hardware);
  const Model model = small_model();
  const auto logits_with = [&](size_t row, uint16_t value) {
    ElfRig rig(model);
    const size_t position = model.group_heads * model.dims.head_dim, region = 64 * position;
    Words cache(model.kv_size);
    for (size_t side = 0; side < 2 * model.dims.layers; ++side)
      std::fill_n(cache.begin() + static_cast<std::ptrdiff_t>(side * region + row * position),
                  position, value);
    rig.write(rig.kv, cache);
    rig.write(rig.x, plain::to_bf16(plain::random_values(model.dims.emb, 500)));
    for (const size_t at : model.rope_at)
      rig.write(rig.norms, plain::to_bf16(rope_row(0, model.dims.head_dim)), at);
    EXPECT_EQ(rig.start(1), ERT_CMD_STATE_COMPLETED) << counters().last_error;
    return download(rig.y);
  };
  const Words clean = logits_with(1, 0);
  EXPECT_NE(logits_with(1, f32_to_bf16(300)), clean);
  EXPECT_NE(logits_with(7, f32_to_bf16(300)), clean);
  EXPECT_EQ(logits_with(8, f32_to_bf16(300)), clean);  // in the next block
}

}  // namespace
}  // namespace tyto::vxrt
