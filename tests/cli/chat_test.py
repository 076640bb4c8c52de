#!/usr/bin/env python3
"""tyto chat."""
import json
import re
import signal
import subprocess

from harness import FIXTURES, OWLET, TYTO, CliTest, main, tyto

RECEIPT = re.compile(r"^(\d+) tokens?(?: · [0-9.]+ tok/s)? · cpu(?: · stopped)?$", re.MULTILINE)


class Chat(CliTest):
    def chat(self, *lines, flags=(), model=OWLET, code=0):
        result = tyto("chat", "-m", model, "--temp", "0", "-n", "4", *flags, text="".join(line + "\n" for line in lines))
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def saved(self, *lines, **options):
        """The messages after these lines, and the program's result."""
        path = self.work / "saved.json"
        path.unlink(missing_ok=True)
        result = self.chat(*lines, f"/save {path}", **options)
        return [(m["role"], m["content"]) for m in json.loads(path.read_text())["messages"]], result

    def test_turns_clear_and_exit(self):
        result = tyto("chat", "-m", self.model, "--chat-template", "chatml", "-n", "4", "--temp", "0",
                      text="Hello\nAgain\n/clear\n/nonsense\nHello\n/exit\nnever read\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cleared", result.stderr)
        self.assertIn("unknown command /nonsense", result.stderr)
        self.assertEqual(len(RECEIPT.findall(result.stderr)), 3, result.stderr)
        self.assertRegex(result.stderr.splitlines()[0], r"^tiny \([0-9.]+M, bf16\) on cpu · context \d+ · /help$")

    def test_other_words_leave_as_exit_does(self):
        for word in ("/quit", "/bye"):
            result = self.chat(f"{word} now", word, "never read")
            self.assertIn(f"{word}: takes nothing more", result.stderr)
            self.assertNotRegex(result.stderr, RECEIPT)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        process = subprocess.Popen([TYTO, "chat", "-m", str(OWLET), "-n", "1900", "--ignore-eos"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            self.assertTrue(process.stdout.read(1))  # the answer has begun
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(b"/exit\n", timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(" · cpu · stopped\n", err.decode())
        self.assertLess(int(RECEIPT.search(err.decode())[1]), 1900)

    def test_what_is_piped_is_taken_as_it_is(self):
        messages, result = self.saved("one\\", "two", " /exit")
        self.assertEqual([text for role, text in messages if role == "user"], ["one\\", "two", " /exit"])
        answers = [text for role, text in messages if role == "assistant"]
        self.assertEqual(result.stdout, "".join(answer + "\n" for answer in answers))
        self.assertNotIn("\x1b", result.stderr)

    def test_the_receipt_is_short_and_whole_when_asked_for(self):
        result = self.chat("Hello", "Again")
        self.assertEqual(RECEIPT.findall(result.stderr), ["4", "4"])
        self.assertEqual(len(re.findall(r"^4 tokens · [0-9.]+ tok/s · cpu$", result.stderr, re.MULTILINE)), 2)
        self.assertEqual(result.stderr.count("\ncut off after 4 tokens (/set tokens changes it)\n"), 2)
        for word in ("submissions completed", "verified", "[", "seed"):
            self.assertNotIn(word, result.stderr)
        for flag in ("--verbose", "-v"):
            self.assertIn("submissions completed", self.chat("Hello", flags=[flag]).stderr)
        stats = self.chat("Hello", "/clear", "Hello", "Again", "/stats").stderr
        self.assertRegex(stats, r"last answer: prompt \d+ tokens? \(\d+ from the cache\), .* submissions completed")
        self.assertRegex(stats, r"conversation: 2 answers, \d+ tokens of prompts run, 8 tokens generated, [0-9.]+ tok/s")
        self.assertRegex(stats, r"context: \d+ of 2048 tokens")

    def test_modelled_devices_show_no_rate_and_what_the_host_does_by_design_is_no_fallback(self):
        result = self.chat("Hello", "Again", "/stats", flags=["--device", "vnpu"])
        short = [line for line in result.stderr.splitlines() if line.startswith("4 tokens")]
        self.assertEqual(short, ["4 tokens · vnpu (modelled)+cpu"] * 2, result.stderr)
        self.assertNotIn("fallback: ", result.stderr)
        self.assertIn("no fallbacks · on the host by design: embedding, rotation table, ", result.stderr)  # /stats
        self.assertNotIn("tok/s", result.stderr)

    def test_fallbacks_are_told_once(self):
        result = self.chat("Hello", "Again", flags=["--device", "vnpu", "--fusion", "token", "--weights", "q4nx", "--speculate", "lookup"])
        told = [line for line in result.stderr.splitlines() if line.startswith("fallback: ")]
        self.assertGreater(len(told), 0, result.stderr)
        self.assertEqual(len(told), len(set(told)))

    def test_a_device_that_was_not_checked_is_said_once(self):
        state = {"XDG_STATE_HOME": str(self.work / "unchecked")}
        def said(*flags):
            result = tyto("chat", "--temp", "0", "-n", "2", *flags, text="Hello\nAgain\n", environment=state)
            return result.stderr.count("This device has not been checked against the reference yet: tyto verify")
        self.assertEqual(said(), 0)  # the shipped model on the cpu
        self.assertEqual(said("-m", self.model, "--chat-template", "chatml"), 1)
        self.assertEqual(said("-m", self.model, "--chat-template", "chatml", "-c", "64"), 0)
        self.assertEqual(said("--device", "vnpu"), 1)
        self.assertEqual(said("--device", "vnpu"), 0)

    def test_a_cut_answer_of_a_grammar_fails(self):
        grammar = self.work / "list.gbnf"
        grammar.write_text('root ::= "a" ("b" "c")+ "d"')
        result = tyto("chat", "-m", OWLET, "-n", "2", "--temp", "0", "--grammar", grammar, text="Hello\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cut off after 2 tokens", result.stderr)
        self.assertIn("tyto: the answer does not match the grammar or schema", result.stderr)

    def test_help_names_every_command(self):
        text = self.chat("/help", "/help me").stderr
        for name in ("help", "exit", "clear", "system [TEXT]", "save FILE", "load FILE", "retry", "undo", "stats", "set [NAME VALUE]"):
            self.assertIn(f"/{name}", text)
        self.assertIn("/help: takes nothing more", text)
        self.assertNotIn("command  ", text)
        self.assertIn("/clear", self.chat("/?").stderr)

    def test_retry_and_undo(self):
        messages, result = self.saved("/retry", "/undo", "Hello", "Again", "/undo", "/retry")
        self.assertEqual([role for role, _ in messages], ["user", "assistant"])
        self.assertEqual(messages[0][1], "Hello")
        self.assertEqual(result.stderr.count("nothing was said yet"), 2)
        self.assertIn("taken back: Again", result.stderr)
        answers = result.stdout.splitlines()
        self.assertEqual((len(answers), answers[0]), (3, answers[2]))  # greedy: the same answer
        again = self.chat("/set temp 1.5", "/set tokens 12", "Tell me a story.", *["/retry"] * 3).stdout
        self.assertGreater(len(set(again.splitlines())), 1)

    def test_system_messages(self):
        messages, result = self.saved("/system", "Hello", "/system Be terse.", "/system", "Again", "/clear",
                                      flags=["--system", "Be kind."])
        self.assertEqual(messages, [("system", "Be terse.")])
        for part in ("Be kind.", "The system message is replaced; the conversation goes on with 1 exchange."):
            self.assertIn(part, result.stderr)
        self.assertIn("The system message is set;", self.chat("/system Be terse.").stderr)
        dropping = self.work / "dropping.jinja"
        dropping.write_text("{% for m in messages %}{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}{% endfor %}")
        left_out = "chat template has no place for a system message"
        self.assertIn(left_out, self.chat("/system Be terse.", flags=["--chat-template", dropping]).stderr)
        self.assertNotIn(left_out, result.stderr)
        messages, result = self.saved("/system -", "/system", flags=["--system", "Be kind."])
        self.assertEqual(messages, [])
        self.assertIn("There is no system message.", result.stderr)

    def test_settings_follow_the_rules_of_their_flags(self):
        result = self.chat("/set tokens 2", "Hello", "/set tokens default", "/set seed 5", "/set seed", "/set",
                           "/set temp hot", "/set tokens 0", "/set tmp 1", "/set top-p 7", "/set top-p",
                           "/set stop a b", "/set stop default", "/set", "/set ignore-eos on", "/set ignore-eos maybe", "/set ignore-eos off", "/set tokens -1", "/set tokens")
        for part in ("tokens is 2 now", "\n2 tokens", "tokens is -1 now", "seed is 5 now", '"hot" is not a number',
                     "did you mean temp?", '"0" is not -1 or a whole number from', "stop is a b now", "ignore-eos is on now", '"maybe" is neither on nor off', "tokens   -1 "):
            self.assertIn(part, result.stderr)
        self.assertNotIn("top-p is 7", result.stderr)
        self.assertNotIn("--temp", result.stderr)
        self.assertNotRegex(result.stderr, r"\bdefault  ")
        usual = tyto("chat", "-m", OWLET, text="/set\n").stderr  # the values in force, the model's own among them
        self.assertRegex(usual, r"(?m)^temp +0\.7 ")
        self.assertRegex(usual, r"(?m)^seed +\d+ ")
        self.assertRegex(usual, r"(?m)^verbose +off ")
        grammar = self.work / "yes.gbnf"
        grammar.write_text('root ::= "yes"')
        result = self.chat("/set ignore-eos on", "Is it?", flags=["--grammar", grammar])
        self.assertIn("ignore-eos: excludes --grammar", result.stderr)
        self.assertEqual(result.stdout, "yes\n")

    def test_a_conversation_is_saved_and_goes_on(self):
        path = self.work / "talk.json"
        whole, _ = self.saved("Hello", "Again", flags=["--system", "Be kind."])
        self.chat("Hello", f"/save {path}", flags=["--system", "Be kind."])
        parts, result = self.saved(f"/load {path}", "Again", f"/save {path}")
        self.assertEqual(parts, whole)
        self.assertIn("2 exchanges saved", result.stderr)  # over the file that was loaded
        self.assertEqual(json.loads(path.read_text())["schema"], "tyto-chat-1")

    def test_save_replaces_nothing_but_a_saved_chat(self):
        notes = self.work / "notes.txt"
        notes.write_text("not to be lost")
        result = self.chat("Hello", f"/save {notes}", f"/save {self.model}", f"/save {self.work}", "/save",
                           f"/save {self.work}/none/x", flags=["--chat-template", "chatml"], model=self.model)
        self.assertEqual(notes.read_text(), "not to be lost")
        self.assertIn("is not a saved chat (name another file)", result.stderr)
        self.assertIn("in use by this command", result.stderr)
        self.assertNotIn("--force", result.stderr)
        self.assertNotIn("saved as", result.stderr)

    def test_a_file_that_cannot_be_loaded_changes_nothing(self):
        def chat(*messages, schema="tyto-chat-1"):
            return json.dumps({"schema": schema, "messages": list(messages)})

        user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        hostile = {
            "empty": "", "cut": chat(user, assistant)[:-9], "list": "[]", "deep": "[" * 100000,
            "other": chat(user, assistant, schema="tyto-receipt-1"), "none": '{"schema": "tyto-chat-1"}',
            "unanswered": chat(user), "turns": chat(user, user), "first": chat(assistant),
            "late": chat(user, assistant, {"role": "system", "content": "s"}), "role": chat({"role": "root", "content": "x"}),
            "number": chat({"role": "user", "content": 1}, assistant), "silent": chat(user, {"role": "assistant", "content": ""}),
            "tool": chat(user, {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "f"}}]}),
            "twice": '{"schema": "tyto-chat-1", "messages": [], "messages": []}',
            "evil": chat({"role": "\x1b[2J", "content": "x"}), "bytes": "\xff\xfe"}
        for name, text in hostile.items():
            (self.work / name).write_text(text, encoding="latin-1")
        with (self.work / "huge").open("wb") as file:
            file.truncate(1 << 40)
        loads = [f"/load {self.work}/{name}" for name in [*hostile, "huge", "missing", "."]]
        messages, result = self.saved("Hello", *loads)
        self.assertEqual([role for role, _ in messages], ["user", "assistant"])
        self.assertNotIn("loaded from", result.stderr)
        self.assertNotIn("\x1b", result.stderr)
        self.assertEqual(result.stderr.count("tyto: "), len(loads), result.stderr)

    def full(self, *flags):
        lines = [f"Tell me more about number {i}, please." for i in range(6)]
        return tyto("chat", "-m", OWLET, "--temp", "0", "-c", "96", "-n", "24", "--ignore-eos", *flags,
                    text="\n".join(lines) + f"\n/save {self.work}/full.json\n/stats\n")

    def test_a_full_context_is_said_and_offers_a_way_out(self):
        result = self.full()
        self.assertEqual(result.returncode, 1)
        self.assertIn("leave no room for an answer in a context of 96 (/clear forgets the conversation", result.stderr)
        self.assertIn("turns failed", result.stderr)
        result = tyto("chat", "-m", OWLET, "--temp", "0", "-c", "64", "-n", "500", "--ignore-eos", text="Hello\n")
        self.assertIn("cut off: the context of 64 tokens is full (/clear forgets", result.stderr)
        self.assertRegex(self.full().stderr, r"context: (\d+) of 96 tokens")
        self.assertNotRegex(self.full().stderr, r"context: (9[7-9]|\d{3,}) of 96 tokens")
        self.assertEqual(result.returncode, 0)

    def test_the_oldest_exchanges_are_dropped(self):
        result = self.full("--context-shift", "--system", "Be kind.")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, "The context of 96 tokens is full: the oldest (exchange was|2 exchanges were) dropped")
        messages = json.loads((self.work / "full.json").read_text())["messages"]
        self.assertEqual((len(messages), messages[0]["role"]), (13, "system"))  # nothing is lost for the user
        self.assertRegex(result.stderr, "the last [1-5] of 6 exchanges")
        self.assertNotIn("cut off: ", result.stderr)
        long = tyto("chat", "-m", OWLET, "--temp", "0", "-c", "96", "--context-shift", text="word " * 200 + "\n")
        self.assertIn("say it in fewer words", long.stderr)

    def test_an_answer_goes_on_where_the_context_ends(self):
        messages, result = self.saved("/set tokens 20", "Hello", "/set tokens 70", "Tell me a story.",
                                      flags=["-c", "96", "--ignore-eos", "--context-shift"])
        parts = list(map(int, RECEIPT.findall(result.stderr)))
        self.assertEqual((len(parts), parts[0], sum(parts)), (3, 20, 90), result.stderr)
        self.assertIn("the oldest exchange was dropped from it", result.stderr)
        self.assertTrue(result.stdout.endswith(messages[-1][1] + "\n"))

    def test_the_space_stays_where_an_answer_goes_on(self):
        """The second part of an answer continues a text, so its first token keeps the space of a SentencePiece vocabulary."""
        grammar = self.work / "the.gbnf"
        grammar.write_text('root ::= "the" (" the")*')
        messages, result = self.saved("/set tokens 3", "in", "/set tokens 70", "in", model=FIXTURES / "llama2" / "model",
                                      flags=["-c", "85", "--context-shift", "--grammar", grammar, "--chat-template", "zephyr"], code=1)
        self.assertGreater(len(RECEIPT.findall(result.stderr)), 2, result.stderr)
        self.assertRegex(messages[-1][1], "^the( the)*( t| th)?$")

    def test_a_developers_message_is_the_system_message(self):
        path = self.work / "developer.json"
        path.write_text(json.dumps({"schema": "tyto-chat-1", "messages": [
            {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
        messages, result = self.saved(f"/load {path}")
        self.assertEqual(messages[0], ("system", "Be kind."), result.stderr)


if __name__ == "__main__":
    main()
