#!/usr/bin/env python3
"""Nothing that a file or a model says reaches the terminal as a command to it."""
import json
import re
import shutil
import tempfile
from pathlib import Path

from harness import FIXTURES, CliTest, main, on_terminal, tyto

NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;owned\x07\x1b[2J\r\x7f\x9b31m\u202e\u2066"


class Terminal(CliTest):
    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))

    def tyto(self, *args, **kwargs):
        return tyto(*args, environment={"XDG_STATE_HOME": str(self.state), "XDG_CACHE_HOME": str(self.state)}, **kwargs)

    def check_clean(self, result, *fragments):
        for stream in (result.stdout, result.stderr):
            self.assertIsNone(NOT_TEXT.search(stream), ascii(stream))
        for fragment in fragments:
            self.assertIn(fragment, result.stdout + result.stderr)

    def patched(self, old, new, name="patched.gguf"):
        """The model with a string of the same length in the place of another."""
        content = self.model.read_bytes()
        self.assertEqual(len(old), len(new))
        self.assertIn(old, content)
        path = self.work / name
        path.write_bytes(content.replace(old, new))
        return path

    def checkpoint(self, change):
        """A small checkpoint folder whose tokenizer.json went through `change`."""
        folder = Path(tempfile.mkdtemp(dir=self.work))
        for path in (FIXTURES / "llama3" / "model").iterdir():
            shutil.copy(path, folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        change(tokenizer)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        return folder

    def test_names_in_a_model_file(self):
        name = self.patched(b"\x04\0\0\0\0\0\0\0tiny", b"\x04\0\0\0\0\0\0\0\x1b[2J")
        shown = tyto("inspect", "-m", name)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.check_clean(shown, "\\u001b[2J")
        self.assertEqual(json.loads(tyto("inspect", "-m", name, "--json").stdout)["name"], "\x1b[2J")
        tensor = self.patched(b"blk.0.attn_q.weight", b"blk\x1b]0;\x07\xc2\x9b\r\n\xe2\x80\xae\x7fxyz")
        for command in (["inspect", "--tensors"], ["run", "-p", "x"]):
            self.check_clean(tyto(*command, "-m", tensor))
        self.check_clean(tyto("inspect", "-m", tensor, "--tensors", "--json"))

    def test_file_names(self):
        path = self.work / "a\x1b[2J\nb.gguf"
        self.check_error(tyto("inspect", "-m", path), 1, "\\u001b[2J\\u000ab.gguf")
        shutil.copy(self.model, path)
        self.check_clean(tyto("inspect", "-m", path), "\\u001b[2J\\u000ab.gguf")
        self.check_clean(tyto("run", "-m", path, "-p", "x", "--raw", "-n", "1"))
        # The hint of an error names what was typed, too.
        self.check_error(tyto("run", "-m", "org\x1b[2J/x\u202ey", "-p", "x"), 1)
        self.check_clean(tyto("run", "-m", "org\x1b[2J/x\u202ey", "-p", "x"))

    def test_answers_are_text_alone(self):
        def evil_word(tokenizer):
            word = next(token for token in tokenizer["added_tokens"] if token["content"] == "<|end_of_text|>")
            word.update(content=f"a{EVIL}b\tc\n", special=False)

        folder = self.checkpoint(evil_word)
        flags = ["-m", folder, "--logit-bias", "380=1000", "--ignore-eos", "--temp", "0", "-n", "3"]
        answer = "a]0;owned[2J31mb\tc\n" * 3 + "\n"
        for command in (["run", "--raw", "-p", "x"], ["run", "--raw", "-p", "x", "--require", "cpu"]):
            result = tyto(*command, *flags)
            self.check_clean(result)
            self.assertEqual(result.stdout, answer)
        self.assertEqual(on_terminal("run", "--raw", "-p", "x", *flags), answer)
        chat = tyto("chat", *flags, text="x\n/\x1b[2J\n")
        self.check_clean(chat, "\\u001b[2J")
        self.assertEqual(chat.stdout, answer)
        profile = tyto("profile", "--raw", "-p", "x", *flags)
        self.check_clean(profile, answer)

    def test_a_model_that_generates_escapes(self):
        escape, = json.loads(tyto("tokenize", "-m", self.model, "--stdin", "--json", "--no-bos", text="\x1b").stdout)["ids"]
        flags = ["-m", self.model, "--logit-bias", f"{escape}=1000", "--ignore-eos", "--temp", "0", "-n", "4"]
        self.assertEqual(tyto("run", "--raw", "-p", "x", *flags).stdout, "\n")
        # What a program reads is exact; what a terminal reads is not.
        back = ["detokenize", "-m", self.model, "--ids", f"{escape},{escape}"]
        self.assertEqual(tyto(*back).stdout, "\x1b\x1b\n")
        self.assertEqual(on_terminal(*back), "\\u001b\\u001b\n")

    def test_pieces_of_a_tokenizer(self):
        def evil_token(tokenizer):
            tokenizer["added_tokens"][2]["content"] = EVIL

        folder = self.checkpoint(evil_token)
        text = f"a{EVIL}"
        for json_flag in ([], ["--json"]):
            result = tyto("tokenize", "-m", folder, "--special", "--stdin", *json_flag, text=text)
            self.check_clean(result, "\\u001b]0;owned")
        self.assertEqual(json.loads(result.stdout)["pieces"][-1], EVIL)

    def test_a_ledger(self):
        self.tyto("bench", "-m", self.model, "-p", "4", "-n", "0", "-r", "1")
        ledger = self.state / "tyto/results.jsonl"
        record = json.loads(ledger.read_text())
        for field in ("test", "model_filename", "executed_on"):
            record["row"][field] = EVIL + "\nforged"
        record["date"] = "\x9b2J"
        ledger.write_text(json.dumps(record) + "\n" + json.dumps({
            "schema": record["schema"], "kind": "supersede", "supersedes": record["id"], "date": "x",
            "why": "\x1b[8m\n", "by": None}) + "\n")
        listed = self.tyto("results", "list", "--all")
        self.check_clean(listed, "\\u001b]0;owned", "\\u000aforged")
        self.assertEqual(len(listed.stdout.splitlines()), 1)
        shown = self.tyto("results", "show", record["id"])
        self.check_clean(shown)
        self.assertEqual(json.loads(shown.stdout)["row"]["test"], EVIL + "\nforged")

    def test_a_profile(self):
        path = self.work / "profile.json"
        made = tyto("profile", "-m", self.model, "-p", "x", "--raw", "-n", "2", "--json", path)
        self.assertEqual(made.returncode, 0, made.stderr)
        profile = json.loads(path.read_text())
        for run in profile["runs"]:
            del run["receipt"]["hash"]  # as of a version that had none: the forgery would be found
        text = json.dumps(profile)
        self.assertIn('"tiny', text)
        path.write_text(text.replace('"tiny', json.dumps(EVIL + "\ntiny")[:-1]))
        self.check_clean(tyto("profile", "--from", path), "tiny")
        self.check_clean(tyto("profile", "--diff", path, path))
        shown = re.sub("\x1b\\[(1|2|31|32|0)m", "", on_terminal("profile", "--from", path))
        self.assertIsNone(NOT_TEXT.search(shown), ascii(shown))


if __name__ == "__main__":
    main()
