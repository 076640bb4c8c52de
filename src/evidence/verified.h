// What `tyto verify` found on this machine, remembered from run to run: one JSON line per result in
// XDG_STATE_HOME/tyto/verified.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// Everything that decides what a run computes. Two runs with equal combinations give equal results.
struct Combination {
  std::string tyto;     // version: the cpu's kernels are in the program itself
  std::string weights;  // the model's identity, and not its weights' alone
  std::string driver;
  std::string hardware;  // empty: the processor, whose instruction set `driver` names
  std::string device;
  std::string fusion;
  std::string weight_form;
  std::string kv_type;
  std::string numerics;
  std::vector<std::string> images;  // hashes of what the devices loaded; sorted, no doubles
};

struct VerifiedRecord {
  Combination combination;
  bool passed = false;
  std::string time;
  std::string against;
  uint32_t prompts = 0;
};

enum class Verified : uint8_t { yes, no, failed };
std::string_view name(Verified state);

struct Verification {
  Verified state = Verified::no;
  std::string time = {};     // when the result that counts, the newest, was made
  std::string warning = {};  // about the file, one line
};

std::string record_line(const VerifiedRecord& record);
// The newest line about a combination counts. A run may have loaded fewer images than its
// verification (a prompt without an answer loads no decode kernels), but none that was not there.
// Lines that are damaged or of another version are passed over, with one warning.
Verification look_up(std::string_view lines, const Combination& combination);

// The same with the file of this machine; a file that cannot be read is a warning, no Error.
Verification verification_of(const Combination& combination);
void remember(const VerifiedRecord& record);  // appends one line at once, for several processes

// Whether it was never said on this machine that a model was not verified on a device; from now on
// it was.
bool is_first_mention(const Combination& combination);

}  // namespace tyto
