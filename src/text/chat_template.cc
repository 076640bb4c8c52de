#include "text/chat_template.h"

#include <chrono>
#include <ctime>

#include "base/error.h"
#include "base/printable.h"
#include "text/chat_values.h"
#include "text/jinja_ast.h"
#include "text/jinja_evaluator.h"
#include "text/jinja_machine.h"
#include "text/jinja_parser.h"

namespace tyto {

struct ChatTemplate::Program {
  std::unique_ptr<const jinja::Program> code;
  bool knows_developer = false;  // the role
};

namespace {

std::tm today() {
  std::time_t now = std::time(nullptr);
  std::tm result = {};
  localtime_r(&now, &result);
  return result;
}

// Digits at [from, from + count) of "YYYY-MM-DD", or -1.
int date_field(const std::string& date, size_t from, size_t count) {
  int value = 0;
  for (size_t i = from; i < from + count; ++i) {
    if (date[i] < '0' || date[i] > '9') return -1;
    value = value * 10 + (date[i] - '0');
  }
  return value;
}

std::tm midnight_of(const std::string& date) {
  namespace chrono = std::chrono;
  bool shaped = date.size() == 10 && date[4] == '-' && date[7] == '-';
  int year = shaped ? date_field(date, 0, 4) : -1;
  int month = shaped ? date_field(date, 5, 2) : -1;
  int day = shaped ? date_field(date, 8, 2) : -1;
  chrono::year_month_day parsed{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                chrono::day(static_cast<unsigned>(day))};
  if (year < 0 || month < 0 || day < 0 || !parsed.ok()) {
    throw Error(ErrorCode::usage, "date",
                fmt::format("'{}' is not a date like 2025-01-31", printable_line(date, 40)));
  }
  chrono::sys_days days = parsed;
  chrono::sys_days new_year = parsed.year() / chrono::January / 1;
  std::tm result = {};
  result.tm_year = year - 1900;
  result.tm_mon = month - 1;
  result.tm_mday = day;
  result.tm_wday = static_cast<int>(chrono::weekday(days).c_encoding());
  result.tm_yday = static_cast<int>((days - new_year).count());
  result.tm_isdst = 0;
  return result;
}

bool mentions_developer(std::string_view source) {
  return source.find("'developer'") != source.npos || source.find("\"developer\"") != source.npos;
}

// A developer is what OpenAI calls a system message today.
std::vector<ChatMessage> without_developers(std::vector<ChatMessage> messages) {
  for (ChatMessage& message : messages)
    if (message.role == "developer") message.role = "system";
  return messages;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, const std::string& name)
    : program_(new Program{jinja::parse(source, name), mentions_developer(source)}) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                 const ChatOptions& options, const TextMap& map) const {
  std::string output;
  jinja::Machine machine;
  machine.name = program_->code->name;
  machine.output = &output;
  machine.now = options.date.empty() ? today() : midnight_of(options.date);
  machine.scope = jinja::make_scope(machine, nullptr);

  auto set = [&](std::string_view name, const jinja::Value& value) {
    jinja::set_variable(machine, *machine.scope, name, value);
  };
  const ChatValues values(machine, map);
  if (options.variables)
    options.variables->for_each_member(
        [&](std::string_view name, const Json& value) { set(name, values.of_json(value)); });
  for (const auto& [flag, value] : options.flags) set(flag, value);
  set("messages",
      values.of_messages(program_->knows_developer ? messages : without_developers(messages)));
  set("add_generation_prompt", options.add_generation_prompt);
  set("bos_token", std::string_view(options.bos_token));
  set("eos_token", std::string_view(options.eos_token));
  // transformers always passes these two.
  const bool has_tools = options.tools && options.tools->size() > 0;
  set("tools", has_tools ? values.of_json(*options.tools) : jinja::None{});
  set("documents", jinja::None{});

  jinja::execute(machine, *program_->code);
  return output;
}

}  // namespace tyto
