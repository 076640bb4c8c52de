// A small random model with a vocabulary of letters, and everything that answers requests with it.
#pragma once

#include <memory>
#include <string>

#include "engine/generate.h"
#include "support/random_model.h"

namespace tyto::testing_support {

// Sixty-one one-letter tokens; nothing is merged, so text and tokens map one to one.
inline Vocabulary letters() {
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::byte_level_bpe;
  for (int i = 0; i < 61; ++i)
    vocabulary.pieces.push_back(std::string(1, static_cast<char>('A' + i)));
  vocabulary.unknown = 0;
  return vocabulary;
}

inline Config one_layer_config() {
  Config config = small_config();
  config.layers = 1;
  config.emb = 32;
  config.hidden = 32;
  config.heads = 2;
  config.kv_heads = 1;
  config.context = 1024;
  return config;
}

// As an Engine has it: a pipeline with a cache of prefixes.
struct LettersWorld {
  explicit LettersWorld(const RandomModel& random, uint32_t pages = 0, unsigned threads = 1)
      : LettersWorld(random, pages, threads, open_cpu) {}
  // `open` makes the device.
  LettersWorld(const RandomModel& random, uint32_t pages, unsigned threads,
               std::unique_ptr<Device> (*open)(const DeviceEnv&))
      : pool(threads), device(open({pool, trace})) {
    Device* devices[] = {device.get()};
    PipelineOptions options;
    options.forward.prefill_chunk = 64;
    const Config& config = random.model.config;
    const uint64_t page_bytes =
        uint64_t{2} * config.layers * config.kv_heads * config.head_dim * 2 * 256;
    options.forward.kv_memory = pages * page_bytes;
    pipeline = std::make_unique<Pipeline>(random.model, devices, options, trace);
    prefixes = std::make_unique<PrefixCache>(pipeline->kv_pool(), pipeline->kv_window(),
                                             pipeline->states());
    pipeline->reclaim = [this](KvKind lacking) { return prefixes->evict(lacking); };
    pipeline->on_caches_lost = [this] { prefixes->clear(); };
  }

  static std::unique_ptr<Device> open_cpu(const DeviceEnv& env) { return open_device("cpu", env); }

  Generator generator() { return {tokenizer, *pipeline, trace, prefixes.get()}; }

  Tokenizer tokenizer{letters(), "letters"};
  ThreadPool pool;
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<PrefixCache> prefixes;
};

}  // namespace tyto::testing_support
