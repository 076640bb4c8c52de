// Opens arbitrary bytes as a GGUF file, and tokenises with its vocabulary if it has one.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "fuzz/touch_weights.h"
#include "model/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

constexpr std::string_view kText =
    "Hello's w\u00F6rld  12345\r\n\t\u4F60\u597D e\u0301 <s>\xFF\xE2\x82 [CLS] ";

void tokenize(Vocabulary vocabulary) {
  const Tokenizer tokenizer(std::move(vocabulary), "input.gguf");
  const auto tokens = tokenizer.encode(kText, {.parse_special = true});
  tokenizer.decode(tokens, true);
}

void run(std::span<const std::byte> bytes) {
  for (const Need need : {Need::weights, Need::vocabulary}) {
    try {
      const Gguf gguf = parse_gguf(bytes, "input.gguf");
      Model model;
      fill_model_from_gguf(gguf, need, model);
      touch_weights(model);
      if (model.vocabulary) tokenize(std::move(*model.vocabulary));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
