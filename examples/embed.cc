// A program with Tyto inside: loads a model, streams one answer, prints the receipt.
//
//     c++ -std=c++20 examples/embed.cc $(pkg-config --cflags --libs tyto) -o embed
//     ./embed MODEL 'Tell me a story about a fox.' [DEVICE]
#include <tyto.h>
#include <cstdio>
#include <exception>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT [DEVICE]\n", argv[0]);
    return 2;
  }
  tyto::library::ModelOptions options;
  options.model = argv[1];
  if (argc > 3) options.device = options.require = argv[3];
  tyto::library::Model model(options);

  tyto::library::Question question;
  question.prompt = argv[2];
  question.most_tokens = 200;
  const auto answer = model.answer(question, [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return true;  // false would stop the answer
  });

  const tyto::library::Receipt& receipt = answer.receipt;
  std::printf("\n%s · stopped at %s%s\n", receipt.line.c_str(), answer.reason.c_str(),
              receipt.is_modelled ? " · modelled" : "");
  for (const std::string& fallback : receipt.fallbacks)
    std::printf("fallback: %s\n", fallback.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
