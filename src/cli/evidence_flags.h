// --sign and --trust: who vouches for what is written, and whom to believe.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "evidence/seal.h"

namespace tyto {

struct CommandLine;
struct Flag;

Flag sign_flag(std::string& key_file);
std::unique_ptr<SigningKey> signing_key(const std::string& key_file);  // none without the flag
// Without one of the flags that write something to sign, it would do nothing: a usage Error.
void check_sign_flag(const CommandLine& command, std::initializer_list<const char*> signs);

Flag trust_flag(std::string& key);
std::optional<PublicKey> trusted_key(const std::string& key);

}  // namespace tyto
