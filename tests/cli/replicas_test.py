#!/usr/bin/env python3
"""Two replicas behind nginx, as in deploy/: one is killed under load, the other is told to end."""
import http.client
import itertools
import json
import os
import signal
import threading
from urllib.parse import urlparse

from harness import CliTest, main
from nginx import start_nginx
from serving import Serving

REQUESTS = 200
THREADS = 8
ANSWERS_BEFORE_THE_KILL = 40


def is_complete(body, streamed):
    if streamed:
        return body.rstrip().endswith(b"data: [DONE]")
    return json.loads(body)["choices"][0]["finish_reason"] is not None


def ask(port, streamed, tokens, on_begun=lambda: None):
    """What a client sees: "answered", "refused" with a status, or "cut" where an answer had begun. Whatever else
    happens is an exception."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    request = {"prompt": "The owl", "max_tokens": tokens, "stream": streamed}
    connection.request("POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"})
    response = connection.getresponse()
    try:
        begin = response.read(1)
        on_begun()
        body = begin + response.read()
    except (http.client.IncompleteRead, ConnectionResetError):
        return "cut"
    finally:
        connection.close()
    if response.status != 200:
        assert response.status in (429, 502, 503), (response.status, body)
        return "refused"
    return "answered" if is_complete(body, streamed) else "cut"


class Load:
    """Requests from several threads; remembers what became of each."""

    def __init__(self, port, on_answer):
        self.port = port
        self.on_answer = on_answer
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.began_after_kill = [False] * REQUESTS
        self.results = [None] * REQUESTS
        self.killed = threading.Event()

    def work(self):
        while (number := self.next()) < REQUESTS:
            self.began_after_kill[number] = self.killed.is_set()
            try:
                self.results[number] = ask(self.port, number % 2 == 0, 64)
            except Exception as error:  # the test says which
                self.results[number] = repr(error)
            with self.lock:
                self.on_answer(self)

    def next(self):
        with self.lock:
            return next(self.numbers)

    def run(self):
        threads = [threading.Thread(target=self.work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Replicas(CliTest):
    def setUp(self):
        self.need("nginx")
        self.replicas = []
        for _ in range(2):
            self.replicas.append(Serving(models=(f"tiny={self.model}",)))
            self.addCleanup(self.replicas[-1].stop)
        nginx, self.port = start_nginx(self.work, [urlparse(replica.url).port for replica in self.replicas])
        self.addCleanup(nginx.wait, 60)
        self.addCleanup(nginx.terminate)

    def test_one_dies_and_one_is_told_to_end(self):
        first, second = self.replicas

        def kill_one(load):
            if not load.killed.is_set() and sum(r == "answered" for r in load.results) >= ANSWERS_BEFORE_THE_KILL:
                first.process.kill()
                first.process.wait(60)
                load.killed.set()

        load = Load(self.port, kill_one)
        load.run()
        self.assertTrue(load.killed.is_set())
        for number, result in enumerate(load.results):
            self.assertIn(result, ("answered", "refused", "cut"), number)
            if load.began_after_kill[number]:
                self.assertEqual(result, "answered", number)
        # No more than were running, and of those only streams whose beginning the client had.
        self.assertLessEqual(sum(result != "answered" for result in load.results), THREADS)

        self.check_that_it_ends_in_good_order(second)
        self.assertEqual(ask(self.port, False, 1), "refused")

    def check_that_it_ends_in_good_order(self, replica):
        begun = threading.Barrier(THREADS + 1, timeout=120)
        results = []

        def stream():
            results.append(ask(self.port, True, 96, begun.wait))

        threads = [threading.Thread(target=stream) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        begun.wait()  # each has the first byte of its answer
        os.kill(replica.process.pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
        self.assertEqual(results, ["answered"] * THREADS)
        self.assertEqual(replica.process.wait(60), 0, "".join(replica.log))


if __name__ == "__main__":
    main()
