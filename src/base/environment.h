// Every environment variable Tyto looks at, read in one place.
#pragma once

#include <filesystem>
#include <vector>

namespace tyto {

// Where Hugging Face checkpoints may already lie, first match wins:
// HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub.
std::vector<std::filesystem::path> hugging_face_cache_folders();

// A TYTO_* variable that nothing reads is a control that silently does nothing: an error.
void refuse_unknown_environment();

}  // namespace tyto
