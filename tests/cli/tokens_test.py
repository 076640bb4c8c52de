#!/usr/bin/env python3
"""tyto tokenize, detokenize and template."""
import json
import shutil
import subprocess

from harness import FIXTURES, TYTO, CliTest, main, tyto


class Tokens(CliTest):
    def test_tokenize_prints_ids_and_pieces(self):
        result = json.loads(tyto("tokenize", "-m", self.model, "--text", "Hello", "--json").stdout)
        self.assertEqual("".join(result["pieces"][1:]), "Hello")  # the first piece is the BOS
        self.assertEqual(len(result["ids"]), len(result["pieces"]))
        bare = json.loads(tyto("tokenize", "-m", self.model, "--text", "Hello", "--json", "--no-bos").stdout)
        self.assertEqual(bare["ids"], result["ids"][1:])

    def test_round_trip_of_awkward_text(self):
        for text in ["naïve café", "日本語", "🦉 owl", "a\tb\r\nc", "  spaces  ", "\u0000nul"]:
            ids = json.loads(tyto("tokenize", "-m", self.model, "--stdin", "--json", "--no-bos", text=text).stdout)["ids"]
            back = tyto("detokenize", "-m", self.model, "--ids", ",".join(map(str, ids)))
            self.assertEqual(back.stdout, text + "\n")

    def test_invalid_utf8_is_encoded_not_refused(self):
        raw = subprocess.run([TYTO, "tokenize", "-m", str(self.model), "--stdin", "--json", "--no-bos"],
                             input=b"ok \xff\xfe \xe2\x82", capture_output=True, timeout=60)
        self.assertEqual(raw.returncode, 0, raw.stderr)
        self.assertGreaterEqual(len(json.loads(raw.stdout)["ids"]), 5)

    def test_text_as_an_argument_or_through_a_pipe(self):
        told = tyto("tokenize", "-m", self.model, "--text", "Hello")
        self.assertEqual(told.returncode, 0, told.stderr)
        for words, text in ((["Hello"], ""), ([], "Hello"), (["-"], "Hello"), (["--", "Hello"], "")):
            self.assertEqual(tyto("tokenize", "-m", self.model, *words, text=text).stdout, told.stdout, words)
        self.check_error(tyto("tokenize", "-m", self.model, "Hello", "--text", "x"), 2, "exclude each other")
        self.check_error(tyto("tokenize", "-m", self.model, "Hello", "--stdin"), 2, "exclude each other")
        self.assertEqual(tyto("tokenize", "-m", self.model, "--no-bos", "").stdout, "")

    def test_bad_ids(self):
        self.check_error(tyto("detokenize", "-m", self.model, "--ids", "1,x"), 2, "x")
        self.check_error(tyto("detokenize", "-m", self.model, "--ids", "1,,2"), 2, "--ids", ",2")
        self.check_error(tyto("eval", "-m", self.model, "--ids", "1,,2", "--logits", self.work / "x"), 2, "--ids")
        self.check_error(tyto("detokenize", "-m", self.model, "--ids", "99999999"), 2, "99999999")
        self.check_error(tyto("tokenize", "-m", self.model), 2, "no text", "tyto tokenize 'Hello'")

    def test_template_with_tools(self):
        messages = self.work / "calls.json"
        messages.write_text(json.dumps([
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"}]))
        tools = self.work / "tools.json"
        tools.write_text('[{"type": "function", "function": {"name": "f"}}]')
        source = self.work / "calls.jinja"
        source.write_text("{{ tools | tojson }}{{ messages[1].tool_calls[0].function.arguments.a }}{{ messages[2].tool_call_id }}")
        arguments = ["template", "--file", source, "--messages", messages]
        self.assertEqual(tyto(*arguments, "--tools", tools).stdout,
                         '[{"type": "function", "function": {"name": "f"}}]1call_1')
        self.assertEqual(tyto(*arguments).stdout, "null1call_1")
        tools.write_text('[{"type": "function"}]')
        self.check_error(tyto(*arguments, "--tools", tools), 1, "tools.json: [0]", "function")
        messages.write_text('[{"role": "user", "content": [{"type": "image_url"}]}]')
        self.check_error(tyto(*arguments), 1, "[0].content[0].type", "image_url")

    def test_the_template_for_tools(self):
        folder, gguf = self.work / "several", self.work / "several.gguf"
        shutil.copytree(FIXTURES / "llama3" / "model", folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["chat_template"] = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ tools | length }}"}]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        self.assertEqual(tyto("quantize", "-m", folder, "--type", "bf16", "-o", gguf).returncode, 0)
        messages, tools = self.work / "hi.json", self.work / "one.json"
        messages.write_text('[{"role": "user", "content": "Hi"}]')
        tools.write_text('[{"type": "function", "function": {"name": "f"}}]')
        for model in (folder, gguf):
            self.assertEqual(tyto("template", "-m", model, "--messages", messages).stdout, "D")
            shown = tyto("template", "-m", model, "--messages", messages, "--tools", tools)
            self.assertEqual((shown.stdout, shown.stderr), ("T1", ""))
        # One that does not show them says so.
        source = self.work / "deaf.jinja"
        source.write_text("D")
        for where in (["--chat-template", source], ["-m", FIXTURES / "llama3" / "model"]):
            shown = tyto("template", *where, "--messages", messages, "--tools", tools)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("shows the model no tools", shown.stderr)
            self.assertEqual(tyto("template", *where, "--messages", messages).stderr, "")

    def test_template(self):
        messages = self.work / "messages.json"
        messages.write_text('[{"role": "user", "content": "Hi"}]')
        source = self.work / "t.jinja"
        source.write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}")
        self.assertEqual(tyto("template", "--file", source, "--messages", messages).stdout, "[user: Hi]")
        source.write_text("\n{{ raise_exception('no thanks') }}")
        self.check_error(tyto("template", "--file", source, "--messages", messages), 1, "no thanks")
        source.write_text("\n\n{{ x | frobnicate }}")
        self.check_error(tyto("template", "--file", source, "--messages", messages), 1, "frobnicate", "line 3")


if __name__ == "__main__":
    main()
