#!/usr/bin/env python3
"""What is built, installed into a folder, used there, and taken away again."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ROOT, TYTO, main, tyto

BUILD = Path(TYTO).resolve().parent


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def links_of(page):
    """The relative links of a page. Code is left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https?:|mailto:", link)]


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name).resolve()

    def script(self, name, *arguments):
        return subprocess.run([ROOT / "packaging" / name, *arguments], capture_output=True, text=True, timeout=120)

    def test_installed_used_and_removed(self):
        prefix = self.work / "my owls"
        mine = prefix / "share" / "doc" / "mine"
        mine.mkdir(parents=True)
        (mine / "notes").touch()
        self.assertEqual(self.script("install", BUILD, prefix, "").returncode, 0)
        names = ["", *tyto("manual", "--names").stdout.splitlines()]
        pages = sorted("-".join(["tyto", *name.split()]) + ".1" for name in names)
        self.assertEqual(files_below(prefix / "share" / "man" / "man1"), pages)
        for file in ("bash-completion/completions/tyto", "zsh/site-functions/_tyto",
                     "fish/vendor_completions.d/tyto.fish", "doc/tyto/README.md", "doc/tyto/SECURITY.md",
                     "doc/tyto/CHANGELOG.md", "doc/tyto/LICENSE", "doc/tyto/docs/install.md",
                     "doc/tyto/examples/tyto.service"):
            self.assertGreater((prefix / "share" / file).stat().st_size, 0, file)

        pages = list((prefix / "share" / "doc" / "tyto").rglob("*.md"))
        self.assertGreater(len(pages), 40)
        for page in pages:
            for link in links_of(page):
                self.assertTrue((page.parent / link.partition("#")[0]).exists(), f"{page}: {link}")

        # Through a link, and away from the source tree, it uses the model that came with it.
        link = self.work / "tyto"
        link.symlink_to(prefix / "bin" / "tyto")
        state = {**os.environ, "XDG_CACHE_HOME": str(self.work), "XDG_STATE_HOME": str(self.work)}
        receipt = self.work / "receipt.json"
        result = subprocess.run([link, "run", "-p", "Hello", "--temp", "0", "-n", "2", "--receipt", receipt],
                                capture_output=True, text=True, timeout=120, env=state)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(str(prefix / "share" / "tyto" / "models" / "owlet"), receipt.read_text())

        # What it prints names the pages that came with it.
        for command, page in ((["plan", "--shape", "tiny", "--no-measure"], "cost-model"), (["receipt", "check", receipt], "evidence"),
                              (["plan", "--help-all"], "cost-model")):
            printed = subprocess.run([link, *command], capture_output=True, text=True, timeout=120, env=state).stdout
            self.assertIn(str(prefix / "share" / "doc" / "tyto" / "docs" / f"{page}.md"), printed.replace("\n", " "))

        self.assertEqual(self.script("uninstall", prefix, "").returncode, 0)
        self.assertEqual(files_below(prefix), ["share/doc/mine/notes"])
        self.assertEqual(sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_dir()),
                         ["share", "share/doc", "share/doc/mine"])
        again = self.script("uninstall", prefix, "")
        self.assertEqual(again.returncode, 1)
        self.assertIn("nothing was installed", again.stderr)

    def test_a_stage_holds_everything(self):
        stage = self.work / "stage"
        self.assertEqual(self.script("install", BUILD, "/usr", stage).returncode, 0)
        self.assertEqual([path.name for path in stage.iterdir()], ["usr"])
        self.assertTrue((stage / "usr" / "bin" / "tyto").exists())
        listed = (stage / "usr" / "share" / "tyto" / "installed-files").read_text().splitlines()
        self.assertTrue(all(line.startswith("/usr/") for line in listed), listed)
        self.assertEqual(self.script("uninstall", "/usr", stage).returncode, 0)
        self.assertEqual(list(stage.iterdir()), [])

    def test_a_second_install_knows_the_folders_of_the_first(self):
        prefix = self.work / "prefix"
        for _ in range(2):
            self.assertEqual(self.script("install", BUILD, prefix, "").returncode, 0)
        self.assertEqual(self.script("uninstall", prefix, "").returncode, 0)
        self.assertFalse(prefix.exists())

    def test_a_prefix_that_cannot_be_made(self):
        (self.work / "file").touch()
        for prefix in (self.work / "file" / "below", Path("/proc/nope")):
            result = self.script("install", BUILD, prefix, "")
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr, f"make install: cannot write below {prefix}; name another folder with PREFIX, "
                             "or use sudo\n")

    def test_a_list_that_was_changed_removes_nothing_elsewhere(self):
        precious = self.work / "precious"
        precious.touch()
        prefix = self.work / "prefix"
        folder = prefix / "share" / "tyto"
        folder.mkdir(parents=True)
        (prefix / "share" / "doc" / "tyto").mkdir(parents=True)
        (folder / "installed-files").write_text(f"{precious}\n{prefix}/../precious\n{folder}/installed-files\n")
        self.assertEqual(self.script("uninstall", prefix, "").returncode, 0)
        self.assertTrue(precious.exists())

    def test_nothing_built_is_said(self):
        result = self.script("install", self.work, self.work / "prefix", "")
        self.assertEqual(result.returncode, 1)
        self.assertIn("make build", result.stderr)


class MakeHelp(unittest.TestCase):
    def test_every_target_is_listed(self):
        makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
        targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split()
        lines = subprocess.run(["make", "-C", ROOT, "--no-print-directory", "help"], capture_output=True, text=True,
                               timeout=60).stdout.splitlines()
        self.assertEqual(sorted(line.split()[0] for line in lines), sorted(targets))
        self.assertLessEqual(max(map(len, lines)), 80)


class MakeTargets(unittest.TestCase):
    def commands(self, *arguments):
        """What make would run of the program. `make test` exports its own variables, which are not given here."""
        own = ("MODEL", "PROMPT", "LLAMA_CPP", "N_TOKENS", "DEVICE", "PREFIX", "DESTDIR", "MAKEFLAGS", "MAKEOVERRIDES",
               "MAKELEVEL")
        environment = {name: value for name, value in os.environ.items() if name not in own}
        result = subprocess.run(["make", "-C", ROOT, "--no-print-directory", "-n", *arguments], capture_output=True,
                                text=True, timeout=60, env=environment)
        return [line for line in result.stdout.splitlines() if line.startswith("build/release/tyto ")]

    def test_models_prompts_lengths_and_devices_are_passed_on(self):
        given = ("MODEL=m.gguf", "PROMPT=Hello", "N_TOKENS=7", "DEVICE=npu")
        model, prompt, length, device = '-m "$MODEL"', '-p "$PROMPT"', "-n 7", "--device npu"
        for target in ("run", "profile", "verify"):
            (line,) = self.commands(target, *given)
            self.assertEqual(line.rstrip(), f"build/release/tyto {target} {model} {prompt} {length} {device}")
        self.assertEqual([line.rstrip() for line in self.commands("compile", *given)],
                         [f"build/release/tyto compile {model} {device}"])

    def test_without_them_each_has_its_own(self):
        self.assertEqual(self.commands("compile")[0].split()[1:], ["compile", "--device", "vnpu"])
        self.assertEqual(self.commands("verify")[0].split()[1:], ["verify", "-n", "32", "--device", "cpu"])
        self.assertIn("-n 30", self.commands("profile")[0])


class Version(unittest.TestCase):
    def test_what_the_build_is_made_of(self):
        lines = tyto("--version").stdout.splitlines()
        self.assertRegex(lines[0], r"^tyto \d+\.\d+\.\d+( \([0-9a-f]{8}(-dirty)?\))?$")
        text = "\n".join(lines)
        self.assertRegex(text, r"\ncompiler +(GNU|Clang) \d+\.")
        self.assertRegex(text, r"\nprocessor +generic, avx2, .*;\s+\w+\s+is\s+used\s+here")
        self.assertRegex(text, r"\nXRT +\S")
        self.assertRegex(text, r"\nlibraries +fmt \d+\.")
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_the_changelog_has_this_version(self):
        version = tyto("--version").stdout.split()[1]
        self.assertRegex((ROOT / "CHANGELOG.md").read_text(), rf"(?m)^## {version} - \d\d\d\d-\d\d-\d\d$")


if __name__ == "__main__":
    main()
