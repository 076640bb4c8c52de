#include "cli/provenance.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

struct Values {
  std::vector<std::string> keys;
  std::string word;
  uint32_t pin = 0;
  std::string name;
};

TEST(Provenance, SecretsOfTheCommandLineAreNeitherKeptNorLeftInMemory) {
  CommandLine program("tyto", "");
  CommandLine& fly = program.add_command("fly", "");
  Values& values = fly.values<Values>();
  fly.add({{"-k,--opener", &values.keys, "KEY", "who may", Rules{.is_secret = true}},
           {"--word", &values.word, "WORD", "a word", Rules{.is_secret = true}},
           {"--pin", &values.pin, "N", "a number", Rules{.is_secret = true}},
           {"--name", &values.name, "NAME", "who"}});
  std::vector<std::string> words = {"tyto", "fly",    "-ks3cret",        "--opener=[s3cret two]",
                                    "-k",   "odd",    "--word=w0rd",     "--pin",
                                    "4711", "--name", "http://n:w@h/a b"};
  const Invocation asked = parse(program, {words.begin() + 1, words.end()});
  ASSERT_EQ(values.keys, (std::vector<std::string>{"s3cret", "[s3cret two]", "odd"}));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  record_command_line(asked.path, static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(command_line(),
            "tyto fly -k*** --opener=*** -k *** --word=*** --pin *** --name 'http://***@h/a b'");
  EXPECT_EQ(words, (std::vector<std::string>{"tyto", "fly", "-k******", "--opener=************",
                                             "-k", "***", "--word=****", "--pin", "****", "--name",
                                             "http://***@h/a b"}));
}

}  // namespace
}  // namespace tyto
