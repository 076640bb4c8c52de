#!/usr/bin/env python3
"""Help, bad usage and environment controls."""
import json
import re
import subprocess
from pathlib import Path

from harness import OWLET, TYTO, CliTest, main, on_terminal, tyto

COMMANDS = ["run", "chat", "serve", "tokenize", "detokenize", "template", "inspect", "eval", "embed", "perplexity",
            "bench", "results", "profile", "verify", "diagnose", "quantize", "synth", "devices", "plan", "power", "doctor",
            "compile", "kernels", "receipt", "models", "pull", "cache", "completions", "manual"]
TEST_FLAGS = ("--vnpu-fault", "--vnpu-hostile", "--vnpu-machine", "--vnpu-numerics", "--images-like")


class Help(CliTest):
    def test_every_command_has_help_with_its_flags(self):
        overview = tyto("--help")
        self.assertEqual(overview.returncode, 0)
        for command in COMMANDS:
            self.assertIn(command, overview.stdout)
            result = tyto(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn("Usage: ", result.stdout)

    def check_size(self, text, lines):
        self.assertLessEqual(len(text.splitlines()), lines, text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_the_program_alone_lists_its_commands(self):
        shown = tyto()
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertEqual(shown.stdout, tyto("--help").stdout)
        self.check_size(shown.stdout, 30)
        for group in ("Use", "Look", "Measure", "Check", "Build"):
            self.assertIn(f"\n{group}:\n", shown.stdout)
        self.assertIn("Exit codes: 0 done; 1 bad input, failed device or cut JSON; 2 bad usage;", shown.stdout)
        whole = tyto("--help-all").stdout
        self.assertIn("--version", whole)
        self.assertIn("--json=FILE", whole)
        for command in COMMANDS:  # between groups and in two columns
            self.assertRegex(shown.stdout, rf"(?m)^  (.* )?{command} ")

    def test_short_help_fits_a_screen(self):
        for name in tyto("manual", "--names").stdout.splitlines():
            text, whole = (tyto(*name.split(), flag).stdout for flag in ("--help", "--help-all"))
            with self.subTest(command=name):
                self.check_size(text, 40)
                for flag in TEST_FLAGS:
                    self.assertNotIn(flag, text)
                short = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
                rows = re.findall(r"^  (-.*?)(?:  |$)", whole, re.MULTILINE)
                self.assertLessEqual(set(short), set(rows))
                if len(short) < len(rows) - 1:  # --help-all itself is one more
                    self.assertTrue(text.endswith(f"\ntyto {name} --help-all shows all {len(rows)} options.\n"), text)
                if "Example" in whole:
                    self.assertIn(len(re.findall(r"^  .*\btyto [a-z]", text.split("Example")[-1], re.MULTILINE)), (1, 2))

    def test_what_people_use_first_comes_first(self):
        flags = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", tyto("run", "--help").stdout, re.MULTILINE)
        self.assertEqual(flags[:6], ["--model", "--prompt", "--file", "--system", "--tokens", "--temp"])
        self.assertLess(flags.index("--temp"), flags.index("--device"))
        self.assertIn("--vnpu-fault", tyto("run", "--help-all").stdout)

    def test_messages_name_the_flag_and_the_command_once(self):
        run = ["run", "-m", self.model, "x"]
        self.check_error(tyto(*run, "--temp", "-1"), 2, '--temp: "-1" is not a number of at least 0')
        self.check_error(tyto(*run, "--top-p", "3"), 2, '--top-p: "3" is not a number from 0 to 1')
        self.check_error(tyto(*run, "--min-p", "-1"), 2, "--min-p")
        self.assertTrue(tyto("run", text="").stderr.startswith("tyto run: no prompt"))
        self.assertTrue(tyto("kernels").stderr.startswith("tyto kernels: needs one of"))
        self.check_error(tyto("quantize", "--type", "q3_k_m", "-o", "x"), 2, "; see tyto quantize --help")
        # Words of a prompt are joined by quotes, names of files are not.
        self.check_error(tyto("run", "tell", "me", "a", "joke"), 2, "quotes: tyto run 'tell me a joke'")
        refused = tyto("receipt", "check", "a.json", "b.json")
        self.check_error(refused, 2, "b.json: tyto receipt check takes no such argument")
        self.assertNotIn("quotes", refused.stderr)
        self.check_error(tyto("receipt", "check"), 2, "tyto receipt check: FILE is missing")
        self.check_error(tyto("receipt", "check", "--json", "r.json"), 2,
                         "FILE is missing: --json took r.json as its output; put r.json before --json")

    def test_missing_things_are_exit_1(self):
        state = {"XDG_CACHE_HOME": str(self.work / "cache"), "XDG_DATA_HOME": str(self.work / "data")}
        self.check_error(tyto("kernels", "rm", "foo", environment=state), 1, "foo: no such kernel")
        self.check_error(tyto("inspect", "-m", self.work / "none.gguf"), 1, "none.gguf")

    def test_errors_are_broken_at_spaces(self):
        shown = on_terminal("run", "x", "--bogus-flag-of-some-length", columns=60, stream="stderr")
        self.assertGreater(len(shown.strip().splitlines()), 1)
        self.assertIn("see tyto run --help)", " ".join(shown.split()))
        self.assertLessEqual(max(map(len, shown.splitlines())), 60)

    def test_json_on_stdout_or_in_a_file(self):
        state = {"XDG_STATE_HOME": str(self.work / "json-state"), "XDG_CACHE_HOME": str(self.work / "json-cache")}
        kept = ["models", "inspect", "devices", "doctor", "plan --no-measure", "cache list", "kernels list", "results list",
                "kernels describe", "tokenize Hello"]
        for number, command in enumerate(kept):
            with self.subTest(command=command):
                words = command.split()
                printed = tyto(*words, "--json", environment=state)
                value = json.loads(printed.stdout)
                self.assertIsInstance(value, (dict, list))
                path = self.work / f"out{number}.json"
                beside = tyto(*words, "--json", path, environment=state)
                self.assertEqual(beside.returncode, printed.returncode, beside.stderr)
                self.assertEqual(type(json.loads(path.read_text())), type(value))
                self.assertEqual(beside.stderr.count(f"wrote {path}"), 1, beside.stderr)
                self.assertNotEqual(beside.stdout, printed.stdout)
                self.check_error(tyto(*words, f"--json={path}", environment=state), 2, "is there already", "--force")
        verified = tyto("verify", "-m", OWLET, "-n", "2", "--json", environment=state)
        self.assertEqual(json.loads(verified.stdout)["schema"][:12], "tyto-verify-")
        diagnosed = tyto("diagnose", "-m", OWLET, "-n", "1", "--json", "Hi", environment=state)
        self.assertEqual(json.loads(diagnosed.stdout)["schema"][:15], "tyto-diagnosis-")
        profiled = tyto("profile", "-m", OWLET, "-n", "2", "--json", "Hi", environment=state)
        self.assertEqual(json.loads(profiled.stdout)["schema"][:13], "tyto-profile-")

    def test_documents_are_where_help_says(self):
        pages = []
        for name in tyto("manual", "--names").stdout.splitlines():
            pages += re.findall(r"[^\s(]*docs/[a-z-]+\.md", tyto(*name.split(), "--help-all").stdout)
        self.assertGreater(len(pages), 3)
        for page in pages:
            self.assertTrue(Path(page).is_absolute() and Path(page).exists(), page)

    def test_a_dash_is_stdin(self):
        flags = ["-m", OWLET, "-n", "4", "--temp", "0"]
        self.assertEqual(tyto("run", *flags, "-f", "-", text="Hello\n").stdout, tyto("run", *flags, "Hello").stdout)
        text = "The owl sat on the branch and looked at the moon. " * 4
        (self.work / "text.txt").write_text(text)
        filed = tyto("perplexity", "-m", OWLET, "-f", self.work / "text.txt")
        self.assertEqual(tyto("perplexity", "-m", OWLET, "-f", "-", text=text).stdout, filed.stdout)

    def test_bad_usage_is_exit_2(self):
        self.check_error(tyto("fly"), 2, "fly", "see tyto --help")
        self.check_error(tyto("run", "--bogus"), 2, "--bogus", "see tyto run --help")
        self.check_error(tyto("run", "-m", self.model), 2, "no prompt", "tyto run 'Hello'")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--device", "abacus"), 2, "abacus", "cpu")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--fusion", "nuclear"), 2, "nuclear")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--temp", "-1"), 2)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--logit-bias", "nonsense"), 2, "ID=VALUE")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--logit-bias", "999999=1"), 2, "999999")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "-c", "99999999"), 2, "positions")
        self.check_error(tyto("synth", "--shape", "huge", "-o", self.work / "x"), 2, "huge")

    def test_former_names_of_flags(self):
        out = self.work / "ids.f32"
        for flag in ("--ids", "--tokens"):  # the second is the flag's former name
            self.assertEqual(tyto("eval", "-m", self.model, flag, "1,2", "--logits", out, "--force").returncode, 0)
        for flag in ("--overhead", "--host"):
            self.assertEqual(tyto("plan", "--shape", "tiny", "--no-measure", flag, "native").returncode, 0)
        for command, former in (("eval", "--tokens"), ("plan", "--host")):
            self.assertNotIn(f"  {former} ", tyto(command, "--help-all").stdout)

    def test_what_was_meant(self):
        for typed, meant in (("--temperature", "--temp"), ("--n-predict", "--tokens"), ("--ctx-size", "--context"),
                             ("-ngl", "--device"), ("--top_p", "--top-p"), ("--seeed", "--seed"), ("-temp", "--temp")):
            self.check_error(tyto("run", "x", typed, "1"), 2, f"{typed}: tyto run has no such flag",
                             f"did you mean {meant}?", "see tyto run --help")
        for typed, meant in ((["quantise"], "tyto quantize"), (["show"], "tyto inspect"), (["server"], "tyto serve"),
                             (["kernels", "lst"], "tyto kernels list"), (["results", "chek"], "tyto results check")):
            self.check_error(tyto(*typed), 2, f"{typed[-1]}: ", "has no such command", f"did you mean {meant}?")
        self.check_error(tyto("run", "x", "--fusion", "tokn"), 2, "op, block, token", "did you mean token?")
        self.check_error(tyto("synth", "--shape", "llama-3.2-1B-instruct", "-o", self.work / "x"), 2,
                         "did you mean llama-3.2-1b?")

    def test_commands_below_commands_name_themselves_in_full(self):
        self.check_error(tyto("kernels"), 2, "tyto kernels: needs one of its commands: import, list", "tyto kernels --help")
        self.check_error(tyto("results", "list", "--bogus"), 2, "tyto results list has no such flag")
        self.check_error(tyto("receipt", "check"), 2, "see tyto receipt check --help")

    def test_help_is_a_command(self):
        for path in ([], ["run"], ["kernels", "list"]):
            self.assertEqual(tyto("help", *path).stdout, tyto(*path, "--help").stdout)
        self.check_error(tyto("help", "fly"), 2, "fly: tyto has no such command")
        self.check_error(tyto("fly", "--help"), 2, "fly: tyto has no such command")

    def test_help_is_as_wide_as_the_terminal(self):
        widths = {}
        for columns in (60, 80, 120):
            text = on_terminal("run", "--help", columns=columns)
            widths[columns] = max(map(len, text.splitlines()))
            self.assertLessEqual(widths[columns], min(columns, 100) if columns > 60 else 80)  # examples are not broken
        self.assertGreater(widths[120], 80)
        self.assertLessEqual(max(map(len, tyto("run", "--help").stdout.splitlines())), 80)

    def test_help_takes_no_value(self):
        self.check_error(tyto("--help=1"), 2, "--help=1")
        self.check_error(tyto("run", "--help=yes"), 2, "--help=yes")

    def test_absurd_counts_are_refused(self):
        self.check_error(tyto("bench", "-t", "1000000"), 2, "-t 1000000", "1024")
        self.check_error(tyto("bench", "--sequences", "1000000"), 2, "--sequences 1000000", "1024")

    def test_empty_values_are_errors(self):
        for flag in ("--require", "-m", "--device", "--stop", "--chat-template", "--receipt", "-f", "--kv-memory"):
            self.check_error(tyto("run", "-p", "x", flag, ""), 2, "the value is empty")
        self.check_error(tyto("run", "-p", "x", "--require="), 2, "--require: the value is empty")
        self.check_error(tyto("bench", "--device", ""), 2, "--device")
        self.check_error(tyto("inspect", "-m", ""), 2, "--model")

    def test_numbers_are_whole_and_fit(self):
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "-n", "-2"), 2, "--tokens", "-1 or a whole number")
        for flag in ("--seed", "-t", "-c", "--top-k", "--penalty-window"):
            for value in ("18446744073709551616", "-1", "1e3", "0x10", "+5", " 5", "5x", ""):
                result = tyto("run", "-m", self.model, "-p", "x", flag, value)
                self.check_error(result, 2, "--")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--seed", "18446744073709551616"), 2, "--seed",
                         "18446744073709551615")
        self.check_error(tyto("synth", "--shape", "tiny", "-o", self.work / "x", "--seed", "99999999999999999999"), 2,
                         "--seed")
        self.check_error(tyto("profile", "-m", self.model, "--sweep", "1,,2"), 2, "--sweep")

    def test_what_cannot_be_written_is_an_error(self):
        for command in ("--help", "--version", "devices", "run --help", f"inspect -m {self.model}"):
            for stdout, fragment in ((">/dev/full", "No space left"), (">&-", "Bad file descriptor")):
                result = subprocess.run(["sh", "-c", f"exec {TYTO} {command} {stdout}"], capture_output=True, text=True)
                self.check_error(result, 1, "stdout: cannot write", fragment)

    def test_unknown_environment_controls_are_errors(self):
        self.check_error(tyto("devices", environment={"TYTO_TURBO": "1"}), 2, "TYTO_TURBO")


if __name__ == "__main__":
    main()
