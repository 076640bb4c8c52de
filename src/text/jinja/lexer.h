// Template source to tokens, with Jinja's white space rules already applied.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tyto::jinja {

enum class TokenKind : uint8_t {
  text,         // outside of tags
  print_begin,  // {{
  print_end,
  tag_begin,  // {%
  tag_end,
  name,
  string,  // text has the escapes resolved
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string_view text;
};

// Line ends become \n, and one at the very end is dropped, as Jinja does before anything else.
std::string normalize_source(std::string_view source);

// The settings are transformers': trim_blocks and lstrip_blocks. `name` is for errors; resolved
// string literals are stored in `strings`. The last token is `end`.
std::vector<Token> tokenize(std::string_view source, const std::string& name,
                            std::deque<std::string>& strings);

}  // namespace tyto::jinja
