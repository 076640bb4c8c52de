// Counts and times of an answer, as clients know them.
#pragma once

#include <cstdint>
#include <span>

#include "serve/api/answer.h"
#include "serve/api/json_text.h"

namespace tyto::api {

// OpenAI's: a prompt is counted once, however many choices answer it.
ordered_json usage_json(std::span<const Choice> choices, uint32_t choices_per_prompt);

// llama-server's. Where a virtual device took part the time is a simulation's: it says so, and
// there are no rates; nor are there where the receipt's cannot be true.
ordered_json timings_json(const Receipt& receipt);
// Of a receipt that does not have its devices yet.
ordered_json timings_json(const Receipt& receipt, bool is_simulated);

// Ollama's: nanoseconds. Its clients divide them; a simulation's say what they are.
void add_ollama_durations(ordered_json& json, const Receipt& receipt);

}  // namespace tyto::api
