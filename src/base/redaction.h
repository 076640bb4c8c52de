// What must not be seen in a receipt, a report, a log or an error: keys, tokens, passwords, and
// addresses that open a file to those who have them. Everything that redacts does it with this.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

inline constexpr std::string_view kHidden = "***";  // stands where a secret was

struct TextPart {
  size_t begin = 0;
  size_t end = 0;  // behind the last byte
};

// The secrets of a text that can be told by their form: name and password of an address
// ("http://name:word@host", "name:word@host"), its query, which may be a signature, the value of an
// Authorization header and its like, and tokens of Hugging Face. In order, none inside another.
std::vector<TextPart> secret_parts(std::string_view text);
std::string redacted(std::string_view text);

// The same for words of a command line, one list per word. Beside these, each of the `secrets`
// wherever it stands, and the value of a flag or a variable whose name is one of a secret: "--token
// X", "HF_TOKEN=X", and "--token: X" as one word.
std::vector<std::vector<TextPart>> secret_parts(const std::vector<std::string>& words,
                                                const std::vector<std::string>& secrets);
std::vector<std::string> redacted_words(const std::vector<std::string>& words);
// As it would be typed into a shell: "tyto serve --api-key ***".
std::string redacted_command(const std::vector<std::string>& words,
                             const std::vector<std::string>& secrets);
// What that wrote when it knew fewer secrets.
std::string redacted_command_text(const std::string& command);

// For an address, however it is written: all before its last @, and its query.
std::string redacted_address(std::string_view address);
// For text that may quote one: all before its last @, or what is in quotes before it.
std::string redacted_quote(std::string_view text);

}  // namespace tyto
