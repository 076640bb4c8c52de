// Hostile templates end in an error: no hang, no overflow of the stack, no huge allocation.

#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

std::string repeat(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string nested(std::string_view open, std::string_view middle, std::string_view close,
                   size_t depth) {
  return repeat(open, depth) + std::string(middle) + repeat(close, depth);
}

// The first line may differ with the depth at which the limit is met, so only the end is compared.
void expect_ends(const std::string& source, const std::string& expected) {
  const std::string what = complaint(source);
  EXPECT_TRUE(what.ends_with(expected)) << what.substr(0, 300);
}

TEST(JinjaLimits, NestedSource) {
  constexpr size_t kDepth = 20'000;
  const std::string expected = "nested too deeply";
  expect_ends("{{ " + nested("(", "1", ")", kDepth) + " }}", expected);
  expect_ends("{{ " + nested("[", "", "]", kDepth) + " }}", expected);
  expect_ends("{{ " + nested("{'a':", "1", "}", kDepth) + " }}", expected);
  expect_ends("{{ " + nested("f(", "", ")", kDepth) + " }}", expected);
  expect_ends("{{ " + nested("x[", "0", "]", kDepth) + " }}", expected);
  expect_ends("{{ " + nested("x|d(", "0", ")", kDepth) + " }}", expected);
  expect_ends("{{ " + repeat("-", kDepth) + "1 }}", expected);
  expect_ends("{{ " + repeat("not ", kDepth) + "1 }}", expected);
  expect_ends("{{ " + repeat("1 if 1 else ", kDepth) + "1 }}", expected);
  expect_ends(nested("{% if 1 %}", "", "{% endif %}", 10'000), expected);
  expect_ends(nested("{% for x in y %}", "", "{% endfor %}", 5'000), expected);
  expect_ends(nested("{% set x %}", "", "{% endset %}", 5'000), expected);
  EXPECT_EQ(rendered("{{ " + nested("(", "1", ")", 40) + " }}"), "1");
}

// Chains are as deep as they are long in the tree, though no bracket is nested.
TEST(JinjaLimits, LongChains) {
  const std::string expected = "nested too deeply";
  expect_ends("{{ 1" + repeat(" + 1", 20'000) + " }}", expected);
  expect_ends("{{ 'a'" + repeat(" ~ 'a'", 20'000) + " }}", expected);
  expect_ends("{{ 0" + repeat(" or 0", 20'000) + " }}", expected);
  expect_ends("{{ 'a'" + repeat("|trim", 20'000) + " }}", expected);
  expect_ends("{{ messages" + repeat("[0:]", 20'000) + " }}", expected);
  expect_ends("{{ messages" + repeat(".copy()", 20'000) + " }}", expected);
  EXPECT_EQ(rendered("{{ 1" + repeat(" + 1", 300) + " }}"), "301");
  EXPECT_EQ(rendered("{{ 1" + repeat(" == 1", 20'000) + " }}"), "True");
  const std::string branches = "{% if 0 %}" + repeat("{% elif 0 %}", 20'000) + "{% endif %}ok";
  EXPECT_EQ(rendered(branches), "ok");
}

TEST(JinjaLimits, NestedValues) {
  const std::string deep =
      "{% set n = namespace(v=[]) %}{% for i in range(5000) %}{% set n.v = [n.v] %}{% endfor %}";
  const std::string cycle = "{% set l = [] %}{% set _ = l.append(l) %}";
  const std::string expected = "nested too deeply";
  expect_ends(deep + "{{ n.v }}", expected);
  expect_ends(deep + "{{ n.v|tojson }}", expected);
  expect_ends(deep +
                  "{% set w = namespace(v=[]) %}{% for i in range(5000) %}"
                  "{% set w.v = [w.v] %}{% endfor %}{{ n.v == w.v }}",
              expected);
  expect_ends(cycle + "{{ l }}", expected);
  expect_ends(cycle + "{{ l|tojson }}", expected);
  expect_ends("{% set n = namespace() %}{% set n.n = n %}{{ n }}", expected);
  EXPECT_EQ(rendered(deep + "ok"), "ok");
}

TEST(JinjaLimits, RecursionEndsInAnError) {
  expect_ends("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply");
  expect_ends("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", "nested too deeply");
}

TEST(JinjaLimits, StepsAreLimited) {
  const std::string loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}"
      "{% endfor %}{% endfor %}";
  expect_ends(loops, "the template takes more than 2000000 steps");
  expect_ends("{% set r = range(3000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
              "the template takes more than 2000000 steps");
  expect_ends(
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
      "{{ f(25) }}",
      "the template takes more than 2000000 steps");
  expect_ends("{% set r = range(100000)|list %}{{ r|unique|list|length }}",
              "the template takes more than 2000000 steps");
  expect_ends("{{ range(100001) }}", "'range' of more than 100000 numbers");
}

TEST(JinjaLimits, TextsAndListsAreLimited) {
  const std::string string_limit = "a string grows larger than 16 MB";
  expect_ends("{{ 'a' * 9223372036854775807 }}", string_limit);
  expect_ends("{{ 'a' * 100000000 }}", string_limit);
  expect_ends("{{ 'ab' * 40000000 }}", string_limit);
  expect_ends("{{ [0] * 9223372036854775807 }}", "the template needs more than 128 MB of memory");
  expect_ends(
      "{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
      "{% set n.s = n.s + n.s %}{% endfor %}",
      string_limit);
  expect_ends("{% set s = 'a' * 1000000 %}{{ s|replace('a', s) }}", string_limit);
  expect_ends("{% set s = 'a' * 1000000 %}{{ ([s] * 1000)|join }}", string_limit);
  expect_ends("{% set s = 'a' * 1000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}",
              "the output is larger than 16 MB");
  expect_ends("{{ ''|indent(9223372036854775807) }}", string_limit);
  expect_ends("{{ '%999999999d' % 1 }}{{ 'x' * 70000000 }}", string_limit);
  expect_ends("{{ {'a': 1}|tojson(indent=100000000) }}", "an indent of 100000000 is too large");
  expect_ends(
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}"
      "{% endfor %}",
      "the template needs more than 128 MB of memory");
  // Doubled references print as an exponential text.
  expect_ends(
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% endfor %}{{ n.l }}",
      "the template takes more than 2000000 steps");
  expect_ends(std::string(3u << 20, 'x'), "3145728 bytes are more than the limit of 262144");
}

// A search that is quadratic for naive algorithms stays linear, and is charged for.
TEST(JinjaLimits, SearchesAreLinearAndCharged) {
  EXPECT_EQ(rendered("{% set s = 'a' * 400000 %}{{ (s[:200000] ~ 'b') in s }}"), "False");
  expect_ends(
      "{% set s = 'a' * 1000000 %}{% for i in range(2000) %}{% if 'b' in s %}{% endif %}"
      "{% endfor %}",
      "the template processes more than 512 MB of text");
  expect_ends("{% set s = 'a' * 1000000 %}{{ s.rfind(s[:500000] ~ 'b') }}",
              "the template processes more than 512 MB of text");
  expect_ends("{% set s = 'a' * 1000000 %}{{ s.strip(s) }}",
              "the template processes more than 512 MB of text");
}

// What the limits must not be in the way of: long conversations.
TEST(JinjaLimits, LongConversationsFit) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 10'000; ++i) {
    messages.push_back({i % 2 == 0 ? "user" : "assistant", repeat("word ", 100)});
  }
  const std::string source =
      "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}"
      "{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = loop.index0 %}{% endif %}"
      "{% endfor %}{% for m in messages %}{% set content = m.content | trim %}"
      "{{ '<|' + m.role + '|>' + content + eos_token }}{% endfor %}";
  EXPECT_EQ(rendered(source, messages).size(), 10'000u * 499 + 5'000u * (8 + 13));
}

}  // namespace
}  // namespace tyto
