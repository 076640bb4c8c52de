#!/usr/bin/env python3
"""tyto serve as systemd runs it: it is given its socket, says how it is, and reads its configuration again."""
import http.client
import os
import signal
import socket
import subprocess
import time

from harness import TYTO, CliTest, main
from nginx import free_port


class Service(CliTest):
    def setUp(self):
        self.need("systemd-socket-activate")
        self.port = free_port()
        self.config = self.work / "config.toml"
        self.log = self.work / "log"
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.settimeout(120)
        self.notices.bind(str(self.work / "notify"))
        self.addCleanup(self.notices.close)

    def start(self, config):
        self.config.write_text(config)
        environment = {"NOTIFY_SOCKET": self.work / "notify", **{name: os.environ[name] for name in
                                                                 ("XDG_STATE_HOME", "XDG_CACHE_HOME")}}
        variables = [f"--setenv={name}={value}" for name, value in environment.items()]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["systemd-socket-activate", f"--listen=127.0.0.1:{self.port}", *variables, TYTO, "serve",
                 "-m", str(self.model), "--config", str(self.config)], stderr=log)
        self.addCleanup(self.process.wait, 60)
        self.addCleanup(self.process.kill)

    def get(self, path):
        for _ in range(600):  # until systemd-socket-activate listens
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read().decode()
            except ConnectionRefusedError:
                self.assertIsNone(self.process.poll(), self.log.read_text())
                time.sleep(0.1)
            finally:
                connection.close()
        raise TimeoutError(self.log.read_text())

    def check_notices(self, *expected):
        for notice in expected:
            self.assertEqual(self.notices.recv(1000).decode(), notice, self.log.read_text())

    def test_from_its_socket_to_its_end(self):
        self.start("[serve]\nqueue = 8\n")
        self.assertIn(self.get("/health")[0], (200, 503))  # the connection that starts it waits for it
        self.check_notices("READY=1")
        self.assertEqual(self.get("/health")[0], 200)
        self.assertIn("# TYPE tyto_time_to_first_token_seconds histogram\n", self.get("/metrics")[1])

        self.config.write_text("[serve]\nqueue = 9\nslots = 2\n")
        self.process.send_signal(signal.SIGHUP)
        self.check_notices("RELOADING=1", "READY=1")
        self.config.write_text("[serve]\nqueue = 'many'\n")
        self.process.send_signal(signal.SIGHUP)
        self.check_notices("RELOADING=1", "READY=1")
        self.assertEqual(self.get("/health")[0], 200)

        self.process.send_signal(signal.SIGTERM)
        self.check_notices("STOPPING=1")
        self.assertEqual(self.process.wait(60), 0, self.log.read_text())
        log = self.log.read_text()
        self.assertIn("changed: --queue\n", log)
        self.assertIn("these need a restart: --slots\n", log)
        self.assertIn(f"{self.config}:2:9: --queue takes a whole number", log)


if __name__ == "__main__":
    main()
