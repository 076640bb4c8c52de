// A conversation as people have it, in turns, and the file in which it is saved.
#pragma once

#include <string>
#include <vector>

#include "text/chat_template.h"

namespace tyto {

struct Exchange {
  std::string user;
  std::string assistant;  // empty: not answered yet
};

struct Dialogue {
  std::string system;  // empty: none
  std::vector<Exchange> exchanges;
};

// As a model gets them, from one exchange on.
std::vector<ChatMessage> messages_of(const Dialogue& dialogue, size_t first_exchange = 0);

// A file that is there already is replaced only if it is such a file, too.
void save_dialogue(const Dialogue& dialogue, const std::string& path);
// An input Error where the file is something else, or no dialogue of whole exchanges.
Dialogue load_dialogue(const std::string& path);

}  // namespace tyto
