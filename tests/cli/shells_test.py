#!/usr/bin/env python3
"""What shells complete, and the pages of the manual: both are made of the data that --help is made of."""
import functools
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import TYTO, CliTest, main, tyto

COMMANDS = ["", *tyto("manual", "--names").stdout.splitlines()]  # the first is the program itself


@functools.cache
def flags_of(command):
    """Every spelling of every flag that --help shows of a command."""
    rows = re.findall(r"^  (-.*?)(?:  |$)", tyto(*command.split(), "--help-all").stdout, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", row)}


class Shell(unittest.TestCase):
    """A folder with the three scripts, a `tyto` that knows two models, and two files to complete."""
    need = CliTest.need

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = Path(cls.folder.name)
        for shell in ("bash", "zsh", "fish"):
            (cls.work / f"tyto.{shell}").write_text(tyto("completions", shell).stdout)
        (cls.work / "bin").mkdir()
        program = cls.work / "bin" / "tyto"
        program.write_text("#!/bin/sh\ncase \"$*\" in\n'models --names') printf 'ollama:llama3.2:1b\\nhf:org/owl\\n' ;;\n"
                           f"*) exec {TYTO} \"$@\" ;;\nesac\n")
        program.chmod(0o755)
        (cls.work / "owl model.gguf").touch()
        (cls.work / "owls").mkdir()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_shell(self, *arguments, text=""):
        path = f"{self.work}/bin:{os.environ['PATH']}"
        result = subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=60, cwd=self.work,
                                env={**os.environ, "PATH": path, "HOME": str(self.work), "TERM": "dumb"})
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        return result.stdout

    ANSWERS = {  # in every shell
        "tyto comp": {"compile", "completions"},
        "tyto receipt ": {"check", "keygen"},
        "tyto run --fus": {"--fusion"},
        "tyto run --fusion ": {"op", "block", "token"},
        "tyto run --device c": {"cpu"},
        "tyto run --device au": {"auto"},
        "tyto run --prefill-device au": set(),
        "tyto valid": set(),  # no alias of another command
        "tyto kernels check --fu": {"--full"},
        "tyto validate --jso": {"--json"},
        "tyto completions f": {"fish"},
        "tyto run -n ": set(),
        "tyto chat --tens": set(),
        "tyto kernels import ow": {"owls/"},
        "tyto receipt check ow": {"owl model.gguf", "owls/"},
    }

    def check_answers(self, expected):
        expected = {**self.ANSWERS, **expected}
        for line, answer in zip(expected, self.complete(expected)):
            self.assertEqual(answer, expected[line], line)


class Bash(Shell):
    SCRIPT = """
        . ./tyto.bash
        while IFS= read -r COMP_LINE; do
          COMP_POINT=${#COMP_LINE} COMP_WORDS=($COMP_LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
          [[ $COMP_LINE != *' ' ]] || { COMP_WORDS+=(''); ((++COMP_CWORD)); }
          _tyto
          ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
          echo DONE
        done
    """

    def complete(self, lines):
        out = self.run_shell("bash", "--norc", "-c", self.SCRIPT, text="".join(line + "\n" for line in lines))
        return [set(answer.splitlines()) for answer in out.split("DONE\n")]

    def test_answers(self):
        self.check_answers({
            "tyto kernels import ow": {"owls"},  # readline adds the slash
            "tyto receipt check ow": {"owl model.gguf", "owls"},
            "tyto run --fusion=b": {"block"},
            "tyto run --model o": {"owl model.gguf", "owls", "ollama:llama3.2:1b"},
            "tyto run -m ollama:ll": {"llama3.2:1b"},  # for bash, a colon ends a word
            "tyto chat -m hf": {"hf:org/owl"},
        })

    def test_a_program_that_fails_completes_files(self):
        (self.work / "bin" / "tyto").rename(self.work / "aside")
        try:
            self.assertEqual(self.complete(["tyto run --model owls"])[0], {"owls"})
        finally:
            (self.work / "aside").rename(self.work / "bin" / "tyto")

    def test_every_flag(self):
        script = ". ./tyto.bash; while IFS= read -r name; do _tyto_facts \"$name\" ''; echo \"$flags\"; done"
        names = "\n".join(COMMANDS) + "\n"
        for command, flags in zip(COMMANDS, self.run_shell("bash", "--norc", "-c", script, text=names).splitlines()):
            self.assertEqual(set(flags.split()), flags_of(command), command)


class Zsh(Shell):
    # zpty is the terminal that completion wants; matches are printed as they are added.
    INSIDE = r"""
        PS1= PROMPT_SP=
        autoload -Uz compinit
        compinit -u -D
        . ./tyto.zsh
        compadd() {
          if [[ " $*" != *" -"[OAD]" "* ]]; then  # else nothing is added
            local -a seen
            builtin compadd -O seen "$@"
            print -lr -- "MATCH "$^seen
          fi
          builtin compadd "$@"
        }
        offer() { print; _main_complete; print; print DONE; compstate[insert]= compstate[list]= }
        zle -C offer complete-word offer
        bindkey "^X" offer
        print READY
    """
    OUTSIDE = r"""
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell '. ./inside.zsh'
        while zpty -r shell line && [[ $line != *READY* ]]; do :; done
        for asked in "$@"; do
          zpty -w -n shell $'\x15'"$asked"$'\x18'
          while zpty -r shell line && [[ $line != *DONE* ]]; do print -r -- "$line"; done
          print DONE
        done
        zpty -d shell
    """

    def complete(self, lines):
        (self.work / "inside.zsh").write_text(self.INSIDE)
        out = self.run_shell("zsh", "-f", "-c", self.OUTSIDE, "zsh", *lines).replace("\r", "\n")
        return [{match.strip().rstrip("=").replace("\\ ", " ") for match in re.findall(r"^MATCH (.+)$", answer, re.M)}
                for answer in out.split("DONE\n")]

    def test_answers(self):
        self.need("zsh")
        self.check_answers({
            "tyto kernels import ow": {"owls"},
            "tyto receipt check ow": {"owl model.gguf", "owls"},
            "tyto run --fusion=b": {"block"},
            "tyto chat -m hf": {"hf:org/owl"},
            "tyto chat -m ollama:ll": {"ollama:llama3.2:1b"},
        })

    def test_every_flag(self):
        self.need("zsh")
        self.run_shell("zsh", "-f", "-n", "tyto.zsh")
        script = (self.work / "tyto.zsh").read_text()
        for command in COMMANDS:
            name = "_" + "_".join(["tyto", *command.split()])
            body = re.search(rf"^{name}\(\) {{\n(.*?)^}}", script, re.MULTILINE | re.DOTALL).group(1)
            found = re.findall(r"^    '(?:\([^)]*\)|\*)(-[a-z0-9-]+)=?\[", body, re.MULTILINE)
            self.assertEqual(set(found), flags_of(command), command)


class Fish(Shell):
    def complete(self, lines):
        script = ". ./tyto.fish\n" + "".join(f"complete -C {line!r}; echo DONE\n" for line in lines)
        out = self.run_shell("fish", "--no-config", "-c", script)
        return [{row.split("\t")[0] for row in answer.splitlines()} for answer in out.split("DONE\n")]

    def test_answers(self):
        self.need("fish")
        self.check_answers({
            "tyto run --fusion=b": {"--fusion=block"},
            "tyto chat -m hf": {"hf:org/owl"},
            "tyto chat -m ollama:ll": {"ollama:llama3.2:1b"},
        })

    def test_every_flag_has_its_meaning(self):
        self.need("fish")
        lines = "".join(f"echo BEGIN; complete -C 'tyto {command} --'; complete -C 'tyto {command} -'\n"
                        for command in COMMANDS)
        out = self.run_shell("fish", "--no-config", "-c", ". ./tyto.fish\n" + lines).split("BEGIN\n")[1:]
        for command, rows in zip(COMMANDS, out):
            offered = dict(row.split("\t", 1) for row in rows.splitlines() if "\t" in row)
            names = {name.rstrip("=") for name in offered if name.startswith("-")}
            self.assertEqual(names, flags_of(command), command)
            self.assertTrue(all(offered.values()), command)


class Manual(CliTest):
    def test_every_command_has_a_page_with_its_flags(self):
        self.need("groff")
        self.assertIn("kernels list", COMMANDS)
        for command in COMMANDS:
            page = tyto("manual", *command.split()).stdout
            result = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-P-cbou"], input=page, text=True,
                                    capture_output=True, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, ""), command)
            name = "-".join(["tyto", *command.split()])
            self.assertRegex(result.stdout, name + " +- ")
            shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", result.stdout.replace("\u2010\n", "")))
            self.assertLessEqual(flags_of(command), shown, command)

    def test_what_a_page_says(self):
        self.assertIn("tyto \\- run language models", tyto("manual").stdout)
        chat = tyto("manual", "chat").stdout
        for command in ("/help", "/retry", "/set [NAME VALUE]"):
            self.assertIn(command, chat)
        self.assertIn("share/doc/tyto/docs", chat)

    def test_man_reads_them(self):
        self.need("man")
        page = self.work / "tyto-run.1"
        page.write_text(tyto("manual", "run").stdout)
        result = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("EXAMPLES", result.stdout)

    def test_what_there_is_not(self):
        self.check_error(tyto("manual", "fly"), 2, "fly", "tyto manual --names")
        self.check_error(tyto("manual", "kernels", "fly"), 2, "kernels fly")
        self.check_error(tyto("manual", "run", "--names"), 2, "--names and COMMAND exclude each other")
        self.check_error(tyto("completions"), 2, "shell")
        self.check_error(tyto("completions", "cmd"), 2, "cmd")


if __name__ == "__main__":
    main()
