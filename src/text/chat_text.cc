// Rendered text does not say which of it a message brought along. So before rendering, a mark goes
// behind the first character of every special token that a message or a tool spells, and the
// template takes it along, whether it trims, cuts or repeats the text. Afterwards the marks are
// taken out again, and no special token may cover a character that had one.
#include "text/chat_text.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "text/special_edges.h"
#include "text/unicode.h"

namespace tyto {
namespace {

// Noncharacters, which Unicode keeps for use inside a program: no template looks for them.
constexpr char32_t kFirstMark = 0xFDD0;
constexpr char32_t kLastMark = 0xFDEF;
constexpr std::string_view kMarksBegin = "\xEF\xB7";  // their first two bytes of three

// Templates trim contents: the ends are the first and the last character that are not white space.
struct Ends {
  size_t first = 0, last = 0;  // where these characters begin
  std::string_view text;       // from one to the other
};
Ends ends_of(std::string_view content) {
  Ends ends{content.size(), content.size(), {}};
  for (size_t at = 0; at < content.size();) {
    const Utf8Head head = utf8_head(content.substr(at));
    if (head.kind != Utf8Head::Kind::valid || !is_white_space(head.code_point)) {
      ends.first = std::min(ends.first, at);
      ends.last = at;
      ends.text = content.substr(ends.first, at + head.bytes - ends.first);
    }
    at += head.bytes;
  }
  return ends;
}

// Where a text's marks belong: at special tokens, and where it could be a part of one, which the
// template's words beside it complete. A role may be a part: templates write "<|" + role + "|>".
std::vector<size_t> places_in(const Tokenizer& tokenizer, SpecialEdges& edges,
                              std::string_view text, TextKind kind) {
  std::vector<size_t> places = tokenizer.special_places(text);
  if (kind == TextKind::word) return places;
  const Ends ends = ends_of(text);
  if (ends.text.empty()) return places;
  if (edges.begins_inside(ends.text)) places.push_back(ends.first);
  if (edges.ends_inside(ends.text)) places.push_back(ends.last);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

std::string with_marks(std::string_view text, const std::vector<size_t>& places,
                       std::string_view mark) {
  std::string marked;
  size_t done = 0;
  for (const size_t place : places) {
    const size_t end = place + utf8_head(text.substr(place)).bytes;
    marked.append(text.substr(done, end - done)).append(mark);
    done = end;
  }
  return marked.append(text.substr(done));
}

ChatText without_marks(std::string_view marked, std::string_view mark) {
  ChatText chat;
  while (true) {
    const size_t at = marked.find(mark);
    chat.text.append(marked.substr(0, at));
    if (at == std::string_view::npos) return chat;
    marked.remove_prefix(at + mark.size());
    const bool is_new = chat.plain.empty() || chat.plain.back() + 1 < chat.text.size();
    if (!chat.text.empty() && is_new) chat.plain.push_back(chat.text.size() - 1);
  }
}

// What a rendering's texts say about marks.
class MarkSearch {
 public:
  explicit MarkSearch(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), edges_(tokenizer.vocabulary().added) {}

  std::vector<size_t> places(std::string_view text, TextKind kind) {
    return places_in(tokenizer_, edges_, text, kind);
  }

  void look_at(std::string_view text, TextKind kind) {
    needs_mark_ = needs_mark_ || !places(text, kind).empty();
    for (size_t at = text.find(kMarksBegin); at != text.npos; at = text.find(kMarksBegin, at + 1))
      used_.emplace(text.substr(at, kMarksBegin.size() + 1));
  }
  bool needs_mark() const { return needs_mark_; }
  std::string unused_mark() const {
    for (char32_t c = kFirstMark; c <= kLastMark; ++c) {
      std::string mark;
      append_utf8(c, mark);
      if (!used_.contains(mark)) return mark;
    }
    throw Error(ErrorCode::input, "messages",
                "hold each of the noncharacters U+FDD0 to U+FDEF, and special tokens as text",
                "leave one of them out");
  }

 private:
  const Tokenizer& tokenizer_;
  SpecialEdges edges_;
  bool needs_mark_ = false;
  std::set<std::string> used_;  // what begins as marks do
};

// Renders twice only where something is to be marked.
ChatText render_marked(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                       const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  MarkSearch search(tokenizer);
  std::string plain =
      chat_template.render(messages, options, [&](std::string_view text, TextKind kind) {
        search.look_at(text, kind);
        return std::string(text);
      });
  if (!search.needs_mark()) return {std::move(plain), {}, false};
  const std::string mark = search.unused_mark();
  const auto marked = [&](std::string_view text, TextKind kind) {
    return with_marks(text, search.places(text, kind), mark);
  };
  return without_marks(chat_template.render(messages, options, marked), mark);
}

}  // namespace

ChatText render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                     const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     bool special_in_messages) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  ChatOptions with_tokens = options;
  std::string& bos = with_tokens.bos_token;
  std::string& eos = with_tokens.eos_token;
  if (bos.empty() && vocabulary.bos >= 0) bos = tokenizer.token_bytes(vocabulary.bos);
  if (eos.empty() && !vocabulary.eos.empty()) eos = tokenizer.token_bytes(vocabulary.eos.front());
  ChatText chat = special_in_messages
                      ? ChatText{chat_template.render(messages, with_tokens), {}, false}
                      : render_marked(tokenizer, chat_template, messages, with_tokens);
  chat.has_bos = !bos.empty() && chat.text.starts_with(bos) &&
                 (chat.plain.empty() || chat.plain.front() >= bos.size());
  return chat;
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatText& chat) {
  // Most templates write the BOS themselves; it must not be there twice.
  return tokenizer.encode(chat.text,
                          {.add_bos = !chat.has_bos, .parse_special = true, .plain = chat.plain});
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages, const ChatOptions& options,
                               bool special_in_messages) {
  return encode_chat(tokenizer,
                     render_chat(tokenizer, chat_template, messages, options, special_in_messages));
}

std::vector<Token> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                 const EncodeOptions& options) {
  std::vector<Token> tokens = tokenizer.encode(text, options);
  const Token bos = tokenizer.vocabulary().bos;
  const bool adds_bos = options.add_bos && tokenizer.vocabulary().add_bos && bos >= 0;
  if (adds_bos && tokens.size() > 1 && tokens[1] == bos) tokens.erase(tokens.begin());
  return tokens;
}

}  // namespace tyto
