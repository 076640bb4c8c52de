"""Public shapes with random weights, inside stock llama.cpp."""
from harness import PLACES, GgmlTest, complete, have_room, probe, tyto


class Shapes(GgmlTest):
    def check_shape(self, shape, dtype, disk, memory, tokens):
        reason = have_room(disk, memory)
        if reason:
            self.skipTest(f"{shape}: {reason}")
        path = PLACES.work / f"{shape}.gguf"
        self.addCleanup(path.unlink)
        tyto("synth", "--shape", shape, "--type", dtype, "-o", path)
        receipt = complete(path, tokens, prompt="Hi", settings={"MIN_N": 1}, flags=["-c", 256], timeout=600).receipt
        print(f"\n  {shape} {dtype}: {receipt['mul_mat']['offloaded']} multiplications in {receipt['dispatches']} dispatches,"
              f" {receipt['share_of_macs']:.1%} of the MACs it was given ", end="")
        self.assertGreater(receipt["share_of_macs"], 0.9)
        self.assertEqual(receipt["fallbacks"], [])
        return path

    def test_tinyllama(self):
        """K = 2048 and 5632."""
        path = self.check_shape("tinyllama-1.1b", "q4_0", 2000, 4000, 3)
        steps = probe(path, 2, settings={"MIN_N": 1}, prompt="Hi")
        self.assertLess(max(step["kl"] for step in steps), 0.01)

    def test_llama_8b(self):
        """K = 4096 and 14336."""
        self.check_shape("llama-3.1-8b", "q4_k_m", 8000, 18000, 1)
