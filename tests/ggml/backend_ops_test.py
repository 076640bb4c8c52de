"""ggml's own test of backends: every operation the plug-in claims, against the CPU backend."""
import collections
import csv
import io
import re

from harness import PLACES, GgmlTest, last_lines, run

OFFERED_TYPES = ["f16", "bf16", "q8_0", "q4_0", "q4_K", "q6_K"]


def cases(*args, mode="test", timeout=900):
    """The rows of test-backend-ops. It ends with 0 even if it knows no such backend, so rows must be counted."""
    result = run("test-backend-ops", mode, "-b", PLACES.device, "--output", "csv", *args, timeout=timeout)
    start = result.stdout.find('"backend_name"')
    if start < 0:
        raise AssertionError(f"no rows, exit code {result.returncode}: {last_lines(result.stderr)}")
    return result, list(csv.DictReader(io.StringIO(result.stdout[start:])))


class BackendOps(GgmlTest):
    def check(self, result, rows):
        """All that is claimed is right; returns what is claimed."""
        failed = [f"{row['op_name']}({row['op_params']}): {row['error_message']}" for row in rows
                  if row["error_message"] and row["supported"] == "1"]
        self.assertEqual(failed, [])
        self.assertEqual(result.returncode, 0, last_lines(result.stderr))
        return [row for row in rows if row["supported"] == "1"]

    def test_mul_mat(self):
        claimed = self.check(*cases("-o", "MUL_MAT", "-j", 2))
        by_type = collections.Counter(re.search(r"type_a=(\w+)", row["op_params"])[1] for row in claimed)
        print(f"\n  MUL_MAT cases that ran: {dict(by_type)} ", end="")
        self.assertGreater(len(claimed), 50)
        for type_name in OFFERED_TYPES:
            self.assertGreater(by_type[type_name], 0, type_name)

    def test_only_what_will_run_is_claimed(self):
        _, rows = cases(mode="support")
        self.assertGreater(len({row["op_name"] for row in rows}), 50)
        claimed = {row["op_name"] for row in rows if row["supported"] == "1"}
        self.assertIn("MUL_MAT", claimed)
        self.assertNotIn("MUL_MAT_ID", claimed)
        self.assertNotIn("FLASH_ATTN_EXT", claimed)
        print(f"\n  claimed: {sorted(claimed)} ", end="")
