// One request by itself: tokens in, text or a vector out. (Many at once: engine/scheduler.h.)
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/job.h"

namespace tyto {

// Gets after each token the text that became complete, which may be none; returns false to stop.
using OnText = std::function<bool(std::string_view)>;

// From start to end. What the request ends with, or what `on_text` throws, is thrown.
Answer generate(const Generator& with, Sampler& sampler, Request request, const OnText& on_text);
// The same with all that is known of each token.
Answer generate_tokens(const Generator& with, Sampler& sampler, Request request,
                       const OnToken& on_token);

// A text as one vector, which says where its meaning lies among others: the mean of the hidden
// states at all positions, normalised.
struct Embedding {
  std::vector<float> values;  // [the model's width], of length 1
  Receipt receipt;
};
Embedding embed(const Generator& with, std::span<const Token> tokens,
                const Progress& progress = {});

// The logits of every position of a text: visit(position, logits).
Receipt read_logits(const Generator& with, std::span<const Token> tokens, const OnPosition& visit,
                    const Progress& progress = {});

}  // namespace tyto
