#include "base/json_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/printable.h"
#include "base/utf8.h"

namespace tyto {
namespace {

// What may stand at a place in the text.
enum class Wanted {
  value,
  value_or_end,  // behind [
  name,          // behind a comma in an object
  name_or_end,   // behind {
  colon,
  comma_or_end,
  nothing,  // behind the outermost value
};

struct Fault {
  size_t at;
  std::string what;
};

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kDigits = "0123456789";

class FaultFinder {
 public:
  explicit FaultFinder(std::string_view text) : text_(text) {}

  // Throws a Fault at the first place where the text is not JSON.
  void run() {
    for (;;) {
      at_ = std::min(text_.size(), text_.find_first_not_of(kBlanks, at_));
      if (at_ == text_.size()) break;
      take(text_[at_]);
    }
    if (wanted_ != Wanted::nothing) fail(at_, "the text ends too early, " + expected());
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& what) const { throw Fault{at, what}; }

  [[noreturn]] void fail_here() const {
    const std::string_view rest = text_.substr(at_);
    const size_t word = std::min(rest.find_first_of(" \t\r\n,:[]{}\""), rest.size());
    fail(at_, fmt::format("{}, found '{}'", expected(),
                          printable_line(rest.substr(0, std::max<size_t>(word, 1)), 20)));
  }

  std::string expected() const {
    const char* end = levels_.empty() || levels_.back() == '{' ? "}" : "]";
    switch (wanted_) {
      case Wanted::value:
        return "expected a value";
      case Wanted::value_or_end:
        return "expected a value or ]";
      case Wanted::name:
        return "expected a name in double quotes";
      case Wanted::name_or_end:
        return "expected a name in double quotes or }";
      case Wanted::colon:
        return "expected a colon behind the name";
      case Wanted::comma_or_end:
        return fmt::format("expected a comma or {}", end);
      case Wanted::nothing:
        return "expected nothing behind the end";
    }
    return "";
  }

  void take(char c) {
    const bool is_value = wanted_ == Wanted::value || wanted_ == Wanted::value_or_end;
    const bool is_name = wanted_ == Wanted::name || wanted_ == Wanted::name_or_end;
    if (is_value && (c == '{' || c == '[')) {
      levels_.push_back(c);
      ++at_;
      wanted_ = c == '{' ? Wanted::name_or_end : Wanted::value_or_end;
    } else if (is_name && c == '"') {
      take_string();
      wanted_ = Wanted::colon;
    } else if (wanted_ == Wanted::colon && c == ':') {
      ++at_;
      wanted_ = Wanted::value;
    } else if (wanted_ == Wanted::comma_or_end && c == ',') {
      ++at_;
      wanted_ = levels_.back() == '{' ? Wanted::name : Wanted::value;
    } else if (closes(c)) {
      levels_.pop_back();
      ++at_;
      end_value();
    } else if (is_value) {
      take_scalar(c);
      end_value();
    } else {
      fail_here();
    }
  }

  bool closes(char c) const {
    if (levels_.empty() || c != (levels_.back() == '{' ? '}' : ']')) return false;
    return wanted_ == Wanted::comma_or_end || wanted_ == Wanted::value_or_end ||
           wanted_ == Wanted::name_or_end;
  }

  void end_value() { wanted_ = levels_.empty() ? Wanted::nothing : Wanted::comma_or_end; }

  void take_scalar(char c) {
    if (c == '"') return take_string();
    if (c == '-' || kDigits.find(c) != kDigits.npos) return take_number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return;
    }
    fail_here();
  }

  size_t skip_digits(size_t from) const {
    return std::min(text_.size(), text_.find_first_not_of(kDigits, from));
  }

  void take_number() {
    const size_t begin = at_;
    const size_t end = std::min(text_.size(), text_.find_first_of(" \t\r\n,:[]{}\"", at_));
    const auto check = [&](bool is_good) {
      if (!is_good)
        fail(begin, fmt::format("'{}' is not a number",
                                printable_line(text_.substr(begin, end - begin), 20)));
    };
    if (text_[at_] == '-') ++at_;
    const size_t whole = at_;
    at_ = skip_digits(at_);
    check(at_ > whole && (text_[whole] != '0' || at_ == whole + 1));
    if (at_ < end && text_[at_] == '.') {
      const size_t fraction = ++at_;
      at_ = skip_digits(at_);
      check(at_ > fraction);
    }
    if (at_ < end && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < end && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      const size_t exponent = at_;
      at_ = skip_digits(at_);
      check(at_ > exponent);
    }
    check(at_ == end);
  }

  void take_string() {
    const size_t begin = at_++;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '\n') fail(begin, "the text in quotes is not closed on its line");
      if (byte < 0x20) fail(at_, fmt::format("the control character \\u{:04x} in quotes", byte));
      if (byte == '\\') take_escape();
    }
    if (at_ == text_.size()) fail(begin, "the text in quotes is not closed");
    ++at_;
  }

  // Leaves `at_` on its last character.
  void take_escape() {
    const size_t begin = at_++;
    if (at_ == text_.size()) return;
    if (text_[at_] == 'u') {
      constexpr size_t kHexDigits = 4;
      const std::string_view hex = text_.substr(at_ + 1, kHexDigits);
      const bool is_hex =
          hex.size() == kHexDigits && hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos;
      if (!is_hex) fail(begin, "\\u needs four hexadecimal digits");
      at_ += kHexDigits;
    } else if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
      fail(begin, fmt::format("JSON has no \\{}", printable_line(text_.substr(at_, 1))));
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  Wanted wanted_ = Wanted::value;
  std::vector<char> levels_;
};

std::string with_place(std::string_view text, size_t at, const std::string& what) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}: {}", line, at - begin + 1, what);
}

}  // namespace

std::string json_fault(std::string_view text) {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size())
    return with_place(text, valid, "this byte is not UTF-8");
  try {
    FaultFinder(text).run();
  } catch (const Fault& fault) {
    return with_place(text, fault.at, fault.what);
  }
  return "";
}

}  // namespace tyto
