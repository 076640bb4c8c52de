// Literals, operators, look-ups. The expected texts are what Jinja2 3.1 renders.
#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

TEST(JinjaExpression, LiteralsAreReadAsPythonDoes) {
  expect_rendered({
      {"{{ 'a' }}{{ \"b'c\" }}{{ 'd' 'e' }}", "ab'cde"},
      {R"({{ 'n\nt\tq\'x\x41u\u00e9o\101b\\e\q' }})", "n\nt\tq'xAu\u00E9oAb\\e\\q"},
      {"{{ 'line\nend' }}{{ 'joined\\\nline' }}", "line\nendjoinedline"},
      {"{{ 7 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }}", "7 1000 31 5 15"},
      {"{{ 1.5 }} {{ 2e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 100000.0 }}",
       "1.5 2000.0 1e+16 1e-05 100000.0"},
      {"{{ true }}{{ True }}{{ false }}{{ none }}{{ None }}", "TrueTrueFalseNoneNone"},
      {"{{ [1, 'a', [none]] }}{{ [] }}{{ [1,] }}", "[1, 'a', [None]][][1]"},
      {"{{ (1, 2) }}{{ (1,) }}{{ () }}{{ (1) }}{{ 1, 2 }}", "(1, 2)(1,)()1(1, 2)"},
      {"{{ {'a': 1, 'b': {}} }}{{ {'a': 1, 'a': 2} }}{{ {'a':{}} }}",
       "{'a': 1, 'b': {}}{'a': 2}{'a': {}}"},
      {"{{ 9223372036854775807 }}", "9223372036854775807"},
      {R"({{ ['it\'s', 'a"b\'c', '\n\x01\x7f\u200b\u00e9'] }})",
       R"(["it's", 'a"b\'c', '\n\x01\x7f\u200b)"
       "\u00E9']"},
  });
}

TEST(JinjaExpression, ArithmeticIsPythons) {
  expect_rendered({
      {"{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }}", "5.0 9"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}", "3 -4 1 2 -2"},
      {"{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 4 / 2 }} {{ 0.1 + 0.2 }}",
       "3.0 0.5 2.0 0.30000000000000004"},
      {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "1024 0.5 4 64"},
      {"{{ true + 1 }} {{ -true }} {{ +3 }} {{ 2 - -2 }}", "2 -1 3 4"},
      {"{{ 'a' + 'b' }} {{ 'ab' * 2 }} {{ 2 * 'c' }} {{ 'x' * -1 }}|", "ab abab cc |"},
      {"{{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}", "[1, 2] [0, 0, 0] (1, 2)"},
      {"{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ nothing }}", "a1NoneTrue1.5"},
      {"{{ '%s-%d %05d %.2f %r %x %%' % ('a', 3, 42, 3.14159, 'q', 255) }}",
       "a-3 00042 3.14 'q' ff %"},
      {"{{ 1 ~ 2 * 3 }}", "16"},
  });
}

TEST(JinjaExpression, ComparisonAndLogic) {
  expect_rendered({
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'b' > 'a' }} {{ [1, 2] <= [1, 3] }}",
       "True False True True"},
      {"{{ 1 == 1.0 == true }} {{ 1 == '1' }} {{ (1,) == [1] }} {{ none == false }}",
       "True False False False"},
      {"{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2]] == [1.0, [2]] }}", "True True"},
      {"{{ 'b' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1.0] }} {{ 'k' in {'k': 0} }}",
       "True True True True"},
      {"{{ not 1 == 2 }} {{ not 1 in [2] }} {{ not x is defined }}", "True True True"},
      {"{{ 1 or nothing.x }} {{ 0 or '' }}|{{ [] and 1 }} {{ '' or none or 'z' }}", "1 |[] z"},
      {"{{ 'y' if 1 else 'n' }} {{ 'y' if 0 }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}", "y |c"},
  });
}

TEST(JinjaExpression, LookUps) {
  expect_rendered({
      {"{{ {'a': {'b': 2}}.a.b }} {{ {'a': 1}['a'] }} {{ [7, 8].1 }} {{ [7, 8][-1] }}", "2 1 8 8"},
      {"{{ {'items': 1}['items'] }} {{ {'x': 1}.missing }}|{{ [1][5] }}|{{ none.x }}|", "1 |||"},
      {"{{ [1, 2, 3][1:] }} {{ [1, 2, 3][:-1] }} {{ [1, 2, 3][::-1] }} {{ (1, 2, 3)[::2] }}",
       "[2, 3] [1, 2] [3, 2, 1] (1, 3)"},
      {"{{ [1, 2, 3, 4, 5][-1:0:-2] }} {{ [1, 2][9:] }} {{ [1, 2][-9:9] }}", "[5, 3] [] [1, 2]"},
      {"{{ [1, 2][0:9223372036854775807] }} {{ [1, 2][::-9223372036854775807 - 1] }}",
       "[1, 2] [2]"},
      {"{{ 5['a'] }}|{{ {}[[1]] }}|{{ [1]['a'] }}|{{ 'a'[none] }}|", "||||"},
      {"{{ 'na\u00EFve \U0001F989'[2] }}{{ 'na\u00EFve \U0001F989'[-1] }}{{ 'na\u00EFve'[1:4] }}"
       "{{ 'na\u00EFve'[::-1] }}{{ 'na\u00EFve'|length }}",
       "\u00EF\U0001F989a\u00EFvev\u00EFan5"},
  });
}

// Jinja's default Undefined: empty when printed or iterated over, an error when looked into.
TEST(JinjaExpression, UndefinedIsEmptyUntilLookedInto) {
  expect_rendered({
      {"[{{ u }}] {{ u is defined }} {{ u|length }} {{ u|list }} {{ u == v }} {{ 'a' in u }}",
       "[] False 0 [] True False"},
      {"{{ u|default('d') }} {{ {}.a|default('e') }} {{ ''|default('f') }}|{{ ''|d('g', true) }}",
       "d e |g"},
      {"{% for x in u %}x{% else %}none{% endfor %}{{ u if u else 'no' }}", "noneno"},
  });
  expect_complaints({
      {"{{ u.x }}", "line 1: 'u' is undefined"},
      {"{{ u['x'] }}", "line 1: 'u' is undefined"},
      {"{{ u + 'a' }}", "line 1: 'u' is undefined"},
      {"{{ 'a' + u }}", "line 1: 'u' is undefined"},
      {"{{ u < 1 }}", "line 1: 'u' is undefined"},
      {"{{ messages[0].role }}", "line 1: 'list[0]' is undefined"},
      {"{{ {'a': 1}.b.c }}", "line 1: 'b' is undefined"},
      {"{{ u|int }}", "line 1: 'u' is undefined"},
      {"{{ u|tojson }}", "line 1: tojson: Undefined cannot be written as JSON"},
  });
}

TEST(JinjaExpression, WrongTypesAreErrors) {
  expect_complaints({
      {"{{ 'a' + 1 }}", "line 1: '+' does not work between str and int"},
      {"{{ [1] + (2,) }}", "line 1: '+' does not work between list and tuple"},
      {"{{ 1 < 'a' }}", "line 1: '<' does not work between int and str"},
      {"{{ -'a' }}", "line 1: '-' does not work on str"},
      {"{{ 1 in none }}", "line 1: 'in' does not work on NoneType"},
      {"{{ 1 in 'a' }}", "line 1: 'in' looks for int in a str"},
      {"{{ 5() }}", "line 1: int cannot be called"},
      {"{{ {[1]: 2} }}", "line 1: a list cannot be a key"},
      {"{{ [1, 2][::0] }}", "line 1: slice step cannot be zero"},
      {"{{ {}[1:] }}", "line 1: dict cannot be sliced"},
      {"{{ [1]['a':] }}", "line 1: a slice's bounds should be integers"},
      {"{{ '%d' % 'a' }}", "line 1: %d needs a number, not str"},
      {"{{ '%s %s' % 'a' }}", "line 1: a % format has more conversions than values"},
  });
}

TEST(JinjaExpression, IntegersNeverOverflow) {
  expect_rendered({
      {"{{ -9223372036854775807 - 1 }}", "-9223372036854775808"},
      {"{{ (-9223372036854775807 - 1) % -1 }}", "0"},
      {"{{ 1 ** 9223372036854775807 }} {{ (-1) ** 9223372036854775807 }}", "1 -1"},
  });
  expect_complaints({
      {"{{ 9223372036854775807 + 1 }}", "line 1: integer overflow in '+'"},
      {"{{ -9223372036854775807 - 2 }}", "line 1: integer overflow in '-'"},
      {"{{ 9223372036854775807 * 2 }}", "line 1: integer overflow in '*'"},
      {"{{ -(-9223372036854775807 - 1) }}", "line 1: integer overflow in '-'"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "line 1: integer overflow in '//'"},
      {"{{ (-9223372036854775807 - 1)|abs }}", "line 1: integer overflow"},
      {"{{ 3 ** 41 }}", "line 1: integer overflow in '**'"},
      {"{{ '1e30'|int }}", "line 1: 'int': integer overflow"},
      {"{{ 9223372036854775808 }}", "line 1: the number 9223372036854775808 is too large"},
      {"{{ 1 // 0 }}", "line 1: division by zero"},
      {"{{ 1 % 0 }}", "line 1: division by zero"},
      {"{{ 1 / 0 }}", "line 1: division by zero"},
      {"{{ 1.5 // 0.0 }}", "line 1: division by zero"},
      {"{{ 0 ** -1 }}", "line 1: zero to a negative power"},
  });
}

}  // namespace
}  // namespace tyto
