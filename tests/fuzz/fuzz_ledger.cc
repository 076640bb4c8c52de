// Reads arbitrary bytes as a ledger of results, with and without a head, and looks at every entry.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "evidence/ledger.h"
#include "evidence/seal.h"

namespace tyto {
namespace {

void look_at(const Ledger& ledger) {
  for (const LedgerProblem& problem : ledger.problems) to_text(problem);
  for (const LedgerEntry& entry : ledger.entries) {
    superseded_mark(entry);
    broken_mark(ledger, entry);
    previous_of(entry.line);
    try {
      find_result(ledger, entry.id);
    } catch (const Error&) {
    }
  }
}

void run(const std::string& text) {
  const PublicKey trusted{"LQJPjlWdPR1UzjRnVPlYxyLdU4oyhIDfjYWBzcxMs6E="};
  look_at(parse_ledger(text, {}));
  look_at(parse_ledger(text, LedgerHead{1, digest(text.substr(0, text.find('\n')))}, &trusted));
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
