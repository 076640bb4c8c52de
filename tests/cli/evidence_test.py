#!/usr/bin/env python3
"""What is written down, and what happens when somebody changes it: receipts, keys, profiles."""
import hashlib
import json
import re
import subprocess
import sys

from harness import OWLET, ROOT, CliTest, main, tyto


def sealed(record):
    """As a forger does who computes the hash anew."""
    record = {key: value for key, value in record.items() if key not in ("hash", "signature")}
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    return json.dumps({**record, "hash": hashlib.blake2b(text.encode(), digest_size=32).hexdigest()},
                      separators=(",", ":"), ensure_ascii=False)


class Receipts(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.work / "my.key"
        cls.public = tyto("receipt", "keygen", "-o", cls.key).stdout.strip()
        cls.plain, cls.signed = cls.work / "plain.json", cls.work / "signed.json"
        flags = ["run", "-m", cls.model, "-p", "Hé \"x\"", "-n", "4", "--raw", "--ignore-eos"]
        assert tyto(*flags, "--receipt", cls.plain).returncode == 0
        assert tyto(*flags, "--receipt", cls.signed, "--sign", cls.key).returncode == 0

    def check(self, *args):
        return tyto("receipt", "check", *args)

    def test_an_honest_receipt_holds_and_says_what_it_proves(self):
        result = self.check(self.plain)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("if nobody computed the hash anew", result.stdout)
        self.assertIn("cannot prove that the run took place", result.stdout)
        self.assertNotIn("FAILS", result.stdout)
        indented = self.work / "indented.json"
        indented.write_text(re.sub(r"\n *", "\n\t\t", self.plain.read_text()))
        self.assertEqual(self.check(indented).returncode, 0)

    def test_a_changed_receipt_fails(self):
        forged = self.work / "forged.json"
        text = self.plain.read_text()
        forged.write_text(text.replace('"prompt_tokens": ', '"prompt_tokens": 9'))
        result = self.check(forged)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"FAILS +hash")
        self.assertIn("proves nothing", result.stdout)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        # With its hash computed anew the numbers do not agree.
        receipt = json.loads(text)
        receipt["timing"]["decode_tok_s"] = 43.84
        forged.write_text(sealed(receipt))
        result = self.check(forged)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"holds +hash")
        self.assertRegex(result.stdout, r"FAILS +rates +decode_tok_s: says 43.84")
        for bad in ("{}", "[1", '{"schema": "tyto-receipt-9"}', text.replace('"flops": ', '"flops": 1e999')):
            forged.write_text(bad)
            self.check_error(self.check(forged), 1, "forged.json")

    def test_signatures(self):
        for trust in (str(self.key) + ".pub", self.public):
            result = self.check(self.signed, "--trust", trust)
            self.assertEqual(result.returncode, 0, result.stdout)
            self.assertRegex(result.stdout, r"holds +signature")
        self.assertRegex(self.check(self.signed).stdout, r"open +signature +by ")
        self.assertRegex(self.check(self.plain, "--trust", self.public).stdout, r"FAILS +signature .*not signed")
        other = tyto("receipt", "keygen", "-o", self.work / "other.key").stdout.strip()
        result = self.check(self.signed, "--trust", other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("not the trusted key", result.stdout)
        # Another's numbers under this signature.
        forged = self.work / "resigned.json"
        receipt = json.loads(self.signed.read_text())
        forged.write_text(sealed({**receipt, "fusion": "x"})[:-1] +
                          ',"signature":' + json.dumps(receipt["signature"], separators=(",", ":")) + "}")
        result = self.check(forged, "--trust", self.public)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"holds +hash")
        self.assertRegex(result.stdout, r"FAILS +signature")

    def test_keys_are_kept(self):
        self.assertEqual(self.key.stat().st_mode & 0o777, 0o600)
        secret = self.key.read_text()
        self.assertTrue(secret.startswith("tyto-ed25519-secret "))
        self.check_error(tyto("receipt", "keygen", "-o", self.key), 1, "never overwritten")
        self.assertEqual(self.key.read_text(), secret)
        open_key = self.work / "open.key"
        open_key.write_text(secret)
        open_key.chmod(0o644)
        receipt = self.work / "none.json"
        flags = ["run", "-m", self.model, "-p", "x", "-n", "1", "--raw", "--receipt", receipt]
        self.check_error(tyto(*flags, "--sign", open_key), 1, "chmod 600")
        self.assertFalse(receipt.exists())
        self.check_error(tyto(*flags[:-2], "--sign", self.key), 2, "--sign", "--receipt")
        self.check_error(tyto("profile", "-m", self.model, "-p", "x", "--sign", self.key), 2, "--json or --receipt")
        self.check_error(tyto("profile", "--from", "x", "--sign", self.key), 2, "no effect")
        self.check_error(self.check(self.plain, "--trust", "nonsense"), 2, "public key")

    def test_the_check_that_the_documentation_gives_away(self):
        code = re.search(r"```python\n(.*?)```", (ROOT / "docs/evidence.md").read_text(), re.S)[1]
        forged = self.work / "doc.json"
        forged.write_text(self.plain.read_text().replace("tyto-receipt-1", "tyto-receipt-2"))
        out = subprocess.run([sys.executable, "-c", code, self.plain, self.signed, forged], capture_output=True, text=True)
        self.assertEqual(out.stderr, "")
        self.assertEqual([line.split(" ", 1)[1] for line in out.stdout.splitlines()],
                         ["is whole", "is whole", "WAS CHANGED"])


class Profiles(CliTest):
    def test_a_forged_profile_is_refused_with_both_numbers(self):
        good, forged = self.work / "p.json", self.work / "forged.json"
        result = tyto("profile", "-m", OWLET, "-p", "Hi", "--temp", "0", "-n", "3", "--ignore-eos", "--device", "vnpu",
                      "--prompt-rows", "64", "--json", good)
        self.assertEqual(result.returncode, 0, result.stderr)
        profile = json.loads(good.read_text())
        kinds, columns = profile["event_kinds"], profile["event_columns"]
        at = {name: columns.index(name) for name in columns}

        def write(change):
            data = json.loads(good.read_text())
            change(data["runs"][0])
            data["runs"][0]["receipt"] = json.loads(sealed(data["runs"][0]["receipt"]))
            forged.write_text(json.dumps(data))
            return tyto("profile", "--from", forged)

        def scale(counter, field, factor):
            counter[field] *= factor

        def fewer_bytes(run):
            for counters in (run["receipt"]["devices"], *run["receipt"]["phases"].values()):
                scale(counters[0], "bytes", 2)

        def more_of_everything(run):  # 4.3 GB a token, in the events too
            grown = {"prefill": 0, "decode": 0}
            for event in run["events"]:
                if kinds[event[at["kind"]]] == "submit" and event[at["device"]] == 0:
                    event[at["bytes"]] += 4_300_000_000
                    grown["prefill" if event[at["token"]] == 0 else "decode"] += 4_300_000_000
            for phase, more in grown.items():
                run["receipt"]["phases"][phase][0]["bytes"] += more
            run["receipt"]["devices"][0]["bytes"] += sum(grown.values())

        self.check_error(write(fewer_bytes), 1, "forged.json", "bytes in the recording", "in the receipt")
        self.check_error(write(more_of_everything), 1, "forged.json", "says plausible, but vnpu", "the memory has 120 GB/s")
        self.assertEqual(write(lambda run: None).returncode, 0)
        self.check_error(tyto("profile", "--diff", good, forged.with_name("absent")), 1)


if __name__ == "__main__":
    main()
