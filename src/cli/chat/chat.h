// `tyto chat`, which is also what `tyto run MODEL` becomes on a terminal.
#pragma once

namespace tyto {

struct ChatCommandFlags;

// Until the user leaves. `flags` change with what the user sets.
void talk(ChatCommandFlags& flags);

}  // namespace tyto
