#include "cli/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tyto {
namespace {

constexpr size_t kFlagColumn = 32;
constexpr size_t kLineWidth = 100;

// "TEXT:{op,block}" shows its choices, "N:UINT in [1 - 9]" just N.
std::string value_name(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  const size_t choices = name.find('{');
  if (choices != std::string::npos) {
    std::string shown = name.substr(choices + 1, name.find('}') - choices - 1);
    for (char& c : shown)
      if (c == ',') c = '|';
    return shown.size() <= 24 ? shown : "NAME";
  }
  return name.substr(0, name.find(':'));
}

class HelpLayout : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string flags = "  " + make_option_name(option, is_positional);
    for (size_t at = flags.find(",--"); at != std::string::npos; at = flags.find(",--", at + 3))
      flags.replace(at, 1, ", ");
    if (option->get_type_size() != 0) flags += " " + value_name(*option);
    std::string meaning = option->get_description();
    if (value_name(*option) == "NAME" && option->get_type_name().find('{') != std::string::npos)
      meaning += ": " + choices(*option);
    if (!option->get_default_str().empty())
      meaning += " (default: " + option->get_default_str() + ")";
    if (option->get_required()) meaning += " (required)";
    const std::string gap = flags.size() + 2 > kFlagColumn
                                ? "\n" + std::string(kFlagColumn, ' ')
                                : std::string(kFlagColumn - flags.size(), ' ');
    return flags + gap + wrapped(meaning, kFlagColumn) + "\n";
  }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string out = (group == "Options" ? "\n" : "") + group + ":\n";
    for (const CLI::Option* option : options) out += make_option(option, is_positional);
    return out;
  }

  std::string make_description(const CLI::App* app) const override {
    if (app->get_parent() == nullptr) return app->get_description() + "\n\n";
    return fmt::format("tyto {}: {}\n\n", app->get_name(), app->get_description());
  }

 private:
  static std::string choices(const CLI::Option& option) {
    const std::string name = option.get_type_name();
    const size_t begin = name.find('{') + 1;
    std::string list = name.substr(begin, name.find('}') - begin);
    for (size_t at = list.find(','); at != std::string::npos; at = list.find(',', at + 2))
      list.insert(at + 1, " ");
    return list;
  }
};

}  // namespace

std::string wrapped(const std::string& text, size_t indent) {
  std::istringstream words(text);
  std::string out;
  size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kLineWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

void use_help_layout(CLI::App& app) {
  const auto layout = std::make_shared<HelpLayout>();
  layout->column_width(kFlagColumn);
  app.formatter(layout);
}

}  // namespace tyto
