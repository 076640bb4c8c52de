// The state of one rendering: variables, output, everything allocated, and the limits that make a
// hostile template an error instead of a hang.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/jinja/value.h"

namespace tyto::jinja {

inline constexpr uint64_t kMaxSteps = 2'000'000;         // expressions, statements, elements
inline constexpr uint64_t kMaxWork = uint64_t{1} << 29;  // bytes searched, compared or copied
inline constexpr uint64_t kMaxHeap = uint64_t{1} << 27;  // bytes allocated by one rendering
inline constexpr size_t kMaxText = size_t{1} << 24;      // bytes of the output or of one string
inline constexpr int kMaxDepth = 400;                    // nested evaluations, macro calls included
inline constexpr int64_t kMaxRange = 100'000;

struct Machine {
  std::string name;  // of the template, for errors
  int line = 1;      // of what is being evaluated, for errors
  int depth = 0;
  uint64_t steps = 0;
  uint64_t work = 0;
  uint64_t heap = 0;

  std::string* output = nullptr;
  Scope* scope = nullptr;
  Value captured;  // the text that {% filter %} and {% set %} blocks hand to their filters
  std::tm now = {};

  // Deques: growing one moves nothing that a Value points to.
  std::deque<std::string> texts;
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Namespace> namespaces;
  std::deque<Scope> scopes;
  std::deque<Loop> loops;
  std::deque<Macro> macros;
  std::deque<BoundMethod> methods;
};

std::string where(const Machine& machine);

template <typename... Args>
[[noreturn]] void fail(const Machine& machine, fmt::format_string<Args...> format, Args&&... args) {
  fail_input(where(machine), format, std::forward<Args>(args)...);
}

// Values that must be defined.
void require_defined(const Machine& machine, const Value& value);

// For what Jinja has and this subset does not.
template <typename... Args>
[[noreturn]] void fail_construct(const Machine& machine, fmt::format_string<Args...> format,
                                 Args&&... args) {
  fail_unsupported(where(machine), format, std::forward<Args>(args)...);
}

void step(Machine& machine, uint64_t count = 1);
void charge_work(Machine& machine, uint64_t bytes);
void charge_heap(Machine& machine, uint64_t bytes);

std::string_view keep(Machine& machine, std::string text);  // already charged by its Builder
List* make_list(Machine& machine, bool tuple = false);
Value make_list(Machine& machine, std::vector<Value> items, bool tuple = false);
Dict* make_dict(Machine& machine);
Scope* make_scope(Machine& machine, Scope* parent);
void set_variable(Machine& machine, Scope& scope, std::string_view name, const Value& value);
void clear_variables(Machine& machine, Scope& scope);
void push(Machine& machine, List& list, const Value& value);
void write(Machine& machine, std::string_view text);

// Every string a template makes grows through this, so that no one of them escapes the limits.
class Builder {
 public:
  explicit Builder(Machine& machine) : machine_(machine) {}
  void add(std::string_view text);
  void add(size_t count, char c);
  void add(size_t count, std::string_view text);
  std::string_view finish() { return keep(machine_, std::move(text_)); }

 private:
  Machine& machine_;
  std::string text_;
};

// Held while something recursive runs; also makes `line` the current one.
class Nesting {
 public:
  Nesting(Machine& machine, int line);
  explicit Nesting(Machine& machine) : Nesting(machine, machine.line) {}
  ~Nesting();
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Machine& machine_;
  int outer_line_;
};

}  // namespace tyto::jinja
