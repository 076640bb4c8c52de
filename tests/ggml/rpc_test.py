"""More than one machine: llama.cpp's RPC, each server with the plug-in and its virtual NPU."""
import json
import signal
import socket
import subprocess
import time

from harness import (PLACES, PROMPT, SPARE_TOKENS, GgmlTest, complete, environment, last_lines, mul_mat_count, owlet,
                     program, run)

TOKENS = 48
# By itself llama.cpp turns it off for a device that does not offer it, and on for any RPC server, which it does not ask.
ATTENTION = ["-fa", "off"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """One rpc-server that offers the virtual NPU alone; its output goes to a file."""

    def __init__(self):
        self.port = free_port()
        self.log = PLACES.work / f"rpc-{self.port}.log"
        self.receipt = PLACES.work / f"rpc-{self.port}.json"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(program("ggml-rpc-server")), "-H", "127.0.0.1", "-p", str(self.port), "-d", PLACES.device],
                env=environment({"RECEIPT": self.receipt}), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.wait()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"rpc-server did not come up: {last_lines(self.log.read_text())}")

    def wait_for_products(self, seconds=20):
        """Products that its NPU computed, by its receipt. That is written when the client's weights are given back, a moment
        after it has gone: a server never ends by itself."""
        end, products = time.monotonic() + seconds, 0
        while products == 0 and time.monotonic() < end:
            time.sleep(0.05)
            if self.receipt.exists():
                products = mul_mat_count(json.loads(self.receipt.read_text()))
        return products

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)


class Rpc(GgmlTest):
    def setUp(self):
        self.servers = [Server(), Server()]
        for server in self.servers:
            self.addCleanup(server.kill)

    def client_flags(self, tokens, servers=None):
        servers = servers or self.servers
        devices = ",".join(f"RPC{i}" for i in range(len(servers)))
        return ["-m", owlet("f16"), "--rpc", ",".join(server.address for server in servers), "-dev", devices, "-ngl", 99,
                "-p", PROMPT, "-n", tokens, "--temp", 0, "--ignore-eos", "-no-cnv", "--no-display-prompt",
                "--no-warmup", "-t", 1, "-lv", 5, *ATTENTION]

    def remote_text(self, servers=None):
        """What a client without the plug-in gets from the servers, and its log."""
        result = run("llama-completion", *self.client_flags(TOKENS + SPARE_TOKENS, servers), plugin=False)
        self.assertEqual(result.returncode, 0, last_lines(result.stderr))
        return result.stdout, result.stderr

    def test_a_model_across_two_servers_says_the_same_as_one_process(self):
        local = complete(owlet("f16"), TOKENS + SPARE_TOKENS, flags=ATTENTION).text
        remote, log = self.remote_text()
        length = min(len(local), len(remote))
        self.assertGreater(length, 3 * TOKENS)
        self.assertEqual(remote[:length].rstrip(), local[:length].rstrip())
        for server in self.servers:
            self.assertRegex(log, rf"\[{server.address}\] model buffer size = +[1-9]", "no weights on this server")
            self.assertGreater(server.wait_for_products(), TOKENS, "no work on this server's NPU")

    def test_a_server_killed_mid_answer_ends_the_client_with_one_line(self):
        """llama.cpp's client aborts: SIGABRT, and a line that says what happened. It neither hangs nor goes on.

        It must run with SIGPIPE ignored, as Python leaves it here: else a request to the dead server ends it without a word.
        """
        output, errors = PLACES.work / "answer.txt", PLACES.work / "errors.txt"
        with output.open("w") as out, errors.open("w") as err:
            client = subprocess.Popen([str(program("llama-completion")), *map(str, self.client_flags(1900))],
                                      env=environment(plugin=False), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                      restore_signals=False)
        self.addCleanup(client.kill)
        self.wait_for_text(client, output)
        self.servers[1].kill()
        self.assertEqual(client.wait(timeout=60), -signal.SIGABRT, last_lines(errors.read_text()))
        reasons = [line for line in errors.read_text().splitlines() if "Remote RPC server crashed" in line]
        self.assertEqual(len(reasons), 1, last_lines(errors.read_text()))
        # The other server lives, and serves the next client.
        self.assertIsNone(self.servers[0].process.poll(), last_lines(self.servers[0].log.read_text()))
        text, _ = self.remote_text(self.servers[:1])
        self.assertGreater(len(text), 2 * TOKENS)

    def wait_for_text(self, client, output, seconds=60):
        """Until the answer has begun."""
        end = time.monotonic() + seconds
        while output.stat().st_size < 40:
            self.assertIsNone(client.poll(), "the client ended before it said anything")
            self.assertLess(time.monotonic(), end, "no text came")
            time.sleep(0.01)

    def test_a_server_that_is_not_there(self):
        self.servers[1].kill()
        result = run("llama-completion", *self.client_flags(4), plugin=False, timeout=60)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.strip(), "")
