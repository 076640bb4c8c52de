#!/usr/bin/env python3
"""Models whose vocabulary has the special tokens of harmony, as gpt-oss's does: what ends their answers, and what of them is shown."""
import json
import shutil
import urllib.request

from harness import FIXTURES, CliTest, main, tyto
from serving import Serving

MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"


class Harmony(CliTest):
    @classmethod
    def setUpClass(cls):
        """Tiny random weights; the last merges of the vocabulary make room for the markers."""
        super().setUpClass()
        cls.checkpoint, cls.gguf = cls.work / "harmony", cls.work / "harmony.gguf"
        shutil.copytree(FIXTURES / "gpt-oss" / "model", cls.checkpoint)
        path = cls.checkpoint / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
        cls.ids = {}
        for marker in MARKERS:
            last = merges.pop()
            cls.ids[marker] = vocabulary[marker] = vocabulary.pop("".join(last if isinstance(last, list) else last.split(" ")))
            tokenizer["added_tokens"].append({"id": cls.ids[marker], "content": marker, "special": True, "single_word": False,
                                              "lstrip": False, "rstrip": False, "normalized": False})
        path.write_text(json.dumps(tokenizer))
        (cls.checkpoint / "chat_template.jinja").write_text(TEMPLATE)
        made = tyto("quantize", "-m", cls.checkpoint, "-o", cls.gguf, "--type", "f16")
        assert made.returncode == 0, made.stderr

    def template(self, end):
        path = self.work / "template.jinja"
        path.write_text(TEMPLATE + end)
        return path

    def run_it(self, *flags, end="<|channel|>analysis<|message|>", code=0):
        result = tyto("run", "-m", self.gguf, "-p", "Hi", "-n", "12", "--temp", "0", "--chat-template", self.template(end), *flags)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertNotIn("<|", result.stdout)
        return result

    def test_a_message_may_end_and_the_answer_goes_on(self):
        for model in (self.checkpoint, self.gguf):
            server = Serving("--chat-template", str(self.template("")), models=(f"m={model}",))
            self.addCleanup(server.stop)
            for marker, reason in (("<|end|>", "length"), ("<|return|>", "stop"), ("<|call|>", "stop")):
                body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0,
                        "logit_bias": {str(self.ids[marker]): 100}}
                request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode())
                choice = json.loads(urllib.request.urlopen(request, timeout=60).read())["choices"][0]
                self.assertEqual((choice["finish_reason"], choice["message"]["content"]), (reason, ""))

    def test_thoughts_are_shown_as_thoughts(self):
        thought = self.run_it().stdout
        self.assertTrue(thought.startswith("<think>\n") and thought.rstrip().endswith("</think>"), thought)
        self.assertNotIn("think>", self.run_it(end="<|channel|>final<|message|>").stdout)

    def test_a_grammar_holds_the_final_channel(self):
        grammar = self.work / "yes.gbnf"
        grammar.write_text('root ::= "yes"')
        self.assertEqual(self.run_it("--grammar", grammar, end="<|channel|>final<|message|>").stdout, "yes\n")
        thinking = self.run_it("--grammar", grammar, code=1)
        self.assertEqual(thinking.stdout, "\n")  # random weights do not stop thinking
        self.assertIn("cut off after 12 tokens", thinking.stderr)

    def test_a_chat_keeps_the_answer_alone(self):
        for end, kept in (("<|channel|>final<|message|>", True), ("<|channel|>analysis<|message|>", False)):
            saved = self.work / "saved.json"
            saved.unlink(missing_ok=True)
            result = tyto("chat", "-m", self.gguf, "-n", "6", "--temp", "0", "--chat-template", self.template(end), text=f"Hi\n/save {saved}\n")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("<think>" in result.stdout, not kept)
            self.assertEqual("No answer came" in result.stderr, not kept)
            if kept:
                messages = json.loads(saved.read_text())["messages"]
                self.assertEqual(messages[-1]["content"] + "\n", result.stdout)


if __name__ == "__main__":
    main()
