#include "shell/completions.h"

#include <gtest/gtest.h>

#include "shell/command_line.h"
#include "shell/manual.h"

namespace tyto {
namespace {

// Texts with what shells and roff take for their own.
struct Program {
  CommandLine line{"tyto", "a program"};
  std::string text;
  std::vector<std::string> several;

  Program() {
    CommandLine& command = line.add_command("go", "it's .5 [of] a: \\ command");
    command.add({{"-x,--extra", &text, "A:B", "isn't [this] a: \\ `meaning` of $HOME"},
                 {"--many", &several, OneOf{"one", "two"}, "again"},
                 {"file", &text, "FILE", "a file"}});
    command.alias = "move";
    command.footer = ".first\n'second\n\nExample:\n  tyto go -x 'a\\b'";
  }
  CommandPath go() const { return {&line, &line.commands.front()}; }
};

TEST(Completions, QuotesOfBash) {
  const std::string script = completions("bash", Program().line);
  EXPECT_NE(script.find("-x|--extra) takes='@any' ;;"), std::string::npos);
  EXPECT_NE(script.find("--many) takes='one two' ;;"), std::string::npos);
  EXPECT_NE(script.find("place='@file'"), std::string::npos);
  EXPECT_NE(script.find("commands='go'\n      aliases='move'"), std::string::npos);
}

TEST(Completions, QuotesOfZsh) {
  const std::string script = completions("zsh", Program().line);
  EXPECT_NE(script.find("'go:it'\\''s .5 \\[of\\] a\\: \\\\ command'"), std::string::npos)
      << script;
  EXPECT_NE(script.find("'(-x --extra)--extra=[isn'\\''t \\[this\\] a\\: \\\\ `meaning` of "
                        "$HOME]:A\\:B: '"),
            std::string::npos)
      << script;
  EXPECT_NE(script.find("'*--many=[again]:value:(one two)'"), std::string::npos) << script;
}

TEST(Completions, QuotesOfFish) {
  const std::string script = completions("fish", Program().line);
  EXPECT_NE(
      script.find("-n '__tyto_at go' -s x -l extra -x -d 'isn\\'t [this] a: \\\\ `meaning` of "
                  "$HOME'"),
      std::string::npos)
      << script;
}

TEST(Manual, TextIsNoRequest) {
  const Program program;
  const std::string page = manual_page(program.go());
  EXPECT_EQ(page_name(program.go()), "tyto-go");
  EXPECT_NE(page.find("tyto\\-go \\- it's .5 [of] a: \\e command\n"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&.first\n\\&'second\n"), std::string::npos) << page;
  EXPECT_NE(page.find(".SH EXAMPLES\n.PP\n.nf\n\\fBtyto go \\-x 'a\\eb'\\fR\n.fi\n"),
            std::string::npos)
      << page;
}

}  // namespace
}  // namespace tyto
