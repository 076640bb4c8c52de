// Multiplications of random shape on one device, through ggml's public headers, against plain loops
// over the same weights: strided rows, odd numbers of tokens, none at all, NaN and infinity among
// the activations. Prints one JSON object; the exit code says whether the program worked, not
// whether the results are right.
//
// Usage: mul_mat_probe DEVICE COUNT SEED
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using Context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using Buffer = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;
using Backend = std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)>;

constexpr std::array kTypes = {GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                               GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};
constexpr float kPoisons[] = {NAN, INFINITY, -INFINITY};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "mul_mat_probe: %s\n", what.c_str());
  std::exit(1);
}

struct Shape {
  ggml_type type;
  int64_t k, m, n;
  int64_t gap;  // floats between the rows of activations
  float scale;  // the activations'
};

Context new_context() {
  return {ggml_init({16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}),
          ggml_free};
}

// A weight as a model has it: written once, in a buffer of its own.
class Product {
 public:
  Product(ggml_backend_t backend, const Shape& shape, const std::vector<uint8_t>& weights)
      : shape_(shape), backend_(backend) {
    weight_ = ggml_new_tensor_2d(weight_context_.get(), shape.type, shape.k, shape.m);
    ggml_set_name(weight_, "blk.0.probe.weight");
    weight_buffer_.reset(ggml_backend_alloc_ctx_tensors(weight_context_.get(), backend));
    if (!weight_buffer_) fail("no memory for weights");
    ggml_backend_buffer_set_usage(weight_buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_set(weight_, weights.data(), 0, weights.size());

    ggml_tensor* memory =
        ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, std::max<int64_t>(1, stride() * shape.n));
    rows_ = shape.gap == 0 && shape.n > 0
                ? ggml_reshape_2d(context_.get(), memory, shape.k, shape.n)
                : ggml_view_2d(context_.get(), memory, shape.k, shape.n,
                               size_t(stride()) * sizeof(float), 0);
    memory_ = memory;
    result_ = ggml_mul_mat(context_.get(), weight_, rows_);
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, result_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend));
    if (!buffer_) fail("no memory for activations");
  }

  bool is_supported() const { return ggml_backend_supports_op(backend_, result_); }

  std::vector<float> compute(const std::vector<float>& rows) {
    const std::vector<float> filler(size_t(ggml_nelements(memory_)), 12345.0f);
    ggml_backend_tensor_set(memory_, filler.data(), 0, filler.size() * sizeof(float));
    for (int64_t i = 0; i < shape_.n; ++i)
      ggml_backend_tensor_set(memory_, rows.data() + i * shape_.k,
                              size_t(i * stride()) * sizeof(float),
                              size_t(shape_.k) * sizeof(float));
    if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS)
      fail("ggml_backend_graph_compute failed");
    std::vector<float> result(size_t(shape_.m * shape_.n));
    if (!result.empty())
      ggml_backend_tensor_get(result_, result.data(), 0, result.size() * sizeof(float));
    return result;
  }

 private:
  int64_t stride() const { return shape_.k + shape_.gap; }

  Shape shape_;
  ggml_backend_t backend_;
  Context weight_context_ = new_context(), context_ = new_context();
  Buffer weight_buffer_{nullptr, ggml_backend_buffer_free},
      buffer_{nullptr, ggml_backend_buffer_free};
  ggml_tensor *weight_ = nullptr, *memory_ = nullptr, *rows_ = nullptr, *result_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
};

struct Case {
  Shape shape;
  std::vector<uint8_t> weights;  // as the type has them
  std::vector<float> values;     // what they mean
  std::vector<float> rows;
};

Shape random_shape(std::mt19937& random) {
  const auto pick = [&](auto low, auto high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  constexpr int64_t tokens[] = {1, 1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 127, 300};
  constexpr int64_t gaps[] = {0, 0, 1, 5, 32};
  constexpr float scales[] = {1e-6f, 0.1f, 1.0f, 1.0f, 1000.0f};
  Shape shape{};
  shape.type = kTypes[size_t(pick(0, int64_t(kTypes.size()) - 1))];
  const int64_t block = ggml_blck_size(shape.type);
  shape.k = block * pick(1, std::max<int64_t>(1, 2048 / block));
  if (block == 1 && pick(0, 2) != 0)
    shape.k = std::max<int64_t>(32, shape.k / 32 * 32);  // odd lengths are declined
  shape.m = pick(1, 150);
  shape.n = tokens[pick(0, std::size(tokens) - 1)];
  shape.gap = gaps[pick(0, std::size(gaps) - 1)];
  shape.scale = scales[pick(0, std::size(scales) - 1)];
  return shape;
}

Case make_case(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> source(size_t(shape.k * shape.m));
  for (float& value : source) value = 0.05f * normal(random);
  Case result{shape,
              std::vector<uint8_t>(ggml_row_size(shape.type, shape.k) * size_t(shape.m)),
              source,
              {}};
  ggml_quantize_chunk(shape.type, source.data(), result.weights.data(), 0, shape.m, shape.k,
                      nullptr);
  ggml_get_type_traits(shape.type)
      ->to_float(result.weights.data(), result.values.data(), shape.k * shape.m);
  for (int64_t i = 0; i < shape.k * shape.n; ++i)
    result.rows.push_back(shape.scale * normal(random));
  return result;
}

// Squared error by the squared size of the expected values, the measure of ggml's own test; of a
// few values only, by the size that such rows have on average, which chance cannot make small.
double error_of(const Case& c, const std::vector<float>& actual) {
  const int64_t length = c.shape.k;
  double error = 0, size = 0, typical = 0;
  for (int64_t n = 0; n < c.shape.n; ++n) {
    for (int64_t m = 0; m < c.shape.m; ++m) {
      const float *weight = &c.values[size_t(m * length)], *row = &c.rows[size_t(n * length)];
      double expected = 0, squares = 0;
      for (int64_t k = 0; k < length; ++k) {
        const double product = double(weight[k]) * double(row[k]);
        expected += product;
        squares += product * product;
      }
      const double difference = double(actual[size_t(n * c.shape.m + m)]) - expected;
      error += difference * difference;
      size += expected * expected;
      typical += squares;
    }
  }
  const bool are_few = actual.size() < 64;
  return std::isfinite(error) ? error / (are_few ? std::max(size, typical) : size)
                              : std::numeric_limits<double>::max();
}

// One value of one row is not finite. Eight bits cannot say that, so the result must be what the
// CPU backend makes of it, and the other rows must be right.
std::string judge_poison(Product& product, Product& on_cpu, const Case& c, std::mt19937& random) {
  std::vector<float> rows = c.rows;
  const auto row = std::uniform_int_distribution<int64_t>(0, c.shape.n - 1)(random);
  const auto column = std::uniform_int_distribution<int64_t>(0, c.shape.k - 1)(random);
  rows[size_t(row * c.shape.k + column)] = kPoisons[random() % std::size(kPoisons)];
  const std::vector<float> actual = product.compute(rows), expected = on_cpu.compute(rows);
  double error = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isfinite(actual[i]) != std::isfinite(expected[i]))
      return "finite where the CPU backend is not, or not where it is";
    if (!std::isfinite(actual[i])) continue;
    error += std::pow(double(actual[i]) - double(expected[i]), 2);
    size += std::pow(double(expected[i]), 2);
  }
  return error > 5e-4 * size ? "far from the CPU backend" : "";
}

std::string describe(const Shape& shape) {
  return std::string(ggml_type_name(shape.type)) + " k=" + std::to_string(shape.k) +
         " m=" + std::to_string(shape.m) + " n=" + std::to_string(shape.n) +
         " gap=" + std::to_string(shape.gap) + " scale=" + std::to_string(shape.scale);
}

struct Tally {
  std::map<std::string, int> ran, declined;
  double worst_error = 0;
  std::string worst_shape;
  int repeated = 0, repeated_differently = 0, poisoned = 0;
  std::vector<std::string> wrong_poison;
};

void run_case(ggml_backend_t backend, ggml_backend_t cpu, std::mt19937& random, Tally& tally) {
  const Case c = make_case(random_shape(random), random);
  Product product(backend, c.shape, c.weights);
  const std::string type = ggml_type_name(c.shape.type);
  if (!product.is_supported()) {
    ++tally.declined[type];
    return;
  }
  ++tally.ran[type];
  const std::vector<float> result = product.compute(c.rows);
  const double error = error_of(c, result);
  if (error > tally.worst_error) tally.worst_error = error, tally.worst_shape = describe(c.shape);
  ++tally.repeated;
  tally.repeated_differently += product.compute(c.rows) != result;
  if (random() % 4 != 0) return;
  ++tally.poisoned;
  Product on_cpu(cpu, c.shape, c.weights);
  const std::string problem = judge_poison(product, on_cpu, c, random);
  if (!problem.empty()) tally.wrong_poison.push_back(describe(c.shape) + ": " + problem);
}

// Nothing to compute, and no failure: claimed or not, the graph runs.
bool empty_product_runs(ggml_backend_t backend, std::mt19937& random) {
  const Case c = make_case({GGML_TYPE_Q8_0, 256, 64, 0, 0, 1.0f}, random);
  Product product(backend, c.shape, c.weights);
  return !product.is_supported() || product.compute(c.rows).empty();
}

void print_counts(const char* name, const std::map<std::string, int>& counts) {
  std::printf("\"%s\": {", name);
  const char* separator = "";
  for (const auto& [type, count] : counts)
    std::printf("%s\"%s\": %d", std::exchange(separator, ", "), type.c_str(), count);
  std::printf("}, ");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: mul_mat_probe DEVICE COUNT SEED");
  ggml_backend_load_all();
  const ggml_backend_dev_t device = ggml_backend_dev_by_name(argv[1]);
  if (device == nullptr) fail(std::string("no device ") + argv[1]);
  const Backend backend(ggml_backend_dev_init(device, nullptr), ggml_backend_free);
  if (!backend) fail("the device does not start");
  const Backend cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr),
                    ggml_backend_free);
  std::mt19937 random(static_cast<uint32_t>(std::atoi(argv[3])));
  Tally tally;
  const int count = std::atoi(argv[2]);
  for (int i = 0; i < count; ++i) run_case(backend.get(), cpu.get(), random, tally);
  std::printf("{");
  print_counts("ran", tally.ran);
  print_counts("declined", tally.declined);
  std::printf(
      "\"worst_error\": %.9g, \"worst_shape\": \"%s\", \"repeated\": %d, \"repeated_differently\": "
      "%d, ",
      tally.worst_error, tally.worst_shape.c_str(), tally.repeated, tally.repeated_differently);
  std::printf("\"poisoned\": %d, \"wrong_poison\": [", tally.poisoned);
  for (size_t i = 0; i < tally.wrong_poison.size(); ++i)
    std::printf("%s\"%s\"", i == 0 ? "" : ", ", tally.wrong_poison[i].c_str());
  std::printf("], \"empty_runs\": %s}\n",
              empty_product_runs(backend.get(), random) ? "true" : "false");
  return 0;
}
