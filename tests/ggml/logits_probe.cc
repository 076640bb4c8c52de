// Two devices beside each other, through the stock libllama: greedy text of the first, and at each
// of its tokens what the second would have said. Prints one JSON object. llama.cpp's own programs
// show no logits.
//
// Usage: logits_probe MODEL.gguf DEVICE|none DEVICE|none N_TOKENS < PROMPT
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "logits_probe: %s\n", what.c_str());
  std::exit(1);
}

struct Engine {
  std::unique_ptr<llama_model, decltype(&llama_model_free)> model{nullptr, llama_model_free};
  std::unique_ptr<llama_context, decltype(&llama_free)> context{nullptr, llama_free};
};

Engine open_engine(const char* path, const std::string& device) {
  std::vector<ggml_backend_dev_t> devices;
  if (device != "none") {
    devices.push_back(ggml_backend_dev_by_name(device.c_str()));
    if (devices[0] == nullptr) fail("no device " + device);
  }
  devices.push_back(nullptr);
  llama_model_params model_params = llama_model_default_params();
  model_params.devices = devices.data();
  model_params.n_gpu_layers = device == "none" ? 0 : 99;
  Engine engine;
  engine.model.reset(llama_model_load_from_file(path, model_params));
  if (!engine.model) fail(std::string("cannot load ") + path + " on " + device);
  llama_context_params context_params = llama_context_default_params();
  context_params.n_ctx = 512;
  context_params.n_batch = 512;
  context_params.n_threads = context_params.n_threads_batch = 1;
  engine.context.reset(llama_init_from_model(engine.model.get(), context_params));
  if (!engine.context) fail("no context on " + device);
  return engine;
}

std::span<const float> logits_after(const Engine& engine, std::vector<llama_token> tokens) {
  if (llama_decode(engine.context.get(), llama_batch_get_one(tokens.data(), int(tokens.size()))) !=
      0)
    fail("llama_decode failed");
  return {llama_get_logits_ith(engine.context.get(), -1),
          size_t(llama_vocab_n_tokens(llama_model_get_vocab(engine.model.get())))};
}

std::vector<llama_token> tokenize(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> tokens(text.size() + 2);
  const int count = llama_tokenize(vocab, text.data(), int(text.size()), tokens.data(),
                                   int(tokens.size()), true, true);
  if (count <= 0) fail("the prompt has no tokens");
  tokens.resize(size_t(count));
  return tokens;
}

// As hexadecimal digits: a piece may be half a character.
std::string piece_of(const llama_vocab* vocab, llama_token token) {
  char bytes[256];
  const int length = llama_token_to_piece(vocab, token, bytes, sizeof bytes, 0, false);
  std::string hex;
  for (int i = 0; i < length; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(bytes[i]));
    hex += digits;
  }
  return hex;
}

size_t largest(std::span<const float> values) {
  return size_t(std::max_element(values.begin(), values.end()) - values.begin());
}

double margin_of(std::span<const float> values) {
  std::vector<float> sorted(values.begin(), values.end());
  std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
  return double(sorted[0]) - double(sorted[1]);
}

std::vector<double> log_probabilities(std::span<const float> values) {
  const double top = values[largest(values)];
  double sum = 0;
  for (const float value : values) sum += std::exp(value - top);
  std::vector<double> result;
  for (const float value : values) result.push_back(value - top - std::log(sum));
  return result;
}

double kl_divergence(std::span<const float> expected, std::span<const float> actual) {
  const std::vector<double> p = log_probabilities(expected), q = log_probabilities(actual);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) fail("usage: logits_probe MODEL.gguf DEVICE|none DEVICE|none N_TOKENS < PROMPT");
  ggml_backend_load_all();
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT) std::fputs(text, stderr);
      },
      nullptr);
  const Engine first = open_engine(argv[1], argv[2]), second = open_engine(argv[1], argv[3]);
  const llama_vocab* vocab = llama_model_get_vocab(first.model.get());
  const std::string prompt(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<llama_token> next = tokenize(vocab, prompt);
  std::printf("{\"prompt_tokens\": %zu, \"steps\": [", next.size());
  const int count = std::atoi(argv[4]);
  for (int i = 0; i < count; ++i) {
    const std::span<const float> expected = logits_after(first, next),
                                 actual = logits_after(second, next);
    const auto token = llama_token(largest(expected));
    std::printf(
        "%s\n {\"token\": %d, \"other\": %zu, \"margin\": %.6f, \"kl\": %.9f, \"piece\": \"%s\"}",
        i == 0 ? "" : ",", token, largest(actual), margin_of(expected),
        kl_divergence(expected, actual), piece_of(vocab, token).c_str());
    if (llama_vocab_is_eog(vocab, token)) break;
    next = {token};
  }
  std::printf("]}\n");
  return 0;
}
