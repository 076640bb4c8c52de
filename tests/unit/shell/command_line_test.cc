#include "shell/command_line.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "shell/help.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

struct Values {
  bool loud = false;
  std::string name = "owl";
  uint32_t count = 3;
  uint64_t seed = 0;
  float share = 0.5f;
  double seconds = 2;
  std::optional<std::string> form;
  std::optional<uint32_t> rows;
  std::optional<uint64_t> big;
  std::optional<float> heat;
  std::optional<double> tolerance;
  std::vector<std::string> words;
  std::vector<uint32_t> lengths;
};

// A program with one command, "fly", that has the given flags.
class CommandLineTest : public testing::Test {
 protected:
  Invocation parsed(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "fly");
    return parse(program, std::move(arguments));
  }

  std::string problem(std::vector<std::string> arguments) {
    try {
      parsed(std::move(arguments));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::usage);
      EXPECT_TRUE(error.hint.ends_with("see tyto fly --help")) << error.hint;
      hint = error.hint;
      return error.what();
    }
    return "none";
  }

  std::string hint;  // given with the last problem
  CommandLine program{"tyto", "A program."};
  CommandLine& fly = program.add_command("fly", "go through the air");
  Values& values = fly.values<Values>();
};

TEST_F(CommandLineTest, ErrorsShowNoSecrets) {
  fly.add({
      {"--key", &values.words, "KEY", "who may", Rules{.is_secret = true}},
      {"--pin", &values.count, "N", "a number", Rules{.is_secret = true}},
      {"--form", &values.form, OneOf{"s3cret"}, "one of these", Rules{.is_secret = true}},
      {"--name", &values.name, "NAME", "who"},
  });
  EXPECT_EQ(problem({"--key", "one", "two"}), "***: tyto fly takes no such argument");
  EXPECT_EQ(problem({"--key=one", "two"}), "***: tyto fly takes no such argument");
  EXPECT_EQ(problem({"--kye", "one"}), "--kye: tyto fly has no such flag");
  EXPECT_EQ(problem({"--key", "one", "--nme", "two"}), "--nme: tyto fly has no such flag");
  EXPECT_EQ(problem({"--name", "one", "two"}), "two: tyto fly takes no such argument");
  EXPECT_EQ(problem({"--pin", "word"}),
            "--pin: \"***\" is not a whole number from 0 to 4294967295");
  EXPECT_TRUE(problem({"--form", "word"}).starts_with("--form: \"***\" is not one of"));
}

TEST_F(CommandLineTest, AFlagThatWouldDoNothingIsRefused) {
  fly.add({
      {"--name", &values.name, "NAME", "who"},
      {"--form", &values.form, "TEXT", "a form"},
      {"--loud", &values.loud, "with sound", Rules{.needs_one_of = {"--name", "--form"}}},
  });
  EXPECT_EQ(problem({"--loud"}), "--loud: has no effect without --name or --form");
  EXPECT_EQ(problem({"--loud", "--form", "x"}), "none");
  EXPECT_EQ(problem({}), "none");
}

TEST_F(CommandLineTest, EveryKindOfValueArrives) {
  fly.add({
      {"--loud", &values.loud, "with sound"},
      {"-n,--name", &values.name, "NAME", "who"},
      {"--count", &values.count, "N", "how many"},
      {"--seed", &values.seed, "N", "of chance"},
      {"--share", &values.share, "X", "how much"},
      {"--seconds", &values.seconds, "S", "how long"},
      {"--form", &values.form, "TEXT", "a form", Rules{.may_be_empty = true}},
      {"--rows", &values.rows, "N", "rows"},
      {"--big", &values.big, "N", "a large number"},
      {"--heat", &values.heat, "X", "warmth"},
      {"--tolerance", &values.tolerance, "X", "what is good enough"},
      {"--words", &values.words, "TEXT", "several"},
      {"--lengths", &values.lengths, "N", "several numbers"},
  });
  const Invocation asked =
      parsed({"--loud",      "-n",   "barn",      "--count=7",  "--seed",  "18446744073709551615",
              "--share",     "0.25", "--seconds", "1e1",        "--form",  "",
              "--rows",      "9",    "--big",     "5000000000", "--heat",  "0",
              "--tolerance", "-0.5", "--words",   "a",          "--words", "b",
              "--lengths",   "1",    "--lengths", "2"});
  EXPECT_EQ(asked.kind, Invocation::Kind::run);
  EXPECT_EQ(&asked.command(), &fly);
  EXPECT_TRUE(values.loud);
  EXPECT_EQ(values.name, "barn");
  EXPECT_EQ(values.count, 7u);
  EXPECT_EQ(values.seed, UINT64_MAX);
  EXPECT_EQ(values.share, 0.25f);
  EXPECT_EQ(values.seconds, 10);
  EXPECT_EQ(values.form, "");
  EXPECT_EQ(values.rows, 9u);
  EXPECT_EQ(values.big, 5000000000u);
  EXPECT_EQ(values.heat, 0.0f);
  EXPECT_EQ(values.tolerance, -0.5);
  EXPECT_EQ(values.words, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values.lengths, (std::vector<uint32_t>{1, 2}));
}

TEST_F(CommandLineTest, WhatIsNotGivenStays) {
  fly.add({
      {"--name", &values.name, "NAME", "who"},
      {"--form", &values.form, "TEXT", "a form"},
      {"--words", &values.words, "TEXT", "several"},
  });
  values.words = {"before"};
  parsed({"--form", "round"});
  EXPECT_EQ(values.name, "owl");
  EXPECT_EQ(values.words, (std::vector<std::string>{"before"}));
  EXPECT_TRUE(fly.is_given("--form"));
  EXPECT_FALSE(fly.is_given("--name"));
}

TEST_F(CommandLineTest, ValuesOfAnotherKindAreErrors) {
  fly.add({
      {"--count", &values.count, "N", "how many"},
      {"--heat", &values.heat, "X", "warmth"},
  });
  EXPECT_EQ(problem({"--count", "many"}),
            "--count: \"many\" is not a whole number from 0 to 4294967295");
  EXPECT_EQ(problem({"--heat", "warm"}), "--heat: \"warm\" is not a number");
  EXPECT_EQ(problem({"--count"}), "--count: needs a value, N");
}

TEST_F(CommandLineTest, WholeNumbersAreDecimalAndInRange) {
  fly.add({
      {"--count", &values.count, "N", "how many"},
      {"--seed", &values.seed, "N", "of chance"},
      {"--rows", &values.rows, "N", "rows"},
      {"--big", &values.big, "N", "a large number"},
      {"--lengths", &values.lengths, "N,...", "several numbers", Rules{.separator = ','}},
  });
  for (const std::string flag : {"--count", "--seed", "--rows", "--big", "--lengths"})
    for (const std::string text : {"-1", "+5", " 5", "5 ", "5x", "1e3", "0x10", "1.0", "",
                                   "18446744073709551616", "[1]", "99999999999999999999999999"})
      EXPECT_TRUE(problem({flag + "=" + text}).starts_with(flag + ": ")) << flag << text;
  for (const std::string flag : {"--count", "--rows", "--lengths"})
    EXPECT_NE(problem({flag, "4294967296"}), "none") << flag;
  EXPECT_EQ(problem({"--seed", "18446744073709551616"}),
            "--seed: \"18446744073709551616\" is not a whole number from 0 to "
            "18446744073709551615");
  EXPECT_EQ(problem({"--count", "010", "--big", "4294967296"}), "none");
  EXPECT_EQ(values.count, 10u);
  EXPECT_EQ(values.big, 4294967296u);
  for (const std::string list : {"1,,2", "1,", ",1", ",", "1, 2"})
    EXPECT_NE(problem({"--lengths", list}), "none") << list;
}

TEST_F(CommandLineTest, NumbersAreFinite) {
  fly.add({{"--heat", &values.heat, "X", "warmth"}});
  for (const std::string text : {"nan", "inf", "-inf", "1e99", "+1", "0x1p3", "1,5"})
    EXPECT_EQ(problem({"--heat", text}), "--heat: \"" + text + "\" is not a number");
  EXPECT_EQ(problem({"--heat", "-1.5e2"}), "none");
  EXPECT_EQ(values.heat, -150.0f);
}

TEST_F(CommandLineTest, EmptyValuesAreErrorsUnlessTheRowAllowsThem) {
  std::string place;
  fly.add({
      {"-n,--name", &values.name, "NAME", "who"},
      {"--form", &values.form, OneOf{"round", "flat"}, "a form"},
      {"--words", &values.words, "TEXT", "several"},
      {"--text", &place, "TEXT", "a text", Rules{.may_be_empty = true}},
      {"--loud", &values.loud, "with sound"},
  });
  EXPECT_EQ(problem({"--name", ""}), "--name: the value is empty");
  EXPECT_EQ(problem({"-n", ""}), "--name: the value is empty");
  EXPECT_EQ(problem({"--name="}), "--name: the value is empty");
  EXPECT_EQ(problem({"--name=", "--loud"}), "--name: the value is empty");
  EXPECT_EQ(problem({"--form", ""}), "--form: the value is empty");
  EXPECT_EQ(problem({"--words", "a", "--words", ""}), "--words: the value is empty");
  place = "before";
  EXPECT_EQ(problem({"--text=", "--name", "x="}), "none");
  EXPECT_EQ(place, "");
  EXPECT_EQ(values.name, "x=");
}

TEST_F(CommandLineTest, BracketsAreText) {
  fly.add({
      {"--words", &values.words, "TEXT", "several"},
      {"place", &values.lengths, "N...", "where to"},
  });
  EXPECT_EQ(problem({"--words", "[INST]", "--words=[a,b]", "--words", "[", "--words", "[]",
                     "--words", "\x01[x]"}),
            "none");
  EXPECT_EQ(values.words, (std::vector<std::string>{"[INST]", "[a,b]", "[", "[]", "\x01[x]"}));
  EXPECT_EQ(problem({"--", "[1]"}), "place: \"[1]\" is not a whole number from 0 to 4294967295");
  EXPECT_EQ(problem({"--high=[x]"}), "--high: tyto fly has no such flag");
}

TEST_F(CommandLineTest, RangesHoldBothEnds) {
  fly.add({
      {"--count", &values.count, "N", "how many", Rules{.range = Range{1, 9}}},
      {"--rows", &values.rows, "N", "rows", Rules{.range = Range{64, 1 << 30}}},
      {"--seconds", &values.seconds, "S", "how long", Rules{.range = Range{0.5, 2}}},
      {"--lengths", &values.lengths, "N,...", "several numbers",
       Rules{.range = Range{1, 4}, .separator = ','}},
  });
  EXPECT_EQ(problem({"--count", "1", "--rows", "1073741824", "--seconds", "0.5"}), "none");
  EXPECT_EQ(problem({"--count", "0"}), "--count: \"0\" is not a whole number from 1 to 9");
  EXPECT_EQ(problem({"--count", "10"}), "--count: \"10\" is not a whole number from 1 to 9");
  EXPECT_EQ(problem({"--rows", "63"}),
            "--rows: \"63\" is not a whole number from 64 to 1073741824");
  EXPECT_EQ(problem({"--seconds", "3"}), "--seconds: \"3\" is not a number from 0.5 to 2");
  EXPECT_EQ(problem({"--lengths", "1,4,2"}), "none");
  EXPECT_EQ(values.lengths, (std::vector<uint32_t>{1, 4, 2}));
  EXPECT_EQ(problem({"--lengths", "1,5"}), "--lengths: \"5\" is not a whole number from 1 to 4");
}

TEST_F(CommandLineTest, OnlyAllowedValuesPass) {
  std::string any_case, as_listed;
  fly.add({
      {"--form", &values.form, OneOf{"round", "flat"}, "a form"},
      {"--any", &any_case, OneOf({"round", "flat"}, Letters::any_case), "a form"},
      {"--listed", &as_listed, OneOf({"round", "flat"}, Letters::as_listed), "a form"},
  });
  EXPECT_EQ(problem({"--form", "flat", "--any", "Flat", "--listed", "Flat"}), "none");
  EXPECT_EQ(values.form, "flat");
  EXPECT_EQ(any_case, "Flat");
  EXPECT_EQ(as_listed, "flat");
  EXPECT_EQ(problem({"--form", "Flat"}), "--form: \"Flat\" is not one of round, flat");
  EXPECT_EQ(hint, "did you mean flat? see tyto fly --help");
  EXPECT_EQ(problem({"--any", "square"}), "--any: \"square\" is not one of round, flat");
  EXPECT_EQ(hint, "see tyto fly --help");
}

TEST_F(CommandLineTest, FoldersMustExist) {
  fly.add({{"--root", &values.name, "DIR", "a folder", Rules{.is_folder = true}}});
  EXPECT_EQ(problem({"--root", "/"}), "none");
  EXPECT_EQ(problem({"--root", "/none"}), "--root: /none is not a folder");
}

TEST_F(CommandLineTest, OneValueIsGivenOnce) {
  fly.add({
      {"--name", &values.name, "NAME", "who"},
      {"--loud", &values.loud, "with sound"},
      {"--two", &values.words, "A B", "a pair", Rules{.count = 2}},
  });
  EXPECT_EQ(problem({"--name", "a", "--name", "b"}), "--name: is given more than once");
  EXPECT_EQ(problem({"--loud", "--loud"}), "none");
  EXPECT_EQ(problem({"--two", "a", "b"}), "none");
  EXPECT_EQ(problem({"--two", "a"}), "--two: takes 2 values, A B");
  for (const char* text : {"--loud=yes", "--loud=false", "--loud=0"})
    EXPECT_EQ(problem({text}), "--loud: takes no value") << text;
}

TEST_F(CommandLineTest, UnknownFlagsAndArgumentsAreErrors) {
  EXPECT_EQ(problem({"--high"}), "--high: tyto fly has no such flag");
  EXPECT_EQ(problem({"high"}), "high: tyto fly takes no such argument");
  EXPECT_EQ(problem({"high", "higher"}), "high: tyto fly takes no such argument");
  EXPECT_EQ(problem({"3", "--high", "4"}), "--high: tyto fly has no such flag");
}

TEST_F(CommandLineTest, WhatWasProbablyMeantIsSaid) {
  fly.add({
      {"--temp", &values.heat, "X", "warmth"},
      {"-t,--threads", &values.count, "N", "at once"},
      {"-c,--context", &values.rows, "N", "room"},
      {"--loud", &values.loud, "with sound"},
  });
  const auto meant = [&](const std::string& typed) {
    EXPECT_EQ(problem({typed, "1"}), typed + ": tyto fly has no such flag");
    return hint;
  };
  EXPECT_EQ(meant("--tmep"), "did you mean --temp? see tyto fly --help");
  EXPECT_EQ(meant("--temperature"), "did you mean --temp? see tyto fly --help");
  EXPECT_EQ(meant("--ctx-size"), "did you mean --context? see tyto fly --help");
  EXPECT_EQ(meant("-temp"), "did you mean --temp? see tyto fly --help");  // and not -t emp
  EXPECT_EQ(meant("--n-predict"), "see tyto fly --help");                 // not of this command
  EXPECT_EQ(problem({"--", "-temp"}), "-temp: tyto fly has no such flag");
  EXPECT_EQ(problem({"-t4"}), "none");
}

TEST_F(CommandLineTest, UnknownCommandsAreErrors) {
  fly.add_command("home", "back");
  fly.needs_command = true;
  program.add_command("inspect", "look");
  const auto said = [&](const std::vector<std::string>& arguments) {
    try {
      parse(program, arguments);
    } catch (const Error& error) {
      return std::string(error.what()) + " (" + error.hint + ")";
    }
    return std::string("none");
  };
  EXPECT_EQ(said({"swim"}), "swim: tyto has no such command (see tyto --help)");
  EXPECT_EQ(said({"flyy", "--high"}), "--high: tyto has no such flag (see tyto --help)");
  EXPECT_EQ(said({"inspekt"}),
            "inspekt: tyto has no such command (did you mean tyto inspect? see tyto --help)");
  EXPECT_EQ(said({"show"}),  // as Ollama calls it
            "show: tyto has no such command (did you mean tyto inspect? see tyto --help)");
  EXPECT_EQ(said({"swim", "--help"}), "swim: tyto has no such command (see tyto --help)");
  EXPECT_EQ(said({"help", "swim"}), "swim: tyto has no such command (see tyto --help)");
  EXPECT_EQ(said({"fly", "hom"}),
            "hom: tyto fly has no such command (did you mean tyto fly home? see tyto fly --help)");
  EXPECT_EQ(said({"fly"}), "tyto fly: needs one of its commands: home (see tyto fly --help)");
}

TEST_F(CommandLineTest, HelpIsACommand) {
  CommandLine& home = fly.add_command("home", "back");
  const auto asked = [&](const std::vector<std::string>& arguments) {
    const Invocation invocation = parse(program, arguments);
    EXPECT_EQ(invocation.kind, Invocation::Kind::help);
    return &invocation.command();
  };
  EXPECT_EQ(asked({"help"}), &program);
  EXPECT_EQ(asked({"help", "fly"}), &fly);
  EXPECT_EQ(asked({"help", "fly", "home"}), &home);
}

TEST_F(CommandLineTest, WordsThatBelongTogetherAreOneArgument) {
  fly.add({
      {"text", &values.name, "TEXT", "what to say", Rules{.text_kind = "song"}},
      {"--words", &values.words, "TEXT", "several"},
  });
  EXPECT_EQ(problem({"tell me", "--words", "a"}), "none");
  EXPECT_EQ(values.name, "tell me");
  EXPECT_EQ(problem({"--words", "a", "tell me"}), "none");
  EXPECT_EQ(values.words, (std::vector<std::string>{"a"}));
  EXPECT_ERROR(parsed({"tell", "me", "it's"}), "takes one song; put it in quotes");
  try {
    parsed({"tell", "me", "it's"});
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "tyto fly takes one song; put it in quotes: tyto fly 'tell me it'\\''s'");
  }
  for (const std::string text : {"--words", "++", "[a]", "-", "-5"}) {
    EXPECT_EQ(problem({"--", text}), "none");
    EXPECT_EQ(values.name, text);
  }
  for (const std::string text : {"++", "[a]", "-", "-5"}) {
    EXPECT_EQ(problem({text}), "none");
    EXPECT_EQ(values.name, text);
  }
}

TEST_F(CommandLineTest, MinusOneIsNoLimit) {
  fly.add({{"-n,--count", &values.count, "N", "how many",
            Rules{.range = Range{1, 9}, .is_unlimited_at_minus_1 = true}}});
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"-n", "-1"}, {"-n-1"}, {"--count=-1"}}) {
    values.count = 0;
    EXPECT_EQ(problem(given), "none");
    EXPECT_EQ(values.count, UINT32_MAX);
  }
  EXPECT_EQ(problem({"-n", "-2"}), "--count: \"-2\" is not -1 or a whole number from 1 to 9");
}

TEST_F(CommandLineTest, RequiredAndExcludedFlags) {
  fly.add({
      {"--name", &values.name, "NAME", "who", Rules{.required = true}},
      {"--loud", &values.loud, "with sound", Rules{.excludes = {"--form", "--rows"}}},
      {"--form", &values.form, "TEXT", "a form"},
      {"--rows", &values.rows, "N", "rows"},
  });
  EXPECT_EQ(problem({}), "--name is required");
  EXPECT_EQ(problem({"--name", "x", "--form", "y", "--rows", "1"}), "none");
  EXPECT_EQ(problem({"--name", "x", "--rows", "1", "--loud"}),
            "--loud and --rows exclude each other");
}

TEST_F(CommandLineTest, ArgumentsByTheirPlace) {
  fly.add({{"route", &values.words, "PLACE...", "where to", Rules{.required = true}}});
  EXPECT_EQ(problem({}), "tyto fly: PLACE... is missing");
  EXPECT_EQ(problem({"--", "a", "--b"}), "none");
  EXPECT_EQ(values.words, (std::vector<std::string>{"a", "--b"}));
}

TEST_F(CommandLineTest, CommandsBelowACommand) {
  fly.needs_command = true;
  fly.alias = "glide";
  CommandLine& home = fly.add_command("home", "back");
  home.add({{"--loud", &values.loud, "with sound"}});
  EXPECT_EQ(problem({}), "tyto fly: needs one of its commands: home");
  const Invocation asked = parse(program, {"glide", "home", "--loud"});
  EXPECT_EQ(asked.path, (std::vector<const CommandLine*>{&program, &fly, &home}));
  EXPECT_TRUE(home.is_given("--loud"));
  EXPECT_EQ(parsed({"home", "--help"}).kind, Invocation::Kind::help);
}

TEST_F(CommandLineTest, NoCommandIsTheProgram) {
  program.version = "tyto 1";
  EXPECT_EQ(&parse(program, {}).command(), &program);
  EXPECT_EQ(parse(program, {"--version"}).kind, Invocation::Kind::version);
}

TEST_F(CommandLineTest, RowsCanBeChangedAndRemoved) {
  fly.add({
      {"-n,--name", &values.name, "NAME", "who"},
      {"--count", &values.count, "N", "how many"},
  });
  fly.flag("--name").value = "NAME,...";
  fly.remove("--count");
  EXPECT_EQ(problem({"--name"}), "--name: needs a value, NAME,...");
  EXPECT_EQ(problem({"--count", "1"}), "--count: tyto fly has no such flag");
}

TEST_F(CommandLineTest, ValuesOfOtherTypesAreReadFromWordsAndGiveThemBack) {
  std::optional<std::chrono::milliseconds> time;
  uint64_t bytes = 16 << 20;
  std::vector<char> letters;
  const auto letter = [](const std::string& word, const std::string& flag) {
    if (word.size() != 1) throw Error(ErrorCode::usage, flag + " " + word, "is not a letter");
    return word[0];
  };
  fly.add({
      {"--time", time_target(time), "TIME", "how long", Rules{.shows_default = true}},
      {"--size", size_target(bytes), "SIZE", "how much", Rules{.shows_default = true}},
      {"--letter", typed(letters, letter, [](char c) { return std::string(1, c); }), "L", "which"},
  });
  EXPECT_EQ(fly.flag("--time").default_text, "never");
  EXPECT_EQ(fly.flag("--size").default_text, "16M");
  EXPECT_EQ(value_text(fly.flag("--letter").target), "");
  EXPECT_EQ(problem({"--time", "90s", "--size", "3K", "--letter", "a", "--letter", "b"}), "none");
  EXPECT_EQ(time, std::chrono::seconds(90));
  EXPECT_EQ(value_text(fly.flag("--time").target), "90s");
  EXPECT_EQ(bytes, 3072u);
  EXPECT_EQ(letters, (std::vector<char>{'a', 'b'}));
  EXPECT_EQ(value_text(fly.flag("--letter").target), "a,b");
  EXPECT_EQ(problem({"--time", "90"}), "--time 90: expected a time like 30s, 5m, 1h, or never");
  EXPECT_EQ(problem({"--size", "0"}), "--size 0: expected a size like 512M or 4G");
  EXPECT_EQ(problem({"--letter", "ab"}), "--letter ab: is not a letter");
  EXPECT_EQ(problem({"--time", "never"}), "none");
  EXPECT_FALSE(time.has_value());
}

TEST_F(CommandLineTest, HelpIsMadeOfTheRows) {
  fly.footer = "Example:\n  tyto fly";
  fly.add({
      {"place", &values.words, "PLACE...", "where to"},
      {"-n,--name", &values.name, "NAME", "who", Rules{.shows_default = true}},
      {"--form", &values.form, OneOf{"round", "flat"}, "a form", Rules{.required = true}},
  });
  const OneOf many{"barn owl", "snowy owl", "little owl", "tawny owl"};
  const std::vector<Flag> rows = {
      {"--share", &values.share, "X", "how much", Rules{.shows_default = true}},
      {"--species", &values.form, many, "which of them"},
      {"--loud", &values.loud, "with sound"},
  };
  fly.add("Air", rows);
  values.name = "changed since";
  EXPECT_EQ(help_text({&program, &fly}, 80, HelpSize::whole),
            "tyto fly: go through the air\n"
            "\n"
            "Usage: tyto fly [OPTIONS] [PLACE...]\n"
            "\n"
            "Arguments:\n"
            "  PLACE...                      where to\n"
            "\n"
            "Options:\n"
            "  -h, --help                    print a short help\n"
            "  --help-all                    print this help\n"
            "  -n, --name NAME               who (default: owl)\n"
            "  --form round|flat             a form (required)\n"
            "\n"
            "Air:\n"
            "  --share X                     how much (default: 0.5)\n"
            "  --species NAME                which of them: barn owl, snowy owl, little owl,\n"
            "                                tawny owl\n"
            "  --loud                        with sound\n"
            "\n"
            "Example:\n"
            "  tyto fly\n");
}

TEST_F(CommandLineTest, ShortHelpHasWhatPeopleUseFirst) {
  fly.footer = "One paragraph.\n\nAnother one.\n\nExamples:\n  one \\\n    more\n  two\n  three";
  fly.add({{"--name", &values.name, "NAME", "who"}, {"--count", &values.count, "N", "how many"}});
  fly.add("Air", {{"--loud", &values.loud, "with sound"}});
  fly.first = {"--loud", "--name"};
  EXPECT_EQ(parsed({"--help"}).kind, Invocation::Kind::help);
  EXPECT_EQ(parsed({"--help-all"}).kind, Invocation::Kind::whole_help);
  EXPECT_EQ(help_text({&program, &fly}),
            "tyto fly: go through the air\n"
            "\n"
            "Usage: tyto fly [OPTIONS]\n"
            "\n"
            "Options:\n"
            "  --loud       with sound\n"
            "  --name NAME  who\n"
            "\n"
            "One paragraph.\n"
            "\n"
            "Examples:\n"
            "  one \\\n"
            "    more\n"
            "  two\n"
            "\n"
            "tyto fly --help-all shows all 5 options.\n");
  fly.first.clear();
  EXPECT_TRUE(help_text({&program, &fly}).ends_with("\ntyto fly --help-all shows more.\n"));
}

TEST_F(CommandLineTest, AValueMayBeLackingWhereItIsAllowed) {
  fly.add({{"--json", &values.form, "[FILE]", "as JSON", Rules{.may_lack_value = true}},
           {"--loud", &values.loud, "with sound"}});
  const auto file_of = [&](std::vector<std::string> arguments) {
    values.form.reset();
    EXPECT_EQ(problem(std::move(arguments)), "none");
    return values.form.value_or("not given");
  };
  EXPECT_EQ(file_of({"--loud"}), "not given");
  EXPECT_EQ(file_of({"--json"}), "");
  EXPECT_EQ(file_of({"--json", "--loud"}), "");
  EXPECT_EQ(file_of({"--json", "any"}), "any");
  EXPECT_EQ(file_of({"--json=any"}), "any");
  EXPECT_EQ(problem({"--json="}), "--json: the value is empty");

  fly.add({{"text", &values.name, "TEXT", "what to say", Rules{.excludes = {"--prompt"}}},
           {"-p,--prompt", &values.heat, "X", "in place of the text"}});
  values.name.clear();
  EXPECT_EQ(file_of({"--json", "a text"}), "");
  EXPECT_EQ(values.name, "a text");
  EXPECT_EQ(file_of({"--json", "a.json", "a text"}), "a.json");
  EXPECT_EQ(file_of({"--json=any", "a text"}), "any");
  EXPECT_EQ(file_of({"-p", "1", "--json", "any"}), "any");
  EXPECT_EQ(file_of({"--prompt=1", "--json", "any"}), "any");
  EXPECT_EQ(file_of({"--", "--json"}), "not given");
}

TEST_F(CommandLineTest, HelpFitsTheWidth) {
  fly.footer = "A sentence of several words.\n\nExample:\n  tyto fly --name 'a line that stays'";
  fly.add({{"--name", &values.name, "NAME", "a meaning of several words, too"}});
  CommandLine& home = fly.add_command("home", "back to where it was");
  EXPECT_EQ(help_text({&program, &fly, &home}, 20).substr(0, 42),
            "tyto fly home: back\nto where it was\n\nUsage");
  EXPECT_EQ(help_text({&program, &fly}, 60),
            "tyto fly: go through the air\n"
            "\n"
            "Usage: tyto fly [OPTIONS] [COMMAND]\n"
            "\n"
            "Options:\n"
            "  -h, --help                    print this help\n"
            "  --name NAME                   a meaning of several words,\n"
            "                                too\n"
            "\n"
            "Commands:\n"
            "  home  back to where it was\n"
            "\n"
            "A sentence of several words.\n"
            "\n"
            "Example:\n"
            "  tyto fly --name 'a line that stays'\n");
}

TEST_F(CommandLineTest, HelpOfTheProgramListsItsCommands) {
  fly.alias = "glide";
  program.version = "tyto 1";
  fly.group = "Air";
  program.add_command("land", "come down").group = "Air";
  program.add_command("swim", "go through water").group = "Water";
  program.footer = "One paragraph.\n\nAnother one.";
  EXPECT_EQ(help_text({&program}),
            "tyto: A program.\n"
            "\n"
            "Usage: tyto COMMAND [OPTIONS]\n"
            "\n"
            "Air:\n"
            "  fly         go through the air          land        come down\n"
            "Water:\n"
            "  swim        go through water\n"
            "\n"
            "One paragraph.\n");
  const std::string narrow = help_text({&program}, 60, HelpSize::whole);
  EXPECT_NE(narrow.find("Air:\n  fly         go through the air\n  land "), std::string::npos);
  EXPECT_NE(narrow.find("  --version "), std::string::npos);
  EXPECT_TRUE(narrow.ends_with("\nAnother one.\n"));
}

}  // namespace
}  // namespace tyto
