// How help looks: one column of flags, one of meanings. --help has what people use first and fits
// a screen; --help-all has every flag, grouped by what it is about. Also where the documents are
// that help and messages name as docs/NAME.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tyto {

struct CommandLine;
struct Flag;

inline constexpr size_t kUsualHelpWidth = 80;  // columns, where no terminal says another

// What pages of the manual have in common with --help.
std::string flag_names(const Flag& flag);    // "-m, --model"
std::string flag_value(const Flag& flag);    // "MODEL"; empty: it takes none
std::string flag_meaning(const Flag& flag);  // with its default, and the values if they are many
std::vector<std::string> flag_groups(const CommandLine& command);     // the plain one first
std::string usage_line(const std::vector<const CommandLine*>& path);  // "tyto run [OPTIONS]"

// Broken into lines of at most `width` columns; those after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t indent, size_t width = kUsualHelpWidth);

enum class HelpSize { brief, whole };

// The help of the last command of `path`, which begins with the program. Lines of a footer that
// begin with a space, such as examples, are not broken.
std::string help_text(const std::vector<const CommandLine*>& path, size_t width = kUsualHelpWidth,
                      HelpSize size = HelpSize::brief);

// With the path of each page that is installed or in the source tree in place of its name.
// Whatever prints such a name while it runs calls this; help and hints of errors do so by
// themselves. JSON and reports that are sent to others keep the names.
std::string with_documents_found(const std::string& text);

// This one is told in which folder the program lies.
std::string with_documents_found(const std::string& text, const std::filesystem::path& folder);

}  // namespace tyto
