// What a profile comes to, in sentences, and what the names in it mean. Inside src/report only.
#pragma once

#include <string>
#include <vector>

#include "report/summary.h"
#include "trace/profile.h"

namespace tyto {

// "78 % of a decoded token is spent in the layers; …": where time went in the phase that most
// readers ask for, the decode where there is one.
std::string conclusion(const ProfileRun& run, const Summary& summary);

// The prompt and the answer, shortened to a line each; none where the profile does not have them.
std::vector<std::string> request_lines(const Profile& profile, const ProfileRun& run);

// "o_ffn: attention's output projection, then the feed-forward", for every name in the dataflow
// that is not plain English.
std::vector<std::string> name_lines(const Summary& summary);

}  // namespace tyto
