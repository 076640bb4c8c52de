// A sealed object: JSON whose last members are `hash` and, where somebody signed it, `signature`.
// What is hashed is the text itself, without the seal and without white space between its parts: no
// number is read and written anew, no member is put in order, so that there is nothing to agree
// upon. docs/evidence.md has the definition, and ten lines of Python that check it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/signing_key.h"

namespace tyto {

// Appends the seal to an object that has none.
void seal(nlohmann::ordered_json& object, const SigningKey* key);

struct Signature {
  PublicKey key;
  bool is_good = false;  // it is that key's, of this hash
};

struct Seal {
  std::string stated;    // the hash in the object; empty: it has none at its end
  std::string computed;  // of what it holds
  std::optional<Signature> signature = {};

  bool is_whole() const { return !stated.empty() && stated == computed; }
};
Seal read_seal(std::string_view object);

// Why the key that is trusted does not stand for the object; empty where it does.
std::string distrust(const Seal& seal, const PublicKey& trusted);

// JSON text without white space outside its strings.
std::string without_space(std::string_view json);

// The text of a member of an object, as it stands there; of members with the same name the last.
// The text must be valid JSON. Empty where there is none.
std::string_view member_text(std::string_view object, std::string_view name);
std::vector<std::string_view> element_texts(std::string_view array);

}  // namespace tyto
