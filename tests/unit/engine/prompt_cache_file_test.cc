#include "engine/prompt_cache_file.h"

#include <cstring>
#include <numeric>

#include "base/hash.h"
#include "unit/base/file_fixture.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::letters;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;
using CachedTokens = std::vector<Token>;

Config wide_heads() {
  Config config = one_layer_config();
  config.layers = 2;
  config.head_dim = 32;  // a block of q8_0
  config.kv_heads = 2;
  return config;
}

CachedTokens tokens_of(size_t count, uint32_t seed = 0) {
  CachedTokens tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<Token>((i * i + 7 * i + seed) % 61);
  return tokens;
}

// An engine started again: nothing is in its caches.
struct Start {
  explicit Start(const RandomModel& random, DType kv_type = DType::f16, uint32_t context = 0,
                 uint32_t pages = 0) {
    device = open_device("cpu", {pool, trace});
    Device* devices[] = {device.get()};
    PipelineOptions options;
    options.forward.prefill_chunk = 64;
    options.forward.kv_type = kv_type;
    options.forward.context = context;
    const Config& config = random.model.config;
    options.forward.kv_memory = uint64_t{pages} * 256 * 2 * config.layers * config.kv_heads *
                                row_bytes(kv_type, config.head_dim);
    pipeline = std::make_unique<Pipeline>(random.model, devices, options, trace);
    prefixes = std::make_unique<PrefixCache>(pipeline->kv_pool(), pipeline->kv_window(),
                                             pipeline->states());
    pipeline->reclaim = [this](KvKind lacking) { return prefixes->evict(lacking); };
    origin = prompt_cache_origin(*pipeline, config, "a model", "a build");
  }

  Answer answer(const CachedTokens& prompt) {
    Sampler greedy(SamplerOptions{.temperature = 0});
    Request request;
    request.prompt = prompt;
    request.max_tokens = 6;
    request.ignore_eos = true;
    return generate({tokenizer, *pipeline, trace, prefixes.get()}, greedy, request,
                    [](std::string_view) { return true; });
  }
  void write(AtomicFile& file, const CachedTokens& prompt) {
    const KvTable table = prefixes->find(prompt, static_cast<uint32_t>(prompt.size()));
    ASSERT_EQ(table.length(), prompt.size());
    write_prompt_cache(file, origin, prompt, table, *pipeline);
  }
  PromptCacheContent read(std::span<const std::byte> file) const {
    return read_prompt_cache(file, origin, 61);
  }

  Tokenizer tokenizer{letters(), "letters"};
  ThreadPool pool{1};
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<PrefixCache> prefixes;
  PromptCacheOrigin origin;
};

class PromptCacheFileTest : public FileTest {
 protected:
  // Runs a prompt and writes what the caches hold of it.
  fs::path written(Start& start, const CachedTokens& prompt) {
    expected_ = start.answer(prompt).tokens;
    const fs::path path = folder_ / "cache";
    AtomicFile file(path, Replace::same_kind_read, kPromptCacheFile);
    start.write(file, prompt);
    file.commit();
    return path;
  }

  const RandomModel random_ = random_model(wide_heads(), DType::bf16);
  CachedTokens expected_;  // answer to the prompt
};

TEST_F(PromptCacheFileTest, AContinuationHasTheSameTokens) {
  for (const DType type : {DType::f16, DType::q8_0})
    for (const size_t length : {1, 255, 256, 257, 600}) {
      const CachedTokens prompt = tokens_of(length);
      Start first(random_, type);
      const MappedFile file(written(first, prompt));
      Start second(random_, type);
      const PromptCacheContent content = second.read(file.bytes());
      ASSERT_EQ(content.why_not, "");
      EXPECT_EQ(content.tokens, prompt);
      EXPECT_EQ(place_prompt_cache(content, *second.pipeline, *second.prefixes), length);
      const Answer answer = second.answer(prompt);
      EXPECT_EQ(answer.tokens, expected_) << info(type).name << " " << length;
      EXPECT_EQ(answer.receipt.cached_tokens, length - 1);
      EXPECT_EQ(answer.receipt.prompt_tokens, 1u);
    }
}

TEST_F(PromptCacheFileTest, EveryBitOfTheCachesComesBack) {
  const CachedTokens prompt = tokens_of(300);
  Start first(random_);
  const fs::path path = written(first, prompt);
  const std::string text = text_of(path);
  const MappedFile file(path);
  Start second(random_);
  const PromptCacheContent content = second.read(file.bytes());
  ASSERT_EQ(place_prompt_cache(content, *second.pipeline, *second.prefixes), 300u);
  AtomicFile again(folder_ / "again", Replace::same_kind, kPromptCacheFile);
  second.write(again, prompt);
  again.commit();
  EXPECT_EQ(text_of(folder_ / "again"), text);
}

TEST_F(PromptCacheFileTest, OtherPromptsTakeWhatTheyHaveInCommon) {
  const CachedTokens prompt = tokens_of(300);
  Start first(random_);
  const MappedFile file(written(first, prompt));
  const auto common = [&](const CachedTokens& other) {
    Start second(random_), plain(random_);
    place_prompt_cache(second.read(file.bytes()), *second.pipeline, *second.prefixes);
    const Answer answer = second.answer(other);
    EXPECT_EQ(answer.tokens, plain.answer(other).tokens);
    return answer.receipt.cached_tokens;
  };
  CachedTokens longer = prompt, different = prompt;
  for (const Token token : {5, 6, 7}) longer.push_back(token);
  different[0] = (different[0] + 1) % 61;
  EXPECT_EQ(common(longer), 300u);
  EXPECT_EQ(common({prompt.begin(), prompt.begin() + 270}), 269u);
  EXPECT_EQ(common(different), 0u);
}

TEST_F(PromptCacheFileTest, NoMoreIsPlacedThanThereIsRoomFor) {
  const CachedTokens prompt = tokens_of(600);
  Start first(random_);
  const MappedFile file(written(first, prompt));
  Start short_context(random_, DType::f16, 300), one_page(random_, DType::f16, 0, 1);
  EXPECT_EQ(place_prompt_cache(short_context.read(file.bytes()), *short_context.pipeline,
                               *short_context.prefixes),
            300u);
  EXPECT_EQ(place_prompt_cache(one_page.read(file.bytes()), *one_page.pipeline, *one_page.prefixes),
            256u);
  const CachedTokens begin(prompt.begin(), prompt.begin() + 280);
  EXPECT_EQ(short_context.answer(begin).receipt.cached_tokens, 279u);
  EXPECT_EQ(short_context.answer(begin).tokens, Start(random_).answer(begin).tokens);
}

TEST_F(PromptCacheFileTest, AnotherOriginIsAReason) {
  Start start(random_);
  const MappedFile file(written(start, tokens_of(20)));
  const auto why_not = [&](const auto& change) {
    PromptCacheOrigin other = start.origin;
    change(other);
    return read_prompt_cache(file.bytes(), other, 61).why_not;
  };
  EXPECT_EQ(why_not([](auto&) {}), "");
  EXPECT_EQ(why_not([](auto& o) { o.model = "b"; }), "was made with another model");
  EXPECT_EQ(why_not([](auto& o) { o.kv_type = DType::q8_0; }), "has another --kv-type");
  EXPECT_NE(why_not([](auto& o) { o.made_by = "b"; }), "");
  for (const auto member :
       {&PromptCacheOrigin::layers, &PromptCacheOrigin::kv_heads, &PromptCacheOrigin::head_dim,
        &PromptCacheOrigin::group, &PromptCacheOrigin::page})
    EXPECT_EQ(why_not([&](auto& o) { o.*member *= 2; }), "has pages of another form");
  EXPECT_EQ(read_prompt_cache(file.bytes(), start.origin, 10).why_not, "has unknown tokens");
}

TEST_F(PromptCacheFileTest, DamageIsAReason) {
  Start start(random_);
  const std::string whole = text_of(written(start, tokens_of(3)));
  const auto why_not = [&](const std::string& text) {
    return start.read(std::as_bytes(std::span(text))).why_not;
  };
  ASSERT_EQ(why_not(whole), "");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    EXPECT_NE(why_not(flipped), "") << at;
    EXPECT_NE(why_not(whole.substr(0, at)), "") << at;
  }
  EXPECT_NE(why_not(whole + "x"), "");
  EXPECT_NE(why_not(whole + whole), "");
}

// A program that writes such a file can make the hash, too.
TEST_F(PromptCacheFileTest, HostileSizesAreReasons) {
  Start start(random_);
  const std::string whole = text_of(written(start, tokens_of(3)));
  const size_t count = whole.find("\"tokens\":3");
  ASSERT_NE(count, std::string::npos);
  for (const char* tokens : {"0", "2", "4", "-1", "3.5", "4294967295", "18446744073709551615",
                             "1e99", "\"3\"", "null", "[]"}) {
    std::string text = whole;
    text.replace(count, 10, std::string("\"tokens\":") + tokens);
    text.resize(text.size() - sizeof(Hash128));
    const Hash128 hash = hash_bytes(std::as_bytes(std::span(text)));
    text.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    EXPECT_NE(start.read(std::as_bytes(std::span(text))).why_not, "") << tokens;
  }
}

}  // namespace
}  // namespace tyto
