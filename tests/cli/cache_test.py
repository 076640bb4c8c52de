#!/usr/bin/env python3
"""tyto cache, and what runs do with what it keeps."""
import json
import os
import tempfile
import time
from pathlib import Path

from harness import CliTest, main, tyto

PROMPT = ("-p", "A fox finds a lamp", "-n", "6", "--temp", "0", "--ignore-eos", "--raw")


def wait_until_settled(path):
    """A file that was written less than two seconds ago is not trusted to be done (is_settled in src/base/file.cc)."""
    deadline = time.monotonic() + 30
    while time.time_ns() - os.stat(path).st_ctime_ns <= 2_000_000_000:
        assert time.monotonic() < deadline, "is the clock behind the file system's?"
        time.sleep(0.02)


class Cache(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.quantised = cls.work / "q8_0.gguf"
        assert tyto("synth", "--shape", "tiny", "--type", "q8_0", "-o", cls.quantised).returncode == 0
        wait_until_settled(cls.quantised)

    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)
        self.environment = {"XDG_CACHE_HOME": self.home.name}
        self.folder = Path(self.home.name) / "tyto" / "packed-weights"

    def cache(self, *args):
        return tyto("cache", *args, environment=self.environment)

    def add(self, *args):
        """Keeps the model, or skips where the file system has no huge pages for files."""
        result = self.cache("add", "-m", self.quantised, *args)
        if "maps its pages one by one" in result.stderr:
            self.check_error(result, 1, "not kept")
            self.assertEqual(list(self.folder.glob("*.packed")), [])
            self.skipTest("files are mapped in small pages here")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def run_model(self, *args):
        """The text and the fallbacks."""
        receipt = self.work / "receipt.json"
        result = tyto("run", "-m", self.quantised, *PROMPT, "--receipt", receipt, *args, environment=self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, json.loads(receipt.read_text())["fallbacks"]

    def phases(self, *args):
        """The phases of set-up, as a profile has them."""
        profile = self.work / "profile.json"
        result = tyto("profile", "-m", self.quantised, "-p", "A fox", "--raw", "-n", "2", "--json", profile, "--force", *args,
                      environment=self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return profile.read_text()

    def kept(self):
        return json.loads(self.cache("list", "--json").stdout)

    def test_what_is_kept_is_used_and_gives_the_same_text(self):
        text, _ = self.run_model()
        self.assertNotIn("read from the cache", self.phases())
        self.assertIn("kept", self.add())
        self.assertIn("is kept already", self.add())
        self.assertEqual(self.run_model(), (text, []))
        self.assertIn("packed weights read from the cache", self.phases())
        self.assertEqual(self.run_model("--weight-cache", "off"), (text, []))
        self.assertNotIn("read from the cache", self.phases("--weight-cache", "off"))

    def test_list_and_clear_say_what_there_is(self):
        self.assertEqual(self.kept(), [])
        self.assertIn("no packed weights", self.cache("list").stderr)
        self.add()
        row, = self.kept()
        self.assertEqual((row["source"], row["stale"], row["in_use"]), (str(self.quantised), "", False))
        self.assertEqual(row["bytes"], os.path.getsize(row["file"]))
        self.assertIn("good", self.cache("list").stdout)
        self.assertIn("deleted 0 files", self.cache("clear", "--stale").stderr)
        self.assertRegex(self.cache("clear").stderr, r"deleted 1 file from .*: [\d.]+ [kM]B freed")
        self.assertEqual(self.kept(), [])

    def test_damage_is_said_and_the_weights_are_packed_anew(self):
        text, _ = self.run_model()
        self.add()
        file = Path(self.kept()[0]["file"])
        whole = file.read_bytes()
        for damage in (whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:], whole[:-1], whole[:len(whole) // 2], b""):
            file.unlink()
            file.write_bytes(damage)
            again, fallbacks = self.run_model()
            self.assertEqual(again, text)
            self.assertEqual(len(fallbacks), 1, fallbacks)
            self.assertIn("weights packed again", fallbacks[0])
        self.assertNotEqual(self.kept()[0]["stale"], "")
        self.assertIn("written again", self.add())
        self.assertEqual(self.run_model(), (text, []))

    def test_a_changed_model_never_meets_old_weights(self):
        self.add()
        other = self.work / "other.gguf"
        self.assertEqual(tyto("synth", "--shape", "tiny", "--type", "q8_0", "--seed", "9", "-o", other).returncode, 0)
        expected = tyto("run", "-m", other, *PROMPT).stdout
        kept, times = self.quantised.read_bytes(), os.stat(self.quantised)
        try:
            self.quantised.write_bytes(other.read_bytes())  # the same inode, and soon the same time
            os.utime(self.quantised, ns=(times.st_atime_ns, times.st_mtime_ns))
            self.assertEqual(self.run_model(), (expected, []))
            self.assertNotIn("read from the cache", self.phases())
            self.assertIn("has changed", self.kept()[0]["stale"])
            self.assertIn("deleted 1 file", self.cache("clear", "--stale").stderr)
        finally:
            self.quantised.write_bytes(kept)
            wait_until_settled(self.quantised)

    def test_what_cannot_be_is_one_line(self):
        self.check_error(self.cache("add", "-m", self.quantised, "--limit", "1K"), 1, "--limit")
        self.check_error(self.cache("add", "-m", self.quantised, "--limit", "much"), 2, "--limit")
        self.check_error(self.cache("add", "-m", self.work / "none.gguf"), 1, "none.gguf")
        self.check_error(self.cache(), 2)
        fresh = self.work / "fresh.gguf"
        self.assertEqual(tyto("synth", "--shape", "tiny", "--type", "q8_0", "-o", fresh).returncode, 0)
        self.check_error(self.cache("add", "-m", fresh), 1, "two seconds")
        self.assertEqual(list(self.folder.glob("*.packed*")), [])

    def test_no_home_and_no_folder_are_no_reason_to_stop(self):
        text, _ = self.run_model()
        for environment, code in (({"XDG_CACHE_HOME": "/proc/none"}, 1), ({"XDG_CACHE_HOME": "", "HOME": ""}, 2)):
            result = tyto("run", "-m", self.quantised, *PROMPT, environment=environment)
            self.assertEqual((result.returncode, result.stdout), (0, text), result.stderr)
            self.check_error(tyto("cache", "add", "-m", self.quantised, environment=environment), code)


if __name__ == "__main__":
    main()
