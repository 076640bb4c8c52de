// Filters, tests, methods and functions. The expected texts are what Jinja2 3.1 renders, with
// transformers' own tojson.
#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

TEST(JinjaFilter, TextFiltersAreJinjas) {
  expect_rendered({
      {"{{ ' \n\u3000x\u00A0\t'|trim }}|{{ 'abxba'|trim('ab') }}", "x|x"},
      {"{{ 'a\u00C9 stra\u00DFe'|upper }} {{ '\u00C0B'|lower }} {{ 'hELLO wORLD'|capitalize }}",
       "A\u00C9 STRASSE \u00E0b Hello world"},
      {"{{ \"they're bill's-friend (x)\"|title }}", "They're Bill's-Friend (X)"},
      {"{{ 'abcabc'|replace('a', 'x') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'|replace('', '-') "
       "}}",
       "xbcxbc bba -a-b-"},
      {"{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('>', blank=true) "
       "}}",
       "a\n    b\n\n    c|  a\n  b|a\n>\n>b"},
      {"{{ ''|indent(2) }}|{{ 'a\n'|indent(2) }}|", "|a\n|"},
      {"{{ 3|string + 'a' }} {{ 3.0|string }} {{ true|string|lower }} {{ 'a'|safe }}",
       "3a 3.0 true a"},
      {"{{ '<&\">\\''|e }}", "&lt;&amp;&#34;&gt;&#39;"},
      {"{{ '%s %s'|format('a', 2) }}", "a 2"},
      {"{{ 'abc'|length }} {{ [1, 2]|count }} {{ {'a': 1}|length }}", "3 2 1"},
  });
}

TEST(JinjaFilter, NumberFiltersAreJinjas) {
  expect_rendered({
      {"{{ '12'|int + 1 }} {{ 'a'|int }} {{ '3.7'|int }} {{ -3.7|int }} {{ none|int }} {{ true|int "
       "}}",
       "13 0 3 -3 0 1"},
      {"{{ 'x'|int(5) }} {{ '0x1f'|int(base=16) }} {{ ' -7 '|int }} {{ '1_000'|int }} {{ "
       "'inf'|int(3) }}",
       "5 31 -7 1000 3"},
      {"{{ '1.5'|float }} {{ 'x'|float }} {{ '+1'|float }} {{ '+-1'|float(9.0) }}",
       "1.5 0.0 1.0 9.0"},
      {"{{ 2.5|round }} {{ 3.14159|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.19|round(1, "
       "'floor') }}",
       "2.0 3.14 3.0 2.1"},
      {"{{ -5|abs }} {{ -2.5|abs }} {{ 7|round }}", "5 2.5 7"},
  });
}

TEST(JinjaFilter, TojsonIsTransformers) {
  expect_rendered({
      {R"({{ {'a': none, 'b': [1, 2.5, true], 3: 'x'}|tojson }})",
       R"({"a": null, "b": [1, 2.5, true], "3": "x"})"},
      {R"({{ '"\\\n\t\x01\x7f<\u00e9\u2028' | tojson }})",
       "\"\\\"\\\\\\n\\t\\u0001\x7F<\u00E9\u2028\""},
      {"{{ '\u00E9\U0001F989'|tojson(ensure_ascii=true) }}", R"("\u00e9\ud83e\udd89")"},
      {"{{ {'b': [1, {}], 'a': []}|tojson(indent=2) }}",
       "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"},
      {"{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", R"({"a":2,"b":1})"},
      {"{{ (1, 2)|tojson }} {{ 1e300|tojson }} {{ (1e300 * 1e300)|tojson }}",
       "[1, 2] 1e+300 Infinity"},
  });
}

TEST(JinjaFilter, SequenceFiltersAreJinjas) {
  expect_rendered({
      {"{{ [1, 2]|first }}{{ [1, 2]|last }}{{ 'ab'|last }}{{ []|first }}", "12b"},
      {"{{ 'ab'|list }} {{ {'a': 1}|list }} {{ {'a': 1}|items|list }} {{ [1, 2]|reverse|list }} "
       "{{ 'abc'|reverse }}",
       "['a', 'b'] ['a'] [('a', 1)] [2, 1] cba"},
      {"{{ [1, none, u]|join('-') }} {{ [{'a': 1}, {'a': 2}]|join(', ', attribute='a') }}",
       "1-None- 1, 2"},
      {"{{ [3, 1, 2]|sort }} {{ ['b', 'A']|sort }} {{ [1, 2]|sort(reverse=true) }} "
       "{{ [{'n': 2}, {'n': 1}]|sort(attribute='n') }}",
       "[1, 2, 3] ['A', 'b'] [2, 1] [{'n': 1}, {'n': 2}]"},
      {"{{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'a': 0}|dictsort(by='value', reverse=true) }}",
       "[('A', 2), ('b', 1)] [('b', 1), ('a', 0)]"},
      {"{{ ['a', 'A', 'b']|unique|list }} {{ [1, 5, 2]|max }} {{ ['b', 'A']|min }} {{ [1, 2]|sum "
       "}} "
       "{{ [[1], [2]]|sum(start=[]) }}",
       "['a', 'b'] 5 A 3 [1, 2]"},
      {"{{ [{'a': {'b': 3}}]|map(attribute='a.b')|list }} {{ [{}]|map(attribute='x', "
       "default='q')|list }} "
       "{{ [' a ']|map('trim')|map('upper')|join }}",
       "[3] ['q'] A"},
      {"{{ [1, 2, 3]|select('odd')|list }} {{ [0, 1]|select|list }} {{ [1, "
       "none]|reject('none')|list }} "
       "{{ [1, 2, 3]|select('>', 1)|list }}",
       "[1, 3] [1] [1] [2, 3]"},
      {"{{ [{'r': 'u'}, {'r': 's'}, {}]|selectattr('r')|list|length }}"
       "{{ [{'r': 'u'}, {'r': 's'}]|selectattr('r', 'equalto', 's')|list|length }}"
       "{{ [{'r': 'u'}, {'r': 's'}]|rejectattr('r', 'in', ['u', 's'])|list|length }}",
       "210"},
      {"{{ none|map('upper')|list }}{{ none|selectattr('x')|list }}", "[][]"},
  });
}

TEST(JinjaTest, TestsAreJinjas) {
  expect_rendered({
      {"{{ x is defined }} {{ x is undefined }} {{ none is none }} {{ 1 is not none }}",
       "False True True True"},
      {"{{ 'a' is string }} {{ 1 is string }} {{ {} is mapping }} {{ [] is mapping }}",
       "True False True False"},
      {"{{ [] is iterable }} {{ 5 is iterable }} {{ 'a' is sequence }} {{ none is sequence }} "
       "{{ x is iterable }}",
       "True False True False True"},
      {"{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.5 is float }} "
       "{{ true is boolean }} {{ 1 is boolean }}",
       "True True False True True False"},
      {"{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is sameas 1 }}",
       "True False True True"},
      {"{{ 3 is divisibleby 3 }} {{ 2 is even }} {{ 3 is odd }} {{ -3 is odd }} {{ 4 is "
       "divisibleby(3) }}",
       "True True True True False"},
      {"{{ 3 is eq 3 }} {{ 'a' is equalto 'b' }} {{ 3 is in [1, 3] }} {{ 5 is gt 3 }} {{ 5 is le 3 "
       "}}",
       "True False True True False"},
      {"{{ 'AB' is upper }} {{ 'ab1' is lower }} {{ 'Ab' is lower }} {{ range is callable }}",
       "True True False True"},
  });
}

TEST(JinjaMethod, TextMethodsArePythons) {
  expect_rendered({
      {"{{ ' x '.strip() }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ "
       "'\\n\\na\\n'.lstrip('\\n') }}|",
       "x|x | x|a\n|"},
      {"{{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c '.split(none, 1) }} "
       "{{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split(',') }}",
       "['a', 'b'] ['a', 'b,c'] ['a', 'b c '] ['a,b', 'c'] ['']"},
      {"{{ '<think>x</think>y'.split('</think>')[-1] }} {{ 'a\\nb\\r\\nc'.splitlines() }}",
       "y ['a', 'b', 'c']"},
      {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'a-b'.replace('-', '') }}",
       "True True ab"},
      {"{{ 'ab'.upper() }} {{ 'AB'.lower() }} {{ \"they're\".title() }} {{ 'aBC'.capitalize() }}",
       "AB ab They'Re Abc"},
      {"{{ '\u00E9abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.rfind('c') }} {{ "
       "'aaa'.count('a') }}",
       "3 -1 5 3"},
      {"{{ ', '.join(['a', 'b']) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} "
       "{{ 'a=b'.partition('=') }}",
       "a, b bc ab ('a', '=', 'b')"},
      {"{{ '{} {}'.format(1, 'a') }} {{ '{0}{x}{{}}'.format(1, x=3) }}", "1 a 13{}"},
      {"{{ '12'.isdigit() }} {{ 'a1'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} "
       "{{ 'A'.isupper() }} {{ ''.isdigit() }}",
       "True False True True True False"},
  });
  expect_complaints({
      {"{{ 'a'.split('') }}", "line 1: 'split' at an empty separator"},
      {"{{ 'a'.join([1]) }}", "line 1: an argument should be a str and is int"},
      {"{{ 'a'.upper(1) }}", "line 1: 'upper' takes at most 0 arguments"},
      {"{{ 'a'|trim(foo=1) }}", "line 1: 'trim' has no argument 'foo'"},
      {"{{ 'a'|replace('a') }}", "line 1: 'replace' needs argument 'new'"},
      {"{{ 'a'|replace('a', 'b', old='c') }}", "line 1: 'replace' is given argument 'old' twice"},
  });
}

TEST(JinjaMethod, ContainerMethodsArePythons) {
  expect_rendered({
      {"{{ {'a': 1}.get('a') }} {{ {}.get('b') }} {{ {}.get('b', 2) }} {{ {'a': 1}.keys()|list }} "
       "{{ {'a': 1}.values()|list }}",
       "1 None 2 ['a'] [1]"},
      {"{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.insert(0, 0) %}{% set _ = "
       "l.extend('x') %}"
       "{{ l }}{{ l.pop() }}{{ l.pop(0) }}{{ l }}{{ l.index(2) }}{{ l.count(1) }}",
       "[0, 1, 2, 'x']x0[1, 2]11"},
      {"{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}, c=3) %}{{ d }}{{ d.pop('a') }}{{ d }}"
       "{{ d.setdefault('z', 0) }}",
       "{'a': 1, 'b': 2, 'c': 3}1{'b': 2, 'c': 3}0"},
      {"{% set l = [1] %}{% set _ = l.append(l) %}{{ l|length }}{% set n = namespace() %}"
       "{% set n.self = n %}{{ n.self.self is defined }}",
       "2True"},
  });
  expect_complaints({
      {"{{ [].pop() }}", "line 1: 'pop' of an element that is not there"},
      {"{{ (1,).append(2) }}", "line 1: unknown method 'append' of tuple"},
  });
}

TEST(JinjaFunction, FunctionsAreJinjas) {
  expect_rendered({
      {"{{ range(3)|list }} {{ range(1, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(-5)|list }}",
       "[0, 1, 2] [1, 2] [5, 3, 1] []"},
      {"{{ range(9223372036854775800, 9223372036854775807, 5)|list }}",
       "[9223372036854775800, 9223372036854775805]"},
      {"{{ dict(a=1) }}{{ dict({'x': 1}, y=2) }}", "{'a': 1}{'x': 1, 'y': 2}"},
  });
  expect_complaints({
      {"\n{{ raise_exception('no\nway') }}", "line 2: the template says: no way"},
      {"{{ range(1, 2, 0) }}", "line 1: 'range' with a step of zero"},
  });
}

}  // namespace
}  // namespace tyto
