#!/usr/bin/env python3
"""tyto quantize: types, importance matrices, what it says while it works and afterwards."""
import json
import os
import pty
import subprocess

from harness import OWLET, ROOT, TYTO, CliTest, main, shown_on, tyto

# By llama-imatrix (llama.cpp b10586) from the shipped model and the first half of its heldout.txt.
IMATRIX = ROOT / "tests" / "data" / "imatrix" / "owlet.imatrix.gguf"


def types_of(path):
    tensors = json.loads(tyto("inspect", "-m", path, "--json", "--tensors").stdout)["tensors"]
    return {tensor["name"]: tensor["type"] for tensor in tensors}


class Quantize(CliTest):
    def quantize(self, model, kind, *flags):
        out = self.work / f"{len(list(self.work.iterdir()))}.gguf"
        result = tyto("quantize", "-m", model, "--type", kind, "-o", out, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out, result.stderr

    def test_type_is_the_word_and_dtype_still_understood(self):
        for command in (["quantize", "-m", self.model], ["synth", "--shape", "tiny"]):
            made = []
            for flag in ("--type", "--dtype"):
                path = self.work / f"{command[0]}{flag}.gguf"
                self.assertEqual(tyto(*command, flag, "q4_0", "-o", path).returncode, 0)
                made.append(path.read_bytes())
            self.assertEqual(*made)
            text = tyto(command[0], "--help").stdout
            self.assertIn("--type NAME", text)
            self.assertNotIn("--dtype", text)
            both = [*command, "--type", "q4_0", "--dtype", "q8_0", "-o", self.work / "both.gguf"]
            self.check_error(tyto(*both), 2, "--type")

    def test_types_that_are_read_and_not_written(self):
        for command in (["quantize", "-m", self.model], ["synth", "--shape", "tiny"]):
            for kind in ("iq4_nl", "Q3_K_M", "mxfp4"):
                self.check_error(tyto(*command, "--type", kind, "-o", self.work / "no.gguf"), 2,
                                 f'--type: "{kind}" is read and not written by Tyto; llama-quantize writes it',
                                 "choose one of f32")
        self.assertFalse((self.work / "no.gguf").exists())

    def test_a_file_of_a_type_that_is_only_read_runs(self):
        # Blocks of q4_0 and iq4_nl have the same form: another number in the header, and codes mean other values.
        path, _ = self.quantize(self.model, "q4_0")
        file = bytearray(path.read_bytes())
        for name, kind in types_of(path).items():
            if kind == "q4_0":
                record = len(name).to_bytes(8, "little") + name.encode()
                place = file.index(record) + len(record) + 4 + 2 * 8  # behind the number of dimensions and two of them
                self.assertEqual(file[place:place + 4], (2).to_bytes(4, "little"))
                file[place:place + 4] = (20).to_bytes(4, "little")
        read = self.work / "iq4_nl.gguf"
        read.write_bytes(file)
        self.assertEqual(types_of(read)["blk.0.attn_q.weight"], "iq4_nl")
        result = tyto("run", "-m", read, "--raw", "-p", "Once", "-n", "4", "-v")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("no fallbacks", result.stderr)
        _, said = self.quantize(read, "q8_0")
        self.assertIn("were already quantised (iq4_nl, q6_k)", said)

    def test_the_head_of_a_tied_model_gets_six_bits(self):
        for kind in ("q4_0", "q5_1", "q4_k_m"):
            types = types_of(self.quantize(self.model, kind)[0])
            self.assertEqual(types["token_embd.weight"], "q6_k", kind)
        self.assertEqual(types["blk.0.attn_q.weight"], "q4_k")
        self.assertEqual(types["blk.1.ffn_down.weight"], "q6_k")

    def test_rounding_twice_is_told_and_done(self):
        once, said = self.quantize(self.model, "q4_k_m")
        self.assertNotIn("note", said)
        again, said = self.quantize(once, "q8_0")
        self.assertIn("note: 15 matrices were already quantised (q4_k, q6_k) and are now rounded a second time", said)
        self.assertEqual(len(said.splitlines()), 2)
        self.assertEqual(set(types_of(again).values()), {"q8_0", "f32"})
        for kind in ("f16", "f32"):
            plain, said = self.quantize(self.model, kind)
            self.assertNotIn("note", said)
            self.assertNotIn("note", self.quantize(plain, "q4_0")[1])

    def test_an_importance_matrix_changes_the_codes_and_is_written_down(self):
        plain, _ = self.quantize(OWLET, "q4_0")
        out, said = self.quantize(OWLET, "q4_0", "--imatrix", IMATRIX)
        self.assertIn(f"note: {IMATRIX} has no entry for 1 of 36 matrices (token_embd.weight)", said)
        self.assertEqual(types_of(out), types_of(plain))
        content = out.read_bytes()
        for text in (b"quantize.imatrix.file", str(IMATRIX).encode(), b"quantize.imatrix.dataset", b"first.txt",
                     b"quantize.imatrix.entries_count", b"quantize.imatrix.chunks_count"):
            self.assertIn(text, content)
        self.assertNotEqual(content[-1 << 20:], plain.read_bytes()[-1 << 20:])
        self.assertEqual(tyto("run", "-m", out, "-p", "x", "--raw", "-n", "2").returncode, 0)

    def test_an_importance_matrix_that_cannot_be_used(self):
        out = self.work / "never.gguf"

        def quantize(model, kind, imatrix, output=out):
            return tyto("quantize", "-m", model, "--type", kind, "--imatrix", imatrix, "-o", output, "--force")

        self.check_error(quantize(self.model, "q4_0", IMATRIX), 1, "columns", "another model")
        self.check_error(quantize(OWLET, "q8_0", IMATRIX), 2, "changes nothing in q8_0")
        self.check_error(quantize(OWLET, "q4_0", self.model), 1, "is a GGUF, but no importance matrix")
        self.check_error(quantize(OWLET, "q4_0", self.work / "absent"), 1, "absent")
        cut = self.work / "cut.imatrix"
        cut.write_bytes(IMATRIX.read_bytes()[:5000])
        self.check_error(quantize(OWLET, "q4_0", cut), 1, "cut.imatrix")
        cut.write_text("not an importance matrix at all\n" * 10)
        self.check_error(quantize(OWLET, "q4_0", cut), 1, "cut.imatrix")
        self.assertFalse(out.exists())
        mine = self.work / "mine.gguf"
        mine.write_bytes(IMATRIX.read_bytes())
        self.check_error(quantize(OWLET, "q4_0", mine, mine), 2, "is in use")
        self.assertEqual(mine.read_bytes(), IMATRIX.read_bytes())

    def test_a_terminal_sees_work_from_the_beginning(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen([TYTO, "quantize", "-m", OWLET, "--type", "q8_0", "-o", self.work / "seen.gguf"],
                              stderr=theirs, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
            os.close(theirs)
            text = shown_on(ours)
            self.assertEqual(process.wait(timeout=60), 0)
        self.assertIn("converting", text)
        self.assertIn("  0%", text)
        self.assertLess(text.index("  0%"), text.rindex("\033[K"))  # and the bar is erased in the end


main()
