// Rendered text does not say which of it a message brought along. So before rendering, a mark goes
// behind the first character of every special token that a message spells, and the template takes
// it along, whether it trims, cuts or repeats the message. Afterwards the marks are taken out
// again, and no special token may cover a character that had one.
#include "text/chat_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace tyto {
namespace {

// Noncharacters, which Unicode keeps for use inside a program: no template looks for them.
constexpr char32_t kFirstMark = 0xFDD0;
constexpr char32_t kLastMark = 0xFDEF;

std::string unused_mark(const std::vector<ChatMessage>& messages) {
  for (char32_t c = kFirstMark; c <= kLastMark; ++c) {
    std::string mark;
    append_utf8(c, mark);
    if (std::none_of(messages.begin(), messages.end(), [&](const ChatMessage& message) {
          return message.role.find(mark) != std::string::npos ||
                 message.content.find(mark) != std::string::npos;
        }))
      return mark;
  }
  throw Error(ErrorCode::input, "messages",
              "hold each of the noncharacters U+FDD0 to U+FDEF, and special tokens as text",
              "leave one of them out");
}

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

// Whether the text begins as the special token ends, or ends as it begins: the template's words
// beside it could complete the token.
bool begins_inside(std::string_view text, std::string_view token) {
  for (size_t cut = 1; cut < token.size(); ++cut)
    if (text.starts_with(token.substr(cut))) return true;
  return false;
}
bool ends_inside(std::string_view text, std::string_view token) {
  for (size_t cut = 1; cut < token.size(); ++cut)
    if (text.ends_with(token.substr(0, cut))) return true;
  return false;
}

// Where a content's marks belong: at special tokens, and where it could be a part of one. A role
// may be a part: templates write "<|" + role + "|>".
std::vector<size_t> places_in_content(const Tokenizer& tokenizer, std::string_view content) {
  std::vector<size_t> places = tokenizer.special_places(content);
  const Ends ends = ends_of(content);
  if (ends.text.empty()) return places;
  for (const AddedToken& token : tokenizer.vocabulary().added) {
    if (!token.special) continue;
    if (begins_inside(ends.text, token.text)) places.push_back(ends.first);
    if (ends_inside(ends.text, token.text)) places.push_back(ends.last);
  }
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

ChatText render_marked(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                       std::vector<ChatMessage> messages, const ChatOptions& options) {
  struct Places {
    std::vector<size_t> role, content;
  };
  std::vector<Places> places;
  bool any = false;
  for (const ChatMessage& message : messages) {
    places.push_back(
        {tokenizer.special_places(message.role), places_in_content(tokenizer, message.content)});
    any = any || !places.back().role.empty() || !places.back().content.empty();
  }
  if (!any) return {chat_template.render(messages, options), {}, false};
  const std::string mark = unused_mark(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i].role = with_marks(messages[i].role, places[i].role, mark);
    messages[i].content = with_marks(messages[i].content, places[i].content, mark);
  }
  return without_marks(chat_template.render(messages, options), mark);
}

}  // namespace

ChatText render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                     const std::vector<ChatMessage>& messages, bool special_in_messages) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text_of = [&](Token token) { return token < 0 ? "" : tokenizer.token_bytes(token); };
  ChatOptions options;
  options.bos_token = text_of(vocabulary.bos);
  options.eos_token = vocabulary.eos.empty() ? "" : text_of(vocabulary.eos.front());
  ChatText chat = special_in_messages ? ChatText{chat_template.render(messages, options), {}, false}
                                      : render_marked(tokenizer, chat_template, messages, options);
  const std::string& bos = options.bos_token;
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
                               const std::vector<ChatMessage>& messages, bool special_in_messages) {
  return encode_chat(tokenizer,
                     render_chat(tokenizer, chat_template, messages, special_in_messages));
}

}  // namespace tyto
