#include "engine/prompt_cache_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_value.h"

namespace tyto {
namespace {

constexpr std::string_view kFirstLine = "tyto-prompt-cache-2\n";
constexpr size_t kLongestHeader = 64 << 10;
constexpr uint64_t kMostTokens = UINT32_MAX / 2;

using HashBytes = std::array<std::byte, sizeof(Hash128)>;

HashBytes bytes_of(const Hash128& hash) {
  HashBytes bytes;
  std::memcpy(bytes.data(), &hash, sizeof hash);
  return bytes;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string header_line(const PromptCacheOrigin& origin, uint64_t window_from, uint64_t tokens) {
  const JsonValue json = {{"model", origin.model},
                          {"made_by", origin.made_by},
                          {"kv_type", info(origin.kv_type).name},
                          {"layers", origin.layers},
                          {"kv_heads", origin.kv_heads},
                          {"head_dim", origin.head_dim},
                          {"group", origin.group},
                          {"page", origin.page},
                          {"windowed_layers", origin.windowed_layers},
                          {"window", origin.window},
                          {"state_bytes", origin.state_bytes},
                          {"window_from", window_from},
                          {"tokens", tokens}};
  return json.dump() + "\n";
}

// Why caches of one origin are of no use to the other; empty: they are.
std::string difference(const Json& header, const PromptCacheOrigin& wanted) {
  const auto is_text = [&](const char* key, std::string_view value) {
    return header.at(key).as_string() == value;
  };
  const auto is_number = [&](const char* key, uint32_t value) {
    return header.at(key).as_uint(UINT32_MAX) == value;
  };
  if (!is_text("model", wanted.model)) return "was made with another model";
  if (!is_text("kv_type", info(wanted.kv_type).name)) return "has another --kv-type";
  if (!is_text("made_by", wanted.made_by))
    return "was made by another build, device or setting of Tyto, which may round otherwise";
  const bool is_same =
      is_number("layers", wanted.layers) && is_number("kv_heads", wanted.kv_heads) &&
      is_number("head_dim", wanted.head_dim) && is_number("group", wanted.group) &&
      is_number("page", wanted.page) && is_number("windowed_layers", wanted.windowed_layers) &&
      is_number("window", wanted.window) &&
      header.uint_or("state_bytes", 0, UINT64_MAX / 2) == wanted.state_bytes;
  return is_same ? "" : "has pages of another form";
}

// What is written is hashed.
class HashedWriter {
 public:
  explicit HashedWriter(AtomicFile& file) : file_(file) {}
  void write(std::span<const std::byte> bytes) {
    hasher_.add(bytes);
    file_.write(bytes);
  }
  void end() { file_.write(bytes_of(hasher_.hash())); }

 private:
  AtomicFile& file_;
  Hasher hasher_;
};

constexpr std::byte mark_of(std::optional<Side> begins) {
  if (!begins) return {};
  return std::byte{*begins == Side::prefill ? uint8_t{2} : uint8_t{1}};
}

constexpr std::optional<Side> side_of(std::byte mark) {
  if (mark == std::byte{}) return std::nullopt;
  return mark == mark_of(Side::prefill) ? Side::prefill : Side::decode;
}

PromptCacheContent unusable(const std::string& why_not) {
  return {.why_not = why_not};
}

}  // namespace

uint64_t PromptCacheOrigin::position_bytes(KvKind kind) const {
  const uint64_t count = kind == KvKind::full ? layers : windowed_layers;
  return 2 * count * kv_heads * row_bytes(kv_type, head_dim);
}

PromptCacheOrigin prompt_cache_origin(const Pipeline& pipeline, const Config& config,
                                      const std::string& model, const std::string& made_by) {
  const KvShape& kv = pipeline.forward().kv();
  const uint64_t layer_bytes = uint64_t{2} * config.kv_heads * row_bytes(kv.type, config.head_dim);
  const auto windowed =
      static_cast<uint32_t>(pipeline.position_bytes(KvKind::windowed) / layer_bytes);
  return {.model = model,
          .made_by = made_by,
          .kv_type = pipeline.forward().kv_type(),
          .layers = config.attention_layers() - windowed,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .group = kv.group,
          .page = pipeline.kv_pool().page_positions(),
          .windowed_layers = windowed,
          .window = pipeline.kv_window().positions,
          .state_bytes = pipeline.forward().kv().state.bytes};
}

PromptCacheContent read_prompt_cache(std::span<const std::byte> file,
                                     const PromptCacheOrigin& wanted, uint32_t vocab) try {
  const std::string_view text = text_of(file);
  if (!text.starts_with(kFirstLine)) return unusable("has the form of another version of Tyto");
  const std::string_view rest = text.substr(kFirstLine.size(), kLongestHeader);
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) return unusable("is cut short");
  const Json header = Json::parse(rest.substr(0, end), "prompt cache");
  if (const std::string why_not = difference(header, wanted); !why_not.empty())
    return unusable(why_not);

  const uint64_t count = header.at("tokens").as_uint(kMostTokens);
  const uint64_t from = header.at("window_from").as_uint(kMostTokens);
  const uint64_t passed = from * wanted.page;  // positions without windowed pages
  const uint64_t bytes = count * wanted.position_bytes(KvKind::full);
  const uint64_t window_bytes =
      (count - std::min(count, passed)) * wanted.position_bytes(KvKind::windowed);
  std::span<const std::byte> body = file.subspan(kFirstLine.size() + end + 1);
  if (count == 0 || (passed > 0 && (passed >= count || wanted.windowed_layers == 0)) ||
      body.size() !=
          count * (sizeof(Token) + 1) + bytes + window_bytes + wanted.state_bytes + sizeof(Hash128))
    return unusable("is cut short, or longer than it should be");
  const auto hashed = file.first(file.size() - sizeof(Hash128));
  if (!std::ranges::equal(bytes_of(hash_bytes(hashed)), file.last(sizeof(Hash128))))
    return unusable("is damaged: its hash is wrong");

  PromptCacheContent content;
  content.tokens.resize(count);
  std::memcpy(content.tokens.data(), body.data(), count * sizeof(Token));
  const auto is_known = [&](Token token) {
    return token >= 0 && static_cast<uint32_t>(token) < vocab;
  };
  if (!std::ranges::all_of(content.tokens, is_known)) return unusable("has unknown tokens");
  body = body.subspan(count * sizeof(Token));
  for (const std::byte mark : body.first(count)) {
    if (mark > mark_of(Side::prefill)) return unusable("has passes of unknown devices");
    content.begins.push_back(side_of(mark));
  }
  if (!content.begins.front()) content.begins.front() = Side::decode;
  content.caches = body.subspan(count, bytes);
  content.window_from = static_cast<uint32_t>(from);
  content.window_caches = body.subspan(count + bytes, window_bytes);
  content.state = body.subspan(count + bytes + window_bytes, wanted.state_bytes);
  return content;
} catch (const Error& error) {
  return unusable(std::string("is damaged: ") + error.what());
}

namespace {

// All that the file has of a page, though the context may end in it.
void write_page_of(const PromptCacheContent& content, uint32_t page, const KvTable& to,
                   Pipeline& pipeline) {
  const uint32_t page_positions = pipeline.kv_pool().page_positions();
  const uint64_t first = uint64_t{page} * page_positions;
  const auto here =
      static_cast<uint32_t>(std::min<uint64_t>(page_positions, content.tokens.size() - first));
  const uint64_t row = pipeline.position_bytes();
  pipeline.write_page(to.pages()[page], {0, here}, content.caches.subspan(first * row, here * row));
  if (to.window_pages().empty() || page < content.window_from) return;
  const uint64_t window_row = pipeline.position_bytes(KvKind::windowed);
  const uint64_t before = first - uint64_t{content.window_from} * page_positions;
  pipeline.write_page(to.window_pages()[page], {0, here},
                      content.window_caches.subspan(before * window_row, here * window_row),
                      KvKind::windowed);
}

}  // namespace

uint32_t place_prompt_cache(const PromptCacheContent& content, Pipeline& pipeline,
                            PrefixCache& prefixes) {
  KvPool& pool = pipeline.kv_pool();
  const KvWindow& window = pipeline.kv_window();
  const uint32_t page_positions = pool.page_positions();
  const uint64_t room = uint64_t{pool.available()} * page_positions;
  const auto length =
      static_cast<uint32_t>(std::min<uint64_t>({content.tokens.size(), pipeline.context(), room}));
  if (length == 0) return 0;
  const bool has_window = window.pool != nullptr;
  const uint32_t first = has_window ? window.first_needed(length) : 0;
  if (content.window_from > first) return 0;
  const bool has_states = pipeline.states() != nullptr;
  if (has_states && length < content.tokens.size()) return 0;
  // Page by page, so that windowed pages are passed as in a run.
  KvTable taken(pool, window, pipeline.states());
  std::optional<KvTable::Copy> copy;
  for (uint32_t done = 0; done < length; done += page_positions) {
    const uint32_t end = std::min(done + page_positions, length);
    if (!taken.grow_to(end, copy)) return 0;
    write_page_of(content, done / page_positions, taken, pipeline);
    taken.set_length(end);
  }
  std::vector<KvPage> window_pages(taken.window_pages().begin(), taken.window_pages().end());
  if (has_window) std::fill_n(window_pages.begin(), first, kNoPage);
  if (has_states) pipeline.write_state(taken.state_from(), content.state);
  const auto end = content.begins.begin() + length;
  prefixes.keep(std::span(content.tokens).first(length),
                KvTable(pool, taken.pages(), {content.begins.begin(), end}, window, window_pages,
                        pipeline.states(), taken.states().last(has_states ? 1 : 0)));
  return length;
}

namespace {

void write_pages(HashedWriter& out, std::span<const KvPage> pages, uint32_t length, KvKind kind,
                 Pipeline& pipeline) {
  const uint32_t page_positions = pipeline.kv_pool().page_positions();
  std::vector<std::byte> bytes;
  for (uint32_t i = 0; i < pages.size(); ++i) {
    if (pages[i] == kNoPage) continue;
    const uint32_t here = std::min(page_positions, length - i * page_positions);
    bytes.resize(here * pipeline.position_bytes(kind));
    pipeline.read_page(pages[i], {0, here}, bytes, kind);
    out.write(bytes);
  }
}

}  // namespace

void write_prompt_cache(AtomicFile& file, const PromptCacheOrigin& origin,
                        std::span<const Token> tokens, const KvTable& table, Pipeline& pipeline) {
  const uint32_t length = table.length();
  TYTO_ASSERT(length > 0 && tokens.size() == length);
  HashedWriter out(file);
  out.write(std::as_bytes(std::span(kFirstLine)));
  const auto passed = static_cast<uint64_t>(std::ranges::count(table.window_pages(), kNoPage));
  const std::string header = header_line(origin, passed, length);
  out.write(std::as_bytes(std::span(header)));
  out.write(std::as_bytes(tokens));
  std::vector<std::byte> begins;
  for (const std::optional<Side> begin : table.begins()) begins.push_back(mark_of(begin));
  out.write(begins);
  write_pages(out, table.pages(), length, KvKind::full, pipeline);
  write_pages(out, table.window_pages(), length, KvKind::windowed, pipeline);
  if (pipeline.states() != nullptr) {
    std::vector<std::byte> state(origin.state_bytes);
    pipeline.read_state(table.state_from(), state);
    out.write(state);
  }
  out.end();
}

}  // namespace tyto
