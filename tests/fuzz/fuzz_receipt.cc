// Checks arbitrary bytes as a receipt. Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "evidence/receipt_check.h"

namespace tyto {
namespace {

void run(std::string_view text) {
  const PublicKey trusted{"LQJPjlWdPR1UzjRnVPlYxyLdU4oyhIDfjYWBzcxMs6E="};
  for (const PublicKey* key : {static_cast<const PublicKey*>(nullptr), &trusted}) {
    try {
      check_receipt(text, "receipt.json", key).holds();
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
