// What a command takes, as data: its flags, where their values go, and what --help says of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tyto {

// A value of any other type, through the words that stand for it on a command line.
struct Typed {
  const void* value = nullptr;
  bool takes_several = false;
  // Throws a usage Error that begins with the flag's name. No words: the value is empty.
  std::function<void(const std::vector<std::string>& words, const std::string& flag)> read = {};
  std::function<std::vector<std::string>()> words = {};

  bool operator==(const Typed& other) const { return value == other.value; }
};

// Where a value goes, and so what kind of value it is. A bool is a flag without one. An optional
// stays empty unless the flag is given. A vector takes several: a flag is given once for each,
// unless Rules::count says how many follow it.
using Target = std::variant<bool*, std::string*, uint32_t*, uint64_t*, float*, double*,
                            std::optional<std::string>*, std::optional<uint32_t>*,
                            std::optional<uint64_t>*, std::optional<float>*, std::optional<double>*,
                            std::vector<std::string>*, std::vector<uint32_t>*, Typed>;

// What a target holds: one value of an optional or a vector.
template <class T>
struct ValueIn {
  using Type = T;
};
template <class T>
struct ValueIn<std::optional<T>> : ValueIn<T> {};
template <class T>
struct ValueIn<std::vector<T>> : ValueIn<T> {};

// `read(word, flag)` gives a value, `word(value)` what stands for it; an empty word stands for
// nothing. A vector takes several.
template <class T, class Read, class Word>
Typed typed(T& target, Read read, Word word) {
  using Value = typename ValueIn<T>::Type;
  constexpr bool kSeveral = std::is_same_v<T, std::vector<Value>>;
  const auto take = [&target, read](const std::vector<std::string>& words,
                                    const std::string& flag) {
    T result = {};
    for (const std::string& each : words)
      if constexpr (kSeveral)
        result.push_back(read(each, flag));
      else
        result = read(each, flag);
    target = std::move(result);
  };
  const auto give = [&target, word] {
    std::vector<std::string> words;
    const auto add = [&](const Value& value) {
      if (std::string text = word(value); !text.empty()) words.push_back(std::move(text));
    };
    if constexpr (kSeveral)
      for (const Value& value : target) add(value);
    else if constexpr (std::is_same_v<T, Value>)
      add(target);
    else if (target)
      add(*target);
    return words;
  };
  return {&target, kSeveral, take, give};
}

// Bytes, as "512M" or "4G"; 0 stands for nothing.
Typed size_target(uint64_t& bytes);
// "500ms", "30s", "5m", "1h", "2d", or "never", which is no time.
Typed time_target(std::optional<std::chrono::milliseconds>& time);

bool takes_several(const Target& target);
// Both targets are of one kind.
bool hold_the_same(const Target& one, const Target& other);
void assign(const Target& to, const Target& from);
// As it would stand behind its flag; empty where there is none.
std::string value_text(const Target& target);

// Both ends belong to it. A whole number without one has the range of its type.
struct Range {
  double least = 0;
  double most = 0;
};

enum class Letters {
  exact,
  any_case,  // what is passed on is what was typed
  as_listed  // any case; what is passed on is the value of the list
};

// The only values that there are.
struct OneOf {
  OneOf(std::initializer_list<const char*> names) : values(names.begin(), names.end()) {}
  OneOf(std::vector<std::string> names, Letters spelled,
        std::string (*why_not_this)(std::string_view) = nullptr)
      : values(std::move(names)), letters(spelled), why_not(why_not_this) {}

  std::vector<std::string> values;
  Letters letters = Letters::exact;
  // What to say of a value that people may well expect here; empty of others. May be null.
  std::string (*why_not)(std::string_view) = nullptr;
};

struct Rules {
  std::optional<Range> range = {};
  bool is_unlimited_at_minus_1 = false;  // -1 is then the largest number of the target's type
  bool shows_default = false;            // in --help: what the target holds when the flag is added
  bool required = false;
  bool is_folder = false;       // that exists
  bool may_be_empty = false;    // else --require "$UNSET" is an error, and not no requirement
  bool may_lack_value = false;  // "--json" alone is an empty value; shell/output.h has the rule
  bool is_secret = false;       // *** stands for it in receipts and errors (base/redaction.h)
  std::string alias = {};       // "--dtype": another name, which --help does not show
  std::string text_kind = {};   // "prompt": an argument of several words, which needs quotes
  int count = 0;                // how many values a vector takes; 0: any number
  char separator = '\0';        // stands between several numbers in one argument
  std::vector<std::string> excludes = {};
  // Beside these flags a word after --json is its FILE, and not this argument.
  std::vector<std::string> filled_by = {};
  std::vector<std::string> needs_one_of = {};  // without any of these flags it does nothing
  std::vector<std::string> devices = {};       // those that use it; empty: it is not about a device
};

inline constexpr const char* kPlainGroup = "Options";

struct Flag {
  Flag(std::string its_names, bool* its_target, std::string its_meaning, Rules its_rules = {});
  Flag(std::string its_names, Target its_target, std::string its_value, std::string its_meaning,
       Rules its_rules = {});
  Flag(std::string its_names, Target its_target, OneOf choices, std::string its_meaning,
       Rules its_rules = {});

  std::string names;  // "-m,--model"; without dashes: an argument known by its place
  Target target;
  std::string value;             // what --help calls it
  std::optional<OneOf> allowed;  // none: any
  std::string meaning;
  Rules rules;
  std::string group;         // the heading in --help
  std::string default_text;  // when it is shown
  bool given = false;        // on the command line, or by a file; parse() says
  std::string given_at;      // in which file: "config.toml:3:1"; empty: on the command line

  std::string name() const;    // the long one: "--model"
  std::string called() const;  // in a message: the name, or what --help calls an argument
  bool is_positional() const { return !names.starts_with('-'); }
};

bool is_unlimited(const Flag& flag);  // its value is what -1 stands for

// A command, a command below a command ("kernels list"), or the program itself. It stays where it
// is: its flags point into its values, and `run` may refer to it.
struct CommandLine {
  CommandLine(std::string its_name, std::string its_summary);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  std::string name;
  std::string summary;
  std::string alias;
  std::string group;  // the heading in the program's --help
  // Notes in paragraphs, then examples. --help shows the first paragraph and two examples.
  std::string footer;
  std::vector<std::string> first;  // flags that --help shows, in this order; empty: all
  std::string version;             // --version prints it; commands have none
  std::string device_names;        // the program's: what completes flags that end in "-device"
  std::vector<Flag> flags;
  std::list<CommandLine> commands;
  bool needs_command = false;          // a command without one is an error
  std::vector<std::string> arguments;  // all that parse() got for the program, once it did
  // Sets flags that the command line did not give; called before rules between flags are checked.
  std::function<void()> complete;
  std::function<void()> run;

  // Makes what the flags point into. It lives as long as the command.
  template <class T>
  T& values() {
    values_ = {new T(), [](void* value) { delete static_cast<T*>(value); }};
    return *static_cast<T*>(values_.get());
  }

  void add(std::vector<Flag> rows);  // in the plain group
  void add(const std::string& group, std::vector<Flag> rows);
  void remove(std::string_view flag);
  Flag& flag(std::string_view flag);  // "--model"; it is there
  const Flag& flag(std::string_view flag) const;
  bool is_given(std::string_view flag) const;

  // It has this footer until it sets its own.
  CommandLine& add_command(const std::string& its_name, const std::string& its_summary);

 private:
  std::unique_ptr<void, void (*)(void*)> values_ = {nullptr, [](void*) {}};
};

using CommandPath = std::vector<const CommandLine*>;  // the program, its command, the one below it
std::string full_name(const CommandPath& path);       // "tyto kernels list"

// What the arguments ask for.
struct Invocation {
  enum class Kind { run, help, whole_help, version };
  Kind kind = Kind::run;
  CommandPath path;

  const CommandLine& command() const { return *path.back(); }
};

// Fills the targets. An argument that does not fit is a usage Error. "help run" is "run --help",
// which shows the flags of CommandLine::first; --help-all shows all.
Invocation parse(CommandLine& program, const std::vector<std::string>& arguments);

// A flag that would do nothing beside `mode` is an error, not a surprise.
void refuse_idle_flags(const CommandLine& command, const std::string& mode,
                       const std::function<bool(const Flag&)>& has_effect);

// Fills one flag's target from arguments of its own ("--temp=0.5"): all rules about its value hold,
// none about other flags.
void set_flag(const Flag& flag, const std::vector<std::string>& arguments);

}  // namespace tyto
