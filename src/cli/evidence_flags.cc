#include "cli/evidence_flags.h"

#include <algorithm>

#include "base/error.h"
#include "base/spelling.h"
#include "shell/command_line.h"

namespace tyto {

Flag sign_flag(std::string& key_file) {
  return {"--sign", &key_file, "KEYFILE",
          "sign what is written with this key (`tyto receipt keygen` makes one)"};
}

std::unique_ptr<SigningKey> signing_key(const std::string& key_file) {
  return key_file.empty() ? nullptr : std::make_unique<SigningKey>(key_file);
}

void check_sign_flag(const CommandLine& command, std::initializer_list<const char*> signs) {
  const bool has_something = std::any_of(signs.begin(), signs.end(),
                                         [&](const char* flag) { return command.is_given(flag); });
  if (command.is_given("--sign") && !has_something)
    throw Error(ErrorCode::usage, "--sign", "has nothing to sign", "add " + joined(signs, " or "));
}

Flag trust_flag(std::string& key) {
  return {"--trust", &key, "PUBKEY",
          "accept only what this key signed: a file KEYFILE.pub, or the text in it"};
}

std::optional<PublicKey> trusted_key(const std::string& key) {
  return key.empty() ? std::nullopt : std::optional(public_key_from(key));
}

}  // namespace tyto
