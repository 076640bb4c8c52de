#include "shell/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "shell/usage_error.h"

namespace tyto {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "on" : "off";
}
template <class T>
  requires kIsNumber<T>
std::string text_of(T value) {
  if constexpr (std::is_floating_point_v<T>) return fmt::format("{:g}", value);
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "";
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + text_of(value);
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  const auto next = [&] {
    return separator == '\0' ? std::string::npos : text.find(separator, begin);
  };
  for (size_t end = next(); end != std::string::npos; end = next()) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// In an error.
std::string shown(const Flag& flag, const std::string& value) {
  return flag.rules.is_secret ? std::string(kHidden) : value;
}

// Plain decimals: 010 is ten, and a number that is too large is an error.
template <class T>
T number(const std::string& text, const Flag& flag) {
  if (flag.rules.is_unlimited_at_minus_1 && text == "-1") return std::numeric_limits<T>::max();
  T value = {};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::optional<Range>& range = flag.rules.range;
  bool is_good = error == std::errc() && rest == end;
  if constexpr (std::is_floating_point_v<T>) is_good = is_good && std::isfinite(value);
  if (range) is_good = is_good && value >= range->least && value <= range->most;
  if (is_good) return value;
  std::string wanted = std::is_integral_v<T> ? "a whole number" : "a number";
  if (flag.rules.is_unlimited_at_minus_1) wanted = "-1 or " + wanted;
  if (range && range->most >= std::numeric_limits<float>::max())
    wanted += fmt::format(" of at least {:.12g}", range->least);
  else if (range)
    wanted += fmt::format(" from {:.12g} to {:.12g}", range->least, range->most);
  else if (std::is_integral_v<T>)
    wanted += fmt::format(" from 0 to {}", std::numeric_limits<T>::max());
  throw Error(ErrorCode::usage, flag.name(),
              fmt::format("\"{}\" is not {}", shown(flag, text), wanted));
}

void store(const Flag& flag, const std::vector<std::string>& texts, const Typed& target) {
  target.read(texts, flag.name());
}

template <class T>
void store(const Flag& flag, const std::vector<std::string>& texts, T* pointer) {
  T& target = *pointer;
  using Value = typename ValueIn<T>::Type;
  const auto value_of = [&](const std::string& text) {
    if constexpr (kIsNumber<Value>)
      return number<Value>(text, flag);
    else
      return text;
  };
  if constexpr (std::is_same_v<T, bool>) {
    target = true;
  } else if constexpr (std::is_same_v<T, std::vector<Value>>) {
    target.clear();
    for (const std::string& text : texts)
      for (const std::string& part : split(text, flag.rules.separator))
        target.push_back(value_of(part));
  } else {
    target = value_of(texts.front());
  }
}

std::string folded(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void check_value(const Flag& flag, std::string& text) {
  if (text.empty() && !flag.rules.may_be_empty)
    throw Error(ErrorCode::usage, flag.name(), "the value is empty");
  if (flag.allowed) {
    const auto& [values, letters, why_not] = *flag.allowed;
    const bool is_exact = letters == Letters::exact;
    const auto found = std::find_if(values.begin(), values.end(), [&](const std::string& value) {
      return is_exact ? value == text : folded(value) == folded(text);
    });
    if (found == values.end()) throw not_allowed(flag, *flag.allowed, shown(flag, text));
    if (letters == Letters::as_listed) text = *found;
  }
  std::error_code ignored;
  if (flag.rules.is_folder && !std::filesystem::is_directory(text, ignored))
    throw Error(ErrorCode::usage, flag.name(), shown(flag, text) + " is not a folder");
}

bool names_flag(const std::vector<std::string>& arguments, const Flag& flag) {
  const std::string names = "," + flag.names + ",";
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument.starts_with('-') &&
           names.find("," + argument.substr(0, argument.find('=')) + ",") != std::string::npos;
  });
}

// Whether a word without a flag can be one of the command's arguments.
bool takes_words(const CommandLine& command, const std::vector<std::string>& arguments) {
  const auto is_any_given = [&](const std::vector<std::string>& flags) {
    return std::any_of(flags.begin(), flags.end(), [&](const std::string& name) {
      return names_flag(arguments, command.flag(name));
    });
  };
  return std::any_of(command.flags.begin(), command.flags.end(), [&](const Flag& flag) {
    return flag.is_positional() && !is_any_given(flag.rules.excludes) &&
           !is_any_given(flag.rules.filled_by);
  });
}

bool has_name(const Flag& flag, std::string_view name) {
  const auto is_among = [&](const std::string& names) {
    const std::vector<std::string> all = split(names, ',');
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  return !flag.is_positional() && (is_among(flag.names) || is_among(flag.rules.alias));
}

// What the command line has for one flag.
struct Given {
  size_t times = 0;
  bool lacks_value = false;  // "--json" alone
  std::vector<std::string> values = {};
};

// Reads the words of a command line, each for the command that the words before it have named.
class Parser {
 public:
  Parser(CommandLine& program, const std::vector<std::string>& words)
      : words_(words), path_{&program} {}

  Invocation parse() {
    while (at_ < words_.size()) take(words_[at_++]);
    if (kind_ != Invocation::Kind::run) {
      if (kind_ != Invocation::Kind::version) refuse_unknown_commands();
      return {kind_, path()};
    }
    for (size_t depth = 0; depth < path_.size(); ++depth) fill_places(depth);
    refuse_unexpected();
    clear_given(*path_.front());
    with_help([&] { for_given(&Parser::check_given); });
    for (CommandLine* command : path_)
      check_exclusions(*command);  // before a value is read from a file
    with_help([&] { for_given(&Parser::fill); });
    if (path_.back()->needs_command) throw missing_command(path());
    refuse_missing_places();
    for (CommandLine* command : path_) {
      command->arguments = words_;
      if (command->complete) command->complete();
      check_exclusions(*command);
      check_needs(*command);
    }
    return {kind_, path()};
  }

 private:
  struct Word {
    size_t depth;  // its command's in the path
    size_t place;  // in words_
  };

  CommandPath path() const { return {path_.begin(), path_.end()}; }
  std::string help() const { return see_help(path()); }

  void take(const std::string& word) {
    const bool is_short =
        word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
    if (only_places_)
      place();
    else if (word == "--")
      only_places_ = true;
    else if (word.starts_with("--"))
      take_long(word);
    else if (is_short)
      take_short(word);
    else if (!enters_command(word))
      place();
  }

  void place() { places_.push_back({path_.size() - 1, at_ - 1}); }
  void leave() { left_.push_back({path_.size() - 1, at_ - 1}); }

  bool enters_command(const std::string& word) {
    for (CommandLine& below : path_.back()->commands)
      if (below.name == word || (!below.alias.empty() && below.alias == word)) {
        path_.push_back(&below);
        return true;
      }
    return false;
  }

  Flag* find(std::string_view name) {
    std::vector<Flag>& flags = path_.back()->flags;
    const auto found =
        std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return has_name(f, name); });
    return found == flags.end() ? nullptr : &*found;
  }

  // --help, --help-all and --version are in no table. The first of them counts.
  bool asks(std::string_view name) {
    using Kind = Invocation::Kind;
    const bool has_version = path_.size() == 1 && !path_.front()->version.empty();
    const Kind kind = name == "--help" || name == "-h"     ? Kind::help
                      : name == "--help-all"               ? Kind::whole_help
                      : name == "--version" && has_version ? Kind::version
                                                           : Kind::run;
    if (kind_ == Kind::run) kind_ = kind;
    return kind != Kind::run;
  }

  void take_long(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    Flag* const flag = find(name);
    if (flag == nullptr && asks(name)) {
      if (has_value) throw Error(ErrorCode::usage, word, "takes no value", help());
      return;
    }
    if (flag == nullptr) return leave();
    Given& given = given_[flag];
    ++given.times;
    if (has_value) given.values.push_back(word.substr(equals + 1));
    take_values(*flag, given, has_value ? 1 : 0);
  }

  // "-n5", "-n 5", "-vq"
  void take_short(const std::string& word) {
    refuse_long_flags_behind_one_dash(path(), {word});
    for (size_t i = 1; i < word.size(); ++i) {
      const std::string name = {'-', word[i]};
      Flag* const flag = find(name);
      if (flag == nullptr && asks(name)) continue;
      if (flag == nullptr) return leave();
      Given& given = given_[flag];
      ++given.times;
      if (std::holds_alternative<bool*>(flag->target)) continue;
      const std::string rest = word.substr(i + 1);
      if (!rest.empty()) given.values.push_back(rest);
      return take_values(*flag, given, rest.empty() ? 0 : 1);
    }
  }

  // The words after a flag, of whose values `count` are there. A word after a flag that may lack
  // its value is its value where it can be no argument of the command, or where it is the name of a
  // .json file: shell/output.h.
  void take_values(const Flag& flag, Given& given, size_t count) {
    if (std::holds_alternative<bool*>(flag.target)) return;
    if (flag.rules.may_lack_value && count == 0) {
      const std::string next = at_ < words_.size() ? words_[at_] : "-";
      const bool may_be_word = takes_words(*path_.back(), words_);
      const bool has_value = !next.starts_with('-') && (!may_be_word || next.ends_with(".json"));
      given.lacks_value = !has_value;
      if (!has_value) return;
    }
    const size_t wanted = static_cast<size_t>(std::max(1, flag.rules.count));
    for (; count < wanted && at_ < words_.size(); ++count) given.values.push_back(words_[at_++]);
  }

  // The command's places take its words in order. Those that must have one get theirs first.
  void fill_places(size_t depth) {
    std::vector<Word> words;
    std::copy_if(places_.begin(), places_.end(), std::back_inserter(words),
                 [&](const Word& word) { return word.depth == depth; });
    const auto is_required = [](const Flag& f) { return f.is_positional() && f.rules.required; };
    std::vector<Flag>& flags = path_[depth]->flags;
    size_t reserved = static_cast<size_t>(std::count_if(flags.begin(), flags.end(), is_required));
    size_t next = 0;
    for (Flag& flag : flags) {
      if (!flag.is_positional()) continue;
      if (is_required(flag)) --reserved;
      const size_t free = words.size() - next > reserved ? words.size() - next - reserved : 0;
      const size_t count = takes_several(flag.target) ? free : std::min<size_t>(free, 1);
      for (size_t i = 0; i < count; ++i) {
        given_[&flag].times = 1;
        given_[&flag].values.push_back(words_[words[next++].place]);
      }
    }
    left_.insert(left_.end(), words.begin() + static_cast<ptrdiff_t>(next), words.end());
  }

  // What no flag and no place took of the outermost command that has such, in the order given.
  std::pair<size_t, std::vector<std::string>> left_over() const {
    std::vector<Word> left = left_;
    std::sort(left.begin(), left.end(), [](const Word& one, const Word& other) {
      return std::pair(one.depth, one.place) < std::pair(other.depth, other.place);
    });
    std::pair<size_t, std::vector<std::string>> result;
    for (const Word& word : left) {
      if (word.depth != left.front().depth) break;
      result.first = word.depth;
      result.second.push_back(words_[word.place]);
    }
    return result;
  }

  void refuse_unexpected() const {
    auto [depth, unknown] = left_over();
    if (unknown.empty()) return;
    const CommandPath owner(path_.begin(), path_.begin() + static_cast<ptrdiff_t>(depth) + 1);
    hide_values_of_secrets(unknown);
    throw unexpected(owner, unknown, words_before(*owner.back()));
  }

  // "--api-key one two": what a secret's flag did not take may have been meant for it.
  void hide_values_of_secrets(std::vector<std::string>& unknown) const {
    const bool has_secret = std::any_of(
        given_.begin(), given_.end(), [](const auto& each) { return each.first->rules.is_secret; });
    for (std::string& word : unknown)
      if (has_secret && !word.starts_with('-')) word = kHidden;
  }

  // "tyto modells --help" asks for the help of no command that there is.
  void refuse_unknown_commands() const {
    if (path_.back()->commands.empty()) return;
    for (const Word& word : places_)
      if (word.depth + 1 == path_.size()) throw unexpected(path(), {words_[word.place]});
  }

  // The words so far of a command that takes one text, where more words follow.
  GivenText words_before(const CommandLine& command) const {
    for (const Flag& flag : command.flags) {
      const auto given = given_.find(&flag);
      if (given != given_.end() && !flag.rules.text_kind.empty())
        return {flag.rules.text_kind, joined(given->second.values, " ")};
    }
    return {};
  }

  static void clear_given(CommandLine& command) {
    for (Flag& flag : command.flags) {
      flag.given = false;
      flag.given_at.clear();
    }
    for (CommandLine& below : command.commands) clear_given(below);
  }

  void for_given(void (*visit)(Flag& flag, Given& given)) {
    for (CommandLine* command : path_)
      for (Flag& flag : command->flags)
        if (const auto found = given_.find(&flag); found != given_.end())
          visit(flag, found->second);
  }

  template <class Work>
  void with_help(const Work& work) const {
    try {
      work();
    } catch (Error& error) {
      if (error.code != ErrorCode::usage) throw;
      if (!error.hint.empty() && !help().empty())
        error.hint += error.hint.ends_with('?') ? " " : "; ";
      error.hint += help();
      throw;
    }
  }

  static void check_given(Flag& flag, Given& given) {
    flag.given = true;
    const std::string problem = wrong_count(flag, given);
    if (!problem.empty()) throw Error(ErrorCode::usage, flag.name(), problem);
    if (given.lacks_value)
      given.values = {""};
    else
      for (std::string& text : given.values) check_value(flag, text);
  }

  static void fill(Flag& flag, Given& given) {
    std::visit([&](const auto& target) { store(flag, given.values, target); }, flag.target);
  }

  static std::string wrong_count(const Flag& flag, const Given& given) {
    const bool is_bool = std::holds_alternative<bool*>(flag.target);
    if (is_bool) return given.values.empty() ? "" : "takes no value";
    const size_t count = static_cast<size_t>(flag.rules.count);
    if (count > 1 && given.values.size() != count)
      return fmt::format("takes {} values, {}", count, flag.value);
    if (given.times > 1 && !takes_several(flag.target)) return "is given more than once";
    if (given.lacks_value || given.values.size() >= given.times) return "";
    return "needs a value" + (flag.value.empty() ? "" : ", " + flag.value);
  }

  void refuse_missing_places() const {
    for (const Flag& flag : path_.back()->flags)
      if (flag.is_positional() && flag.rules.required && !flag.given)
        throw Error(ErrorCode::usage, full_name(path()),
                    flag.called() + " is missing" + taken_word(), help());
  }

  // Why a word that is there is none of the command's: a flag before it took it.
  std::string taken_word() const {
    for (const auto& [flag, given] : given_)
      if (flag->rules.may_lack_value && !given.values.empty())
        return fmt::format(": {} took {} as its output; put {} before {}", flag->name(),
                           given.values.front(), given.values.front(), flag->name());
    return "";
  }

  [[noreturn]] void refuse(const Flag& flag, const std::string& what) const {
    throw Error(ErrorCode::usage, flag.given_at, flag.called() + what, help());
  }

  void check_exclusions(const CommandLine& command) const {
    for (const Flag& flag : command.flags)
      for (const std::string& other : flag.rules.excludes)
        if (flag.given && command.is_given(other))
          refuse(flag, " and " + command.flag(other).called() + " exclude each other");
  }

  void check_needs(const CommandLine& command) const {
    const auto is_given = [&](const std::string& name) { return command.is_given(name); };
    for (const Flag& flag : command.flags) {
      if (!flag.given && flag.rules.required) refuse(flag, " is required");
      if (!flag.given) continue;
      // A control that would do nothing is an error, not a hope.
      const std::vector<std::string>& needed = flag.rules.needs_one_of;
      if (!needed.empty() && std::none_of(needed.begin(), needed.end(), is_given))
        refuse(flag, fmt::format(": has no effect without {}", fmt::join(needed, " or ")));
    }
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;             // the next word
  bool only_places_ = false;  // behind "--"
  Invocation::Kind kind_ = Invocation::Kind::run;
  std::vector<CommandLine*> path_;
  std::map<const Flag*, Given> given_;
  std::vector<Word> places_, left_;
};

// "help kernels list" as "kernels list --help".
std::vector<std::string> with_help_last(const CommandLine& program,
                                        const std::vector<std::string>& arguments) {
  if (program.commands.empty() || arguments.empty() || arguments.front() != "help")
    return arguments;
  std::vector<std::string> result(arguments.begin() + 1, arguments.end());
  result.emplace_back("--help");
  return result;
}

std::string default_text(const Flag& flag) {
  return is_unlimited(flag) ? "-1" : value_text(flag.target);
}

template <class Flags>
auto find_flag(Flags& flags, std::string_view name) {
  const auto found =
      std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name() == name; });
  TYTO_ASSERT(found != flags.end());
  return found;
}

}  // namespace

bool takes_several(const Target& target) {
  if (const auto* other = std::get_if<Typed>(&target)) return other->takes_several;
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<uint32_t>*>(target);
}

bool hold_the_same(const Target& one, const Target& other) {
  if (const auto* typed_one = std::get_if<Typed>(&one))
    return typed_one->words() == std::get<Typed>(other).words();
  return std::visit(
      [&](const auto& value) {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_pointer_v<T>) return *value == *std::get<T>(other);
        return true;
      },
      one);
}

void assign(const Target& to, const Target& from) {
  if (const auto* typed_from = std::get_if<Typed>(&from))
    return std::get<Typed>(to).read(typed_from->words(), "");
  std::visit(
      [&](const auto& target) {
        using T = std::remove_cvref_t<decltype(target)>;
        if constexpr (std::is_pointer_v<T>) *target = *std::get<T>(from);
      },
      to);
}

std::string value_text(const Target& target) {
  if (const auto* other = std::get_if<Typed>(&target)) return joined(other->words(), ",");
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>)
          return text_of(*value);
        else
          return std::string();
      },
      target);
}

namespace {

struct Unit {
  const char* name;
  uint64_t factor;
};
constexpr Unit kSizes[] = {{"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}};
constexpr Unit kTimes[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};

// A whole number of at least 1 and a unit; nothing: it is none, or too large.
std::optional<uint64_t> with_unit(const std::string& word, std::span<const Unit> units,
                                  uint64_t most) {
  uint64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  const auto unit = std::ranges::find(units, std::string_view(rest, end), &Unit::name);
  const bool is_good = error == std::errc() && unit != units.end() && value > 0;
  if (!is_good || value > most / unit->factor) return std::nullopt;
  return value * unit->factor;
}

// In the largest unit that leaves it whole.
std::string in_units(uint64_t value, std::span<const Unit> units) {
  size_t unit = units.size() - 1;
  while (unit > 0 && value % units[unit].factor != 0) --unit;
  return fmt::format("{}{}", value / units[unit].factor, units[unit].name);
}

}  // namespace

Typed size_target(uint64_t& bytes) {
  const auto read = [](const std::string& word, const std::string& flag) {
    if (const auto size = with_unit(word, kSizes, UINT64_MAX >> 1)) return *size;
    throw Error(ErrorCode::usage, flag + " " + word, "expected a size like 512M or 4G");
  };
  return typed(bytes, read, [](uint64_t size) { return size == 0 ? "" : in_units(size, kSizes); });
}

Typed time_target(std::optional<std::chrono::milliseconds>& time) {
  using Time = std::optional<std::chrono::milliseconds>;
  const auto read = [&time](const std::vector<std::string>& words, const std::string& flag) {
    if (words == std::vector<std::string>{"never"}) return time.reset();
    constexpr uint64_t kMost = 1'000'000 * uint64_t{86'400'000};
    const auto given = words.empty() ? std::nullopt : with_unit(words.front(), kTimes, kMost);
    if (!given)
      throw Error(ErrorCode::usage, flag + " " + joined(words, " "),
                  "expected a time like 30s, 5m, 1h, or never");
    time = Time(*given);
  };
  const auto words = [&time]() -> std::vector<std::string> {
    return {time ? in_units(static_cast<uint64_t>(time->count()), kTimes) : "never"};
  };
  return {&time, false, read, words};
}

Flag::Flag(std::string its_names, bool* its_target, std::string its_meaning, Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

Flag::Flag(std::string its_names, Target its_target, std::string its_value, std::string its_meaning,
           Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      value(std::move(its_value)),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

Flag::Flag(std::string its_names, Target its_target, OneOf choices, std::string its_meaning,
           Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      allowed(std::move(choices)),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

std::string Flag::name() const {
  const size_t comma = names.find(",--");
  return comma == std::string::npos ? names : names.substr(comma + 1);
}

std::string Flag::called() const {
  return is_positional() && !value.empty() ? value : name();
}

CommandLine::CommandLine(std::string its_name, std::string its_summary)
    : name(std::move(its_name)), summary(std::move(its_summary)) {}

void CommandLine::add(std::vector<Flag> rows) {
  add(kPlainGroup, std::move(rows));
}

bool is_unlimited(const Flag& flag) {
  const auto* number = std::get_if<uint32_t*>(&flag.target);
  return flag.rules.is_unlimited_at_minus_1 && number != nullptr && **number == UINT32_MAX;
}

void CommandLine::add(const std::string& heading, std::vector<Flag> rows) {
  for (Flag& row : rows) {
    row.group = heading;
    if (row.rules.shows_default) row.default_text = default_text(row);
    flags.push_back(std::move(row));
  }
}

void CommandLine::remove(std::string_view flag) {
  flags.erase(find_flag(flags, flag));
}

Flag& CommandLine::flag(std::string_view flag) {
  return *find_flag(flags, flag);
}

const Flag& CommandLine::flag(std::string_view flag) const {
  return *find_flag(flags, flag);
}

bool CommandLine::is_given(std::string_view flag) const {
  return find_flag(flags, flag)->given;
}

CommandLine& CommandLine::add_command(const std::string& its_name, const std::string& its_summary) {
  CommandLine& command = commands.emplace_back(its_name, its_summary);
  command.footer = footer;
  return command;
}

std::string full_name(const CommandPath& path) {
  return joined(path, " ", [](const CommandLine* command) { return command->name; });
}

Invocation parse(CommandLine& program, const std::vector<std::string>& arguments) {
  return Parser(program, with_help_last(program, arguments)).parse();
}

void refuse_idle_flags(const CommandLine& command, const std::string& mode,
                       const std::function<bool(const Flag&)>& has_effect) {
  for (const Flag& flag : command.flags)
    if (flag.given && flag.name() != mode && !has_effect(flag))
      throw Error(ErrorCode::usage, flag.name(), "has no effect together with " + mode);
}

void set_flag(const Flag& flag, const std::vector<std::string>& arguments) {
  CommandLine alone("", "");
  alone.flags.push_back(flag);
  Rules& rules = alone.flags.front().rules;
  rules.required = false;
  rules.excludes.clear();
  rules.needs_one_of.clear();
  parse(alone, arguments);
}

}  // namespace tyto
