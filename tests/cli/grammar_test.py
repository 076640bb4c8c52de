#!/usr/bin/env python3
"""tyto run and tyto chat with --grammar and --json-schema."""
import json
import re

from harness import FIXTURES, OWLET, CliTest, main, tyto

SCHEMA = {"type": "object", "properties": {"owl": {"enum": ["barn", "snowy"]}, "eggs": {"type": "integer", "minimum": 1,
          "maximum": 12}, "note": {"type": "string", "maxLength": 8}}, "required": ["owl", "eggs", "note"],
          "additionalProperties": False}


class Grammar(CliTest):
    def file(self, name, text):
        path = self.work / name
        path.write_text(text)
        return path

    def test_answers_match_the_grammar(self):
        grammar = self.file("list.gbnf", 'root ::= item ("," item){2} "."\nitem ::= [a-c]{2,4} | "é"')
        for seed in range(3):
            for model in (self.model, OWLET, FIXTURES / "llama2" / "model"):  # byte-level, and SentencePiece
                result = tyto("run", "-m", model, "-p", "Owls", "--raw", "-n", "60", "--temp", "1.5", "--seed", seed,
                              "-v", "--grammar", grammar)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"^([a-c]{2,4}|é)(,([a-c]{2,4}|é)){2}\.\n$")
                self.assertIn("stopped at end of turn", result.stderr)

    def test_answers_are_json_of_the_schema(self):
        schema = self.file("schema.json", json.dumps(SCHEMA))
        for flags in (["--temp", "0"], ["--temp", "2", "--seed", "3", "--top-k", "0", "--repeat-penalty", "1.5"]):
            result = tyto("run", "-m", OWLET, "-p", "An owl", "-n", "300", "--json-schema", schema, *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual(list(answer), ["owl", "eggs", "note"])
            self.assertIn(answer["owl"], SCHEMA["properties"]["owl"]["enum"])
            self.assertIn(answer["eggs"], range(1, 13))
            self.assertLessEqual(len(answer["note"]), 8)

    def test_a_cut_answer_is_no_json(self):
        schema = self.file("schema.json", json.dumps(SCHEMA))
        cut = tyto("run", "-m", OWLET, "-p", "An owl", "-n", "5", "--json-schema", schema)
        self.assertEqual(cut.returncode, 1)
        self.assertIn("the answer: does not match the grammar or schema (it was cut off after 5 tokens (-n))", cut.stderr)
        self.assertTrue(cut.stdout.startswith("{"))

    def test_every_answer_of_a_chat(self):
        grammar = self.file("yes.gbnf", 'root ::= "yes" | "no"')
        result = tyto("chat", "-m", OWLET, "--grammar", grammar, text="Is it?\nAnd now?\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(re.fullmatch(r"(yes|no)\n(yes|no)\n", result.stdout), result.stdout)

    def test_bad_ones_are_refused(self):
        good, bad = self.file("good.gbnf", 'root ::= "a"'), self.file("bad.gbnf", 'root ::=\n "a" b')
        run = ["run", "-m", self.model, "-p", "x"]
        self.check_error(tyto(*run, "--grammar", bad), 1, 'grammar: line 2: there is no rule "b"')
        self.check_error(tyto(*run, "--grammar", self.work / "none.gbnf"), 1, "none.gbnf")
        self.check_error(tyto(*run, "--json-schema", self.file("not.json", '{"not": {}}')), 1, "not.json: not")
        self.check_error(tyto(*run, "--grammar", good, "--json-schema", good), 2, "--json-schema")
        self.check_error(tyto(*run, "--grammar", good, "--ignore-eos"), 2, "--ignore-eos")


if __name__ == "__main__":
    main()
