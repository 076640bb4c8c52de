#!/usr/bin/env python3
"""tyto plan."""
import json

from harness import CliTest, main, tyto


class Plan(CliTest):
    FIELDS = ["machine", "shape", "kernels", "fusion", "prompt_tokens", "context_tokens", "ttft_ms", "prefill_tok_s",
              "tpot_ms", "decode_tok_s", "dispatches_per_token", "pinned_bytes", "images", "heap_bytes", "bottleneck",
              "rel_error_p90"]

    def test_json_has_a_row_per_kernel_set_and_says_it_is_modelled(self):
        result = tyto("plan", "--shape", "llama-3.2-1b", "--machine", "strix", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([(row["kernels"], row["fusion"]) for row in rows],
                         [("air-bf16", "op"), ("air-bf16", "block"), ("air-q4nx", "token"), ("flm-q4", "token")])
        for row in rows:
            self.assertEqual(set(row), set(self.FIELDS) | {"note", "modelled"})
            self.assertIs(row["modelled"], True)
            self.assertEqual((row["machine"], row["shape"], row["prompt_tokens"]), ("strix", "llama-3.2-1b", 2048))
        self.assertEqual([row["dispatches_per_token"] for row in rows[:3]], [179, 33, 1])
        # A run of each image, however many layers the model has.
        self.assertEqual([row["images"] for row in rows], [0, 6, 5, 0])
        for row in rows:
            self.assertEqual(row["heap_bytes"] > 0, row["images"] > 0)
            self.assertLess(row["heap_bytes"], 64 << 20)

    def test_table_says_modelled_and_takes_a_model_file(self):
        result = tyto("plan", "-m", self.model, "--machine", "krackan", "--kernels", "air-q4nx", "--prompt", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Modelled, not measured", result.stdout)
        self.assertIn("no public images", result.stdout)
        self.assertNotIn("flm-q4", result.stdout)
        self.assertIn("heap: of the device's 64 MiB", result.stdout)

    def test_bad_names_are_one_line_errors(self):
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "phoenix"), 2, "machine phoenix", "strix-halo")
        self.check_error(tyto("plan", "--shape", "huge", "--machine", "strix"), 2, "shape huge")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "x"), 2, "kernels x", "flm-q4")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "air-q4nx", "--fusion", "op"), 2,
                         "--fusion op")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--prompt", "0"), 2, "prompt length")
        self.check_error(tyto("plan", "--shape", "tiny"), 2, "--machine")


if __name__ == "__main__":
    main()
