#!/usr/bin/env python3
"""Help, bad usage and environment controls."""
import subprocess

from harness import TYTO, CliTest, main, on_terminal, tyto

COMMANDS = ["run", "chat", "serve", "tokenize", "detokenize", "template", "inspect", "eval", "embed", "perplexity",
            "bench", "results", "profile", "verify", "diagnose", "quantize", "synth", "devices", "plan", "power", "doctor",
            "compile", "kernels", "receipt", "models", "pull", "completions", "manual"]


class Help(CliTest):
    def test_every_command_has_help_with_its_flags(self):
        overview = tyto("--help")
        self.assertEqual(overview.returncode, 0)
        for command in COMMANDS:
            self.assertIn(command, overview.stdout)
            result = tyto(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn("Usage: ", result.stdout)

    def test_bad_usage_is_exit_2(self):
        self.check_error(tyto(), 2, "tyto run", "tyto chat", "tyto --help")
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
