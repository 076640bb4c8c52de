#!/usr/bin/env python3
"""What a long context takes: the weights, the KV pages in use, and little else."""
import subprocess
import sys

from harness import OWLET, TYTO, CliTest, main

MB = 1 << 20
CONTEXT = 2048  # all that the model has
LAYERS, KV_HEADS, HEAD_DIM, PAGE = 5, 2, 64, 256
WEIGHTS = (OWLET / "model.safetensors").stat().st_size
OTHERWISE = 300 * MB  # activations, logits, working memory of the threads, and the program itself

# A process of its own has one child, and so knows how much that child had in memory.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, timeout=110)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(done.returncode)
"""


def kv_bytes(kv_type, positions):
    """Keys and values of all layers, in whole pages."""
    row = {"f32": 4 * HEAD_DIM, "f16": 2 * HEAD_DIM, "q8_0": HEAD_DIM // 32 * 34}[kv_type]
    return 2 * LAYERS * KV_HEADS * -(-positions // PAGE) * PAGE * row


class Memory(CliTest):
    def most_memory(self, kv_type, prompt, *flags):
        """The most bytes that a run over a prompt and one more token had in memory at a time."""
        result = subprocess.run(
            [sys.executable, "-c", MEASURE, TYTO, "bench", "-m", OWLET, "-t", "2", "-r", "1", "-p", "0", "-n", "0",
             "-pg", f"{prompt},1", "-c", str(CONTEXT), "-ctk", kv_type, "-ctv", kv_type, "--no-warmup", "--no-ledger",
             *flags], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return int(result.stdout)

    def test_a_full_context_takes_weights_pages_and_little_else(self):
        for kv_type in ("q8_0", "f32"):  # f16: below
            with self.subTest(kv_type):
                used = kv_bytes(kv_type, CONTEXT)
                self.assertLess(self.most_memory(kv_type, CONTEXT - 1), WEIGHTS + used + OTHERWISE)

    def test_room_that_nobody_uses_takes_no_memory(self):
        found = self.most_memory("f16", CONTEXT - 1, "--kv-memory", "3G")
        self.assertLess(found, WEIGHTS + kv_bytes("f16", CONTEXT) + OTHERWISE)

    def test_a_longer_prompt_takes_its_pages_and_one_chunk_of_activations(self):
        # Logits of all rows would be 32 MB, scores of all rows by all positions 128 MB a layer.
        short, full = (self.most_memory("f16", prompt) for prompt in (256, CONTEXT - 1))
        more = kv_bytes("f16", CONTEXT) - kv_bytes("f16", 257)
        self.assertLess(full - short, more + 16 * MB)


if __name__ == "__main__":
    main()
