// What the model tests share: a scratch folder, errors as text, GGUF bytes by hand, a small model.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/families.h"
#include "tensor/dtype.h"
#include "tensor/quant.h"

namespace tyto::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tyto-model-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The message of the Error `run` throws, with its hint after a bar; "no error" when it does not.
template <typename Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.hint.empty() ? error.what() : std::string(error.what()) + " | " + error.hint;
  }
  return "no error";
}

#define EXPECT_MESSAGE(run, fragment) \
  EXPECT_PRED_FORMAT2(::tyto::test::contains, error_of(run), fragment)

inline testing::AssertionResult contains(const char*, const char*, const std::string& text,
                                         const std::string& fragment) {
  if (text.find(fragment) != std::string::npos && text.find('\n') == std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "\"" << text << "\" has no \"" << fragment << "\" in one line";
}

// Little-endian GGUF, written number by number so that each of them can be wrong.
class GgufBytes {
 public:
  explicit GgufBytes(uint64_t tensors, uint64_t metadata, uint32_t version = 3) {
    text_ = "GGUF";
    number(version).number(tensors).number(metadata);
  }
  template <typename T>
  GgufBytes& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& string(const std::string& value) {
    number<uint64_t>(value.size());
    text_ += value;
    return *this;
  }
  GgufBytes& text_value(const std::string& key, const std::string& value) {
    return string(key).number<uint32_t>(8).string(value);
  }
  GgufBytes& tensor(const std::string& name, std::vector<uint64_t> extents, uint32_t type,
                    uint64_t offset) {
    string(name).number(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) number(extent);
    return number(type).number(offset);
  }
  GgufBytes& data(size_t count) {
    text_.append((32 - text_.size() % 32) % 32, '\0');
    text_.append(count, '\1');
    return *this;
  }
  operator const std::string&() const { return text_; }

 private:
  std::string text_;
};

inline Config small_config(const std::string& architecture = "llama") {
  Config config;
  config.architecture = architecture;
  config.name = "small";
  config.layers = 2;
  config.emb = 64;
  config.hidden = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = 300;
  config.context = 128;
  if (const Family* family = family_of_model_type(architecture)) {
    apply(*family, config);
    config.unrotated = unrotated_layers(config.layers, family->unrotated_step);
    if (family->has_multipliers) {
      config.embedding_scale = 12;
      config.residual_scale = 0.22f;
      config.attention_scale = 0.015625f;
      config.logit_divisor = 8;
    }
    if (family->recurrent == LayerKind::short_conv) {
      set_layer_kinds(config, {family->recurrent, LayerKind::attention});
      config.conv_taps = 3;
    }
    if (family->rotates_in_part) {
      config.rope.rotated = config.head_dim / 4 * 3;
      config.rope.scaling = RopeScaling::longrope;
      config.rope.original_context = 64;
      config.rope.attention_factor = 1.25f;
      config.rope.short_divisors.assign(config.rope.rotated / 2, 1.5f);
      config.rope.long_divisors.assign(config.rope.rotated / 2, 4.0f);
      choose_divisors(config, 0);
    }
    if (family->has_caps) {
      config.window = 40;
      set_windowed(config, windowed_layers(config.layers, family->global_step));
      config.rope.theta = family->rope_theta;
      config.window_theta = family->window_theta;
      config.score_cap = 20;
      config.logit_cap = 15;
    }
  }
  return config;
}

// The smallest whose every row is whole blocks of every type.
inline Config blocky_config() {
  Config config = small_config();
  config.layers = 1;
  config.emb = 256;
  config.hidden = 256;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 128;
  return config;
}

inline std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values(view.values());
  dequantize(view.dtype, view.bytes, values);
  return values;
}

}  // namespace tyto::test
