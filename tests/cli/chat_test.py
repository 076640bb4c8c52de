#!/usr/bin/env python3
"""tyto chat."""
import signal
import subprocess

from harness import OWLET, TYTO, CliTest, main, tyto


class Chat(CliTest):
    def test_turns_clear_and_exit(self):
        result = tyto("chat", "-m", self.model, "--chat-template", "chatml", "-n", "4", "--temp", "0",
                      text="Hello\nAgain\n/clear\n/nonsense\nHello\n/exit\nnever read\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cleared", result.stderr)
        self.assertIn("unknown command /nonsense", result.stderr)
        self.assertEqual(result.stderr.count("executed on cpu"), 3)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        process = subprocess.Popen([TYTO, "chat", "-m", str(OWLET), "-n", "1900", "--ignore-eos"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            self.assertTrue(process.stdout.read(1))  # the answer has begun
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(b"/exit\n", timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, err)
        generated = int(err.decode().split("generated ")[1].split()[0])
        self.assertLess(generated, 1900)


if __name__ == "__main__":
    main()
