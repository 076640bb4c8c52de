#!/usr/bin/env python3
"""tyto chat as a person meets it, on a terminal."""
import json
import os
import re
import signal
import stat
import tempfile
import termios
from pathlib import Path

from harness import OWLET, TYTO, CliTest, main
from terminal_session import (BACKSPACE, CTRL_A, CTRL_C, CTRL_D, DOWN, ENTER, LEFT, PASTE, PASTE_END, RIGHT, TAB, UP,
                              Session)


class ChatOnATerminal(CliTest):
    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))
        self.saved = self.state / "saved.json"

    def chat(self, *flags, model=OWLET, **options):
        session = Session("chat", "-m", model, *flags, environment={"XDG_STATE_HOME": str(self.state)},
                          **options)
        session.prompt()
        return session

    def exchanges(self):
        messages = json.loads(self.saved.read_text())["messages"]
        return [m["content"] for m in messages if m["role"] == "user"]

    def save(self, session):
        self.assertIn("saved as", session.say(f"/save {self.saved}"))
        return self.exchanges()

    def test_lines_are_edited_recalled_continued_and_pasted(self):
        with self.chat("-n", "2") as session:
            session.say("Hllo" + LEFT * 3 + "e" + RIGHT * 3 + "!" + CTRL_A + "+")
            session.say("é日本😀x" + BACKSPACE * 2)
            session.say(UP + UP + DOWN)
            self.assertNotIn(" · cpu", session.say("one\\"))
            session.say("two")
            session.say(f"{PASTE}a\r\tb\x1b[2J\rc\r{PASTE_END}")
            session.say(f"before {PASTE}pas{CTRL_C}ted{PASTE_END} after{PASTE_END}")
            session.type("given up" + CTRL_C)
            self.assertNotIn("leaves", session.prompt())
            session.type(CTRL_C)
            session.expect("Ctrl-D or /exit leaves")
            session.prompt()
            session.say("kept" + LEFT * 3)
            session.say(" secret")
            session.type("/sav" + TAB + str(self.state) + "/sav")
            session.expect("/sav")
            session.say("ed.json")
            self.assertEqual(self.exchanges(), ["+Hello!", "é日本", "é日本", "one\ntwo", "a\n\tb[2J\nc",
                                                "before pasted after", "kept", " secret"])
            session.type(CTRL_D)
            self.assertEqual(session.end(), 0)
        history = self.state / "tyto" / "chat_history"
        self.assertEqual(stat.S_IMODE(history.stat().st_mode), 0o600)
        self.assertNotIn("secret", history.read_text())
        self.saved.unlink()
        with self.chat("-n", "2", columns=120, rows=40) as session:  # another run, which remembers
            session.say(UP * 2)
            session.say(UP * 5 + LEFT + "!")  # a message of several lines is one entry
            self.assertEqual(self.save(session), ["kept", "a\n\tb[2J\n!c"])

    def test_a_paste_that_never_ends_or_is_too_large(self):
        with self.chat("-n", "1") as session:
            session.type(PASTE + "half")
            session.expect("half")  # when no more has come for a while
            session.say("")
            session.type(PASTE)
            for _ in range(300):
                session.type("x" * 1000)
            session.type(PASTE_END)
            session.expect("The paste is longer than 262144 characters and was left out")
            session.say("small")
            self.assertEqual(self.save(session), ["half", "small"])

    def test_completion(self):
        (self.state / "saved conversation.json").write_text("")
        (self.state / "saved talk.json").write_text("")
        (self.state / "folder").mkdir()
        with self.chat("-n", "1") as session:
            session.type("/s" + TAB)
            session.expect("/set")
            for name in ("/system", "/save", "/stats"):
                self.assertIn(name, session.shown)
            session.type("av" + TAB + str(self.state) + "/saved" + TAB + TAB)
            session.expect("\nsaved conversation.json  saved talk.json\r")
            session.type("t" + TAB)
            session.expect("alk.json")
            self.assertIn("0 exchanges saved", session.say(""))
            self.assertIn("tyto-chat-1", (self.state / "saved talk.json").read_text())
            session.type("/load " + str(self.state) + "/fol" + TAB)
            session.expect("der/")
            session.type(CTRL_C)
            session.prompt()
            session.type("/set top" + TAB + "k" + TAB)
            self.assertIn("top-k is 7 now", session.say("7"))
            session.say("a tab" + TAB + " in a message does nothing")
            self.assertEqual(self.save(session), ["a tab in a message does nothing"])

    def test_ctrl_c_stops_an_answer_and_what_was_said_stays(self):
        with self.chat("-n", "1900", "--ignore-eos") as session:
            session.type("Tell me a story." + ENTER)
            session.expect(r"\w+ \w+ \w+ \w+ \w+")  # the answer's; the bar has fewer words
            session.type(CTRL_C)
            text = session.prompt()
            self.assertIn(" · cpu · stopped", text)
            self.assertNotIn("^C", text)
            self.assertNotIn("cut off", text)
            self.assertEqual(self.save(session), ["Tell me a story."])
            answer = json.loads(self.saved.read_text())["messages"][-1]
            self.assertEqual(answer["role"], "assistant")
            # At the prompt it does what the key does. One that comes before the editor waits is seen with the next key only.
            for _ in range(60):
                os.kill(session.pid, signal.SIGINT)
                if session.shows("leaves", 1):
                    break
            session.expect("leaves")
            session.prompt()
            session.type("/exit" + ENTER)
            self.assertEqual(session.end(), 0)

    def test_ctrl_c_stops_a_prompt_that_is_being_read(self):
        with self.chat("-n", "4") as session:
            session.type(PASTE + "word " * 1500 + PASTE_END)
            session.expect("word word")
            session.type(ENTER)
            session.expect("reading the prompt +\\[")
            session.type(CTRL_C)
            stopped = "Stopped before the answer began" in session.prompt()  # or a moment later
            self.assertIn("0 answers" if stopped else "1 answer", session.say("/stats"))
            self.assertEqual(len(self.save(session)), 0 if stopped else 1)
            session.type(CTRL_D)
            self.assertEqual(session.end(), 0)

    def test_a_signal_gives_the_terminal_back(self):
        with self.chat() as session:
            self.assertFalse(termios.tcgetattr(session.terminal)[3] & (termios.ECHO | termios.ISIG))  # the editor's
            os.kill(session.pid, signal.SIGTERM)
            os.waitpid(session.pid, 0)
            session.pid = 0
            self.assertTrue(termios.tcgetattr(session.terminal)[3] & termios.ECHO)

    def test_words_are_whole_and_receipts_are_dim(self):
        with self.chat("--temp", "0", "-n", "60", columns=50) as session:
            self.assertIn("\x1b[Kowlet (11M, bf16) on cpu · context 2048 · /help\r\n", session.shown)
            session.type("Tell me a story about a fox." + ENTER)
            shown = session.prompt().replace("\r\n", "\n")
            self.save(session)
            answer = json.loads(self.saved.read_text())["messages"][-1]["content"]
            text, receipt = re.fullmatch("(?s).*\r\x1b\\[K(.*)\n\n\x1b\\[2m(.*?)\x1b\\[0m\ncut off after 60 tokens .*", shown).groups()
            self.assertRegex(receipt, r"^60 tokens · [0-9.]+ tok/s · cpu$")
            self.assertEqual(text.replace("\n", " "), answer.replace("\n", " "))
            self.assertGreater(text.count("\n"), answer.count("\n") + 2)
            self.assertLessEqual(max(map(len, text.split("\n"))), 50)
            session.type(CTRL_D)
            self.assertEqual(session.end(), 0)

    def test_a_turn_that_failed_is_no_failed_chat(self):
        with self.chat("-c", "64") as session:
            self.assertIn("leave no room", session.say("word " * 100))
            session.type("/bye" + ENTER)
            self.assertEqual(session.end(), 0)

    def test_what_is_typed_early_waits_for_its_prompt(self):
        with Session("chat", "-m", OWLET, "--temp", "0", "-n", "3", environment={"XDG_STATE_HOME": str(self.state)}) as session:
            while termios.tcgetattr(session.terminal)[3] & termios.ECHO:  # until the program has the terminal
                pass
            session.type("Hello there" + ENTER)
            session.expect("/help")
            self.assertNotIn("Hello there", session.shown.partition("/help")[0])
            session.expect("> .*Hello there")
            session.prompt()
            session.type(CTRL_D)
            self.assertEqual(session.end(), 0)
            self.assertTrue(termios.tcgetattr(session.terminal)[3] & termios.ECHO)

    def test_an_answer_gives_the_terminal_back(self):
        for end in (signal.SIGTERM, signal.SIGQUIT):
            with self.chat("-n", "1900", "--ignore-eos") as session:
                session.type("Tell me a story." + ENTER)
                session.expect(r"\w+ \w+ \w+ \w+ \w+")
                self.assertFalse(termios.tcgetattr(session.terminal)[3] & termios.ECHO)
                os.kill(session.pid, end)
                os.waitpid(session.pid, 0)
                session.pid = 0
                self.assertTrue(termios.tcgetattr(session.terminal)[3] & termios.ECHO)

    def test_ctrl_z_and_the_shell(self):
        environment = {"XDG_STATE_HOME": str(self.state), "PS1": "SHELL "}
        with Session("--norc", "-i", environment=environment, program="/bin/bash") as session:
            session.expect("SHELL ")
            session.type(f"'{TYTO}' chat -m '{OWLET}' -n 1" + ENTER)
            session.expect("/help")
            session.prompt()
            for word, line in (("one", "one"), (" two", "one two")):
                session.type(word)
                session.expect(word)
                session.type("\x1a")
                session.expect("Stopped(.|\n)*SHELL ")
                session.type("fg" + ENTER)
                session.expect(f"> {line}")
            session.say("")
            self.assertEqual(self.save(session), ["one two"])

    def test_nothing_is_wider_than_the_terminal(self):
        for columns, rows in ((80, 24), (120, 40)):
            with self.chat("-n", "40", "--system", "Be kind. " * 30, columns=columns, rows=rows) as session:
                for line in ("/help", "/set", "/system", "/set tmp 1", "/set temp hot", "/save /", "/nonsense",
                             "/load " + "x" * 150, "Hello", "/stats", "/set verbose on", "/retry"):
                    session.say(line)
                session.type(CTRL_D)
                self.assertEqual(session.end(), 0)
                typed = ("> /load", "x")  # a long line of the user's goes on below
                self.assertEqual([line for line in session.lines() if len(line) > columns and not line.startswith(typed)],
                                 [])

    def test_a_plain_terminal(self):
        for term in ("dumb", "unheard-of"):
            with Session("chat", "-m", OWLET, "-n", "1", term=term,
                         environment={"XDG_STATE_HOME": str(self.state)}) as session:
                session.expect("> ")
                session.type("Hi" + ENTER)
                session.expect(" · cpu(.|\n)*\n> ")
                session.type(CTRL_D)
                self.assertEqual(session.end(), 0)
            self.assertNotIn("\x1b[?2004h", session.shown)


if __name__ == "__main__":
    main()
