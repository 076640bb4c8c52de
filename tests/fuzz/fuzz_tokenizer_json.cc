// Any bytes as tokenizer.json, and what follows a NUL as tokenizer_config.json: either an Error, or
// a tokenizer that encodes and decodes whatever it is given.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kText =
    "Hello's w\u00F6rld  12345\r\n\t\u4F60\u597D e\u0301 <s>\xFF\xE2\x82 ";
constexpr size_t kTailBytes = 256;

void exercise(const tyto::Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    tyto::EncodeOptions options;
    options.parse_special = parse_special;
    const auto tokens = tokenizer.encode(text, options);
    tokenizer.decode(tokens, true);
    tyto::Detokenizer stream(tokenizer);
    for (const tyto::Token token : tokens) stream.push(token);
    stream.finish();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t json_end = input.find('\0');
  tyto::TokenizerFiles files;
  files.tokenizer_json = input.substr(0, json_end);
  files.tokenizer_json_name = "tokenizer.json";
  if (json_end != std::string_view::npos) files.tokenizer_config_json = input.substr(json_end + 1);
  files.tokenizer_config_name = "tokenizer_config.json";
  try {
    const tyto::Tokenizer tokenizer(vocabulary_from_tokenizer_json(files), "tokenizer.json");
    const std::string_view tail = input.substr(size - std::min(size, kTailBytes));
    exercise(tokenizer, std::string(kText) + std::string(tail));
  } catch (const tyto::Error&) {
    // What the rest of the program would show to the user.
  }
  return 0;
}
