// White space, tags, scopes, and what the parser says about what it does not understand.
#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

// trim_blocks: the line end after a tag goes. lstrip_blocks: so does the indentation before one.
TEST(JinjaStatement, WhiteSpace) {
  expect_rendered({
      {"a\n  {% if true %}\n  b\n  {% endif %}\n  c", "a\n  b\n  c"},
      {"{{ 'a' }}\n  {{ 'b' }}\n", "a\n  b"},
      {"a\n\n", "a\n"},
      {"a\r\nb\rc\r\n", "a\nb\nc"},
      {"a {%- if true -%} b {%- endif -%} c", "abc"},
      {"a \n {{- 'b' -}} \n c", "abc"},
      {"x\n  {%+ if true +%}\n y{% endif %}", "x\n  \n y"},
      {"a\n  {# note #}\nb {# note #}\nc {#- d -#} e", "a\nb ce"},
      {"x {% if true %} y{% endif %}", "x  y"},
      {"{% if true %}\n\n\nq{% endif %}", "\n\nq"},
      {"a\n{%- set x = 1 %}\nb", "ab"},
      {"\u00A0{%- if true -%}\u3000x{% endif %}", "x"},
      {"{ { } } {a", "{ { } } {a"},
  });
}

TEST(JinjaStatement, RawKeepsTagsAsText) {
  expect_rendered({
      {"{% raw %}{{ x }}{% if %}{# c #}{% endraw %}", "{{ x }}{% if %}{# c #}"},
      {"{% raw -%}\n  {{ x }}\n{%- endraw +%}\n z", "{{ x }}\n z"},
      {"  {% raw %} a\n {% endraw %}\n b", " a\n b"},
  });
}

TEST(JinjaStatement, ForHasLoopVariablesFiltersAndElse) {
  expect_rendered({
      {"{% for i in [1, 2] %}{{ i }}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
       "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
       "11021TrueFalse2;22110FalseTrue2;"},
      {"{% for i in 'ab' %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
       "<a>b a<b> "},
      {"{% for i in [1, 1, 2] %}{{ loop.cycle('x', 'y') }}{{ loop.changed(i) }} {% endfor %}",
       "xTrue yFalse xTrue "},
      {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"},
      {"{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}", "12"},
      {"{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ loop.index }}{{ i }}{% endfor %}", "1224"},
      {"{% for i in [] %}{{ i }}{% else %}none{% endfor %}", "none"},
      {"{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}"
       "{% endif %}{{ i }}{% endfor %}",
       "13"},
      {"{% for i in [1, 2] %}{% for j in [] %}{% else %}{% continue %}{% endfor %}{{ i }}"
       "{% endfor %}",
       ""},
      {"{% for m in range(3) %}{% for n in [m] %}{{ loop.index }}{% endfor %}{{ loop.index }}"
       "{% endfor %}",
       "111213"},
      {"{% for c in 'a\u00E9' %}{{ c }},{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
       "a,\u00E9,x"},
  });
}

TEST(JinjaStatement, SetAndScopes) {
  expect_rendered({
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = 'xy' %}{{ d }}", "12y"},
      {"{% set x = 5 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }};{% endfor %}{{ x }}",
       "51;52;5"},
      {"{% if true %}{% set z = 1 %}{% endif %}{{ z }}", "1"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}"
       "{{ ns.n }}{{ ns.other }}{{ ns['n'] }}",
       "33"},
      {"{% set x %}{% set y = 2 %} {{ y }} {% endset %}[{{ x }}]{{ y }}", "[ 2 ]"},
      {"{% set x | trim | upper %} a {% endset %}[{{ x }}]", "[A]"},
      {"{% filter upper | replace('A', 'x') %}a{{ 'c' }}{% endfilter %}", "xC"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}", "3"},
      {"{% generation %}{{ 'x' }}{% set q = 1 %}{% endgeneration %}{{ q }}", "x"},
  });
}

TEST(JinjaStatement, MacrosTakeArgumentsAndDefaults) {
  expect_rendered({
      {"{% macro m(x, y=2) %}{{ x }}-{{ y }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(y=5, x=4) "
       "}}",
       "1-2;1-3;4-5;"},
      {"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "321"},
      {"{% macro f() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}", "3"},
      {"{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "12"},
      {"{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z }}", ""},
      {"{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m()|length }}", "False5"},
  });
  expect_complaints({
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
       "line 1: macro 'm' takes at most 1 arguments"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
       "line 1: macro 'm' is given an argument it does not have"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
       "line 1: macro argument 'a' is given twice"},
  });
}

TEST(JinjaStatement, MistakesNameTheirLine) {
  expect_complaints({
      {"a\n\n{{ 1 + }}", "line 3: an expression is missing before '}}'"},
      {"\n{% if x %}\n\n", "line 3: the template ends inside of 'if'"},
      {"{{\n\n'abc }}", "line 3: a string has no end"},
      {"{#\n x", "line 1: a comment has no end"},
      {"{% raw %}\nx", "line 1: a raw block has no end"},
      {"\n{{ (1 }}", "line 2: unexpected '}' where ')' should be"},
      {"{{ ) }}", "line 1: unexpected ')'"},
      {"{{ a b }}", "line 1: unexpected 'b' in an expression"},
      {"{{ 'a' ? }}", "line 1: unexpected character '?'"},
      {"\n{% endif %}", "line 2: unexpected tag 'endif'"},
      {"{% if 1 %}{% else %}{% elif 2 %}{% endif %}", "line 1: unexpected tag 'elif'"},
      {"{% for x %}", "line 1: 'in' is missing in a for tag"},
      {"{% set 1 = 2 %}", "line 1: a name is missing before '1'"},
      {"{% break %}", "line 1: break or continue outside of a loop"},
      {"{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
       "line 1: break or continue outside of a loop"},
      {"{% %}", "line 1: a tag has no name"},
      {"{{ x[] }}", "line 1: an empty subscript"},
      {"{{ f(a=1, 2) }}", "line 1: a positional argument follows a named one"},
      {"{{ 'a' is string is defined }}", "line 1: tests with 'is' cannot be chained"},
      {"{{ x", "line 1: the template ends inside of a tag"},
      {"{{ '\\xZZ' }}", "line 1: a string has a bad \\x escape"},
      {"{% for a, b in [[1]] %}{% endfor %}", "line 1: 1 values for 2 names"},
      {"{% set d = {} %}\n{% set d.a = 1 %}",
       "line 2: 'd.a' cannot be set: 'd' is not a namespace"},
      {"{% for i in 5 %}{% endfor %}", "line 1: int cannot be iterated over"},
      {"x\n{{ 'a'\n~ nope.x }}", "line 3: 'nope' is undefined"},
  });
}

TEST(JinjaStatement, UnknownConstructsAreNamed) {
  expect_complaints({
      {"\n{{ 'x' | foo }}", "line 2: unknown filter 'foo'"},
      {"{{ 1 is foo }}", "line 1: unknown test 'foo'"},
      {"{{ ['x'] | map('foo') }}", "line 1: unknown filter 'foo'"},
      {"{{ ['x'] | select('foo') }}", "line 1: unknown test 'foo'"},
      {"\n\n{% foo %}", "line 3: unknown tag 'foo'"},
      {"{% include 'x' %}", "line 1: unknown tag 'include'"},
      {"{{ foo(1) }}", "line 1: unknown function 'foo'"},
      {"{{ 'x'.foo() }}", "line 1: unknown method 'foo' of str"},
      {"{{ messages.foo() }}", "line 1: unknown method 'foo' of list"},
      {"{% for x in [] recursive %}{% endfor %}", "line 1: a recursive loop"},
      {"{{ range(*x) }}", "line 1: argument unpacking with '*'"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}", "line 1: 'caller' in a macro"},
      {"{{ strftime_now('%Q') }}", "line 1: unknown conversion '%Q' in strftime_now"},
      {"{{ '{:>5}'.format(1) }}", "line 1: format: unknown field '{:>5}'"},
      {"{{ '%c' % 1 }}", "line 1: unknown conversion '%c' in a % format"},
      {"{{ '\\N{BULLET}' }}", "line 1: the escape \\N in a string"},
  });
}

TEST(JinjaStatement, UnsupportedHasItsOwnCode) {
  try {
    ChatTemplate("{{ 'x' | foo }}", "test");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::unsupported);
  }
}

// As in Jinja, a template may name a filter that only another engine has, behind a condition.
TEST(JinjaStatement, GuardedUnknownConstructsFailWhenReached) {
  expect_rendered({
      {"{% if false %}{{ 'x' | foo }}{% endif %}ok", "ok"},
      {"{{ 'x' | foo if false else 'ok' }}", "ok"},
      {"{% if true %}ok{% elif x is foo %}{% endif %}", "ok"},
  });
  expect_complaints({
      {"{% if true %}\n{{ 'x' | foo }}{% endif %}", "line 2: unknown filter 'foo'"},
      {"{% if false %}{{ 'x' | foo }}{% endif %}{{ 'y' | bar }}", "line 1: unknown filter 'bar'"},
  });
}

}  // namespace
}  // namespace tyto
