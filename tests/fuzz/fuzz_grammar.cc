// Compiles arbitrary bytes as a grammar ('g' first) or as a JSON schema, and follows a text through
// what comes out. Anything but an Error that leaves it is a finding, and so is a place where
// nothing goes on.
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"

namespace tyto {
namespace {

// A few hundred bytes, each one that is allowed, as numbers that come from the input choose.
void walk(GrammarMatcher& matcher, uint32_t random) {
  auto place = matcher.start();
  matcher.allow_work();
  for (int step = 0; step < 300; ++step) {
    random = random * 1664525u + 1013904223u;
    auto next = GrammarMatcher::kNowhere;
    for (unsigned i = 0; i < 256 && next == GrammarMatcher::kNowhere; ++i)
      next = matcher.next(place, static_cast<uint8_t>((random >> 24) + i));
    if (next == GrammarMatcher::kNowhere) {
      TYTO_ASSERT(matcher.may_end(place));
      return;
    }
    place = step % 100 == 99 ? matcher.forget_but(next) : next;
  }
}

void run(std::string_view input) {
  if (input.empty()) return;
  uint32_t random = 0;
  for (const char c : input) random = random * 31 + static_cast<uint8_t>(c);
  const std::string_view source = input.substr(1);
  try {
    const auto grammar = std::make_shared<const Grammar>(
        input[0] == 'g' ? Grammar(source) : grammar_from_json_schema(Json::parse(source, "input")));
    GrammarMatcher matcher(grammar);
    for (uint32_t i = 0; i < 4; ++i) walk(matcher, random + i);
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
