// Drafters of every character, and requests that are answered with and without them.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/generate.h"

namespace tyto::testing_support {

// Guesses always: plain rounds seem to take for ever.
inline std::shared_ptr<Speculation> eager(Drafter drafter, uint32_t most = 8) {
  const auto costs = std::make_shared<RoundCosts>();
  for (int i = 0; i < 5; ++i) costs->observe(0, uint64_t{1} << 50);
  return std::make_shared<Speculation>(
      Speculation{"test", std::move(drafter), DraftLength(most, costs)});
}

// What it knows to follow; `spoilt` says which of the tokens, by their place, it gets wrong.
inline Drafter oracle(std::vector<Token> whole, std::function<bool(size_t)> spoilt = {}) {
  return [whole = std::move(whole), spoilt = std::move(spoilt)](std::span<const Token> text,
                                                                uint32_t most) {
    std::vector<Token> guesses;
    for (size_t i = text.size(); i < whole.size() && guesses.size() < most; ++i)
      guesses.push_back(spoilt && spoilt(i) ? (whole[i] + 1) % 61 : whole[i]);
    return guesses;
  };
}

struct NamedDrafter {
  const char* name;
  std::function<Drafter(const std::vector<Token>& whole)> make;
};

// `whole` is the prompt with the plain answer behind it.
inline const std::vector<NamedDrafter>& all_drafters() {
  using Whole = const std::vector<Token>&;
  static const std::vector<NamedDrafter> all = {
      {"always right", [](Whole whole) { return oracle(whole); }},
      {"always wrong", [](Whole whole) { return oracle(whole, [](size_t) { return true; }); }},
      {"every third wrong",
       [](Whole whole) { return oracle(whole, [](size_t i) { return i % 3 == 0; }); }},
      {"random",
       [](Whole whole) {
         return oracle(whole, [random = std::make_shared<std::mt19937>(5)](size_t) {
           return (*random)() % 2 == 0;
         });
       }},
      {"nothing",
       [](Whole) { return [](std::span<const Token>, uint32_t) { return std::vector<Token>(); }; }},
      {"longer than asked",
       [](Whole whole) {
         return
             [of = oracle(whole)](std::span<const Token> text, uint32_t) { return of(text, 1000); };
       }},
      {"no tokens",
       [](Whole whole) {
         return [of = oracle(whole)](std::span<const Token> text, uint32_t most) {
           std::vector<Token> guesses = of(text, 1);
           for (const Token none : {61, -1, INT32_MAX, INT32_MIN}) guesses.push_back(none);
           std::rotate(guesses.begin(), guesses.begin() + static_cast<long>(text.size() % 3),
                       guesses.end());
           guesses.resize(std::min<size_t>(guesses.size(), most));
           return guesses;
         };
       }},
      {"lookup", [](Whole) { return lookup_drafter(); }}};
  return all;
}

}  // namespace tyto::testing_support
