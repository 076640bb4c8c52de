"""`tyto pull` from a hub on loopback (hub.py) that misbehaves on demand."""
import datetime
import email.utils
import fcntl
import os
import pty
import random
import re
import resource
import signal
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

from harness import TYTO, CliTest, main, tyto
from hub import COMMIT, Hub, git_hash, sha256

TOKEN = "hf_a1B2c3D4e5F6g7H8"
MIB = 1 << 20


def bytes_of(count, seed=1):
    return random.Random(seed).randbytes(count)


def read_gguf_header(path):
    """An independent reader: version, number of tensors and of keys, the first key."""
    with open(path, "rb") as file:
        magic, version, tensors, keys, length = struct.unpack("<4sIQQQ", file.read(32))
        return magic, version, tensors, keys, file.read(length).decode()


class PullTest(CliTest):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp(dir=self.work))
        self.cache = self.home / "hub"
        self.repo_folder = self.cache / "models--org--model"
        self.hub = None

    def serve(self, files, **settings):
        self.hub = Hub(files)
        self.addCleanup(self.hub.__exit__)
        for name, value in settings.items():
            setattr(self.hub, name, value)
        return self.hub

    def environment(self, token=""):
        clean = {name: "" for name in ("HF_HUB_CACHE", "HF_TOKEN_PATH", "http_proxy", "https_proxy", "all_proxy")}
        return {**clean, "HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.url(), "HF_TOKEN": token, "no_proxy": "*"}

    def pull(self, name="org/model", *flags, token=""):
        return tyto("pull", name, *flags, environment=self.environment(token))

    def start(self, name="org/model", *flags):
        return subprocess.Popen([TYTO, "pull", name, *flags], env={**os.environ, **self.environment()},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def incomplete(self, content):
        return self.repo_folder / "blobs" / (sha256(content) + ".incomplete")

    def size_of_incomplete(self, content):
        return self.incomplete(content).stat().st_size if self.incomplete(content).exists() else 0

    def wait_for(self, condition):
        for _ in range(600):
            if condition():
                return
            time.sleep(0.05)
        self.fail("it did not come to that")

    def check_pulled(self, result, files):
        self.assertEqual(result.returncode, 0, result.stderr)
        snapshot = self.repo_folder / "snapshots" / COMMIT
        for path, content in files.items():
            self.assertEqual((snapshot / path).read_bytes(), content)
        self.assertEqual({str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()}, set(files))
        self.assertFalse(list(self.repo_folder.rglob("*.incomplete")))
        self.assertEqual((self.repo_folder / "refs" / "main").read_text(), COMMIT)


class Pulled(PullTest):
    def test_model_runs_and_others_read_it(self):
        content = self.model.read_bytes()
        self.serve({"README.md": b"# tiny", "tiny-Q4_K_M.gguf": content, "tiny-Q8_0.gguf": b"GGUF other"})
        result = self.pull("org/model:Q4_K_M")
        self.check_pulled(result, {"tiny-Q4_K_M.gguf": content})
        path = Path(result.stdout.splitlines()[0])
        self.assertEqual(path, self.repo_folder / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf")
        # The layout of huggingface_hub: a relative link to a blob named by its hash.
        self.assertEqual(os.readlink(path), f"../../blobs/{sha256(content)}")
        self.assertEqual(read_gguf_header(path)[:2], (b"GGUF", 3))
        self.assertIn('Next: tyto run org/model:Q4_K_M "Hello"', result.stdout)
        for name in (path, "org/model", "org/model:Q4_K_M", "hf:org/model:q4_k_m"):
            run = tyto("run", "-m", name, "-p", "Hi", "-n", "2", "--raw", environment=self.environment())
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_addresses_that_a_browser_shows(self):
        content = self.model.read_bytes()
        self.serve({"README.md": b"# tiny", "tiny-Q4_K_M.gguf": content})
        for address in ("https://huggingface.co/org/model", "https://huggingface.co/org/model/blob/main/tiny-Q4_K_M.gguf",
                        self.environment()["HF_ENDPOINT"] + "/org/model/tree/main", "hf.co/org/model:Q4_K_M"):
            self.check_pulled(self.pull(address), {"tiny-Q4_K_M.gguf": content})
        self.assertIn('Next: tyto run org/model:tiny-Q4_K_M.gguf "Hello"',
                      self.pull("https://huggingface.co/org/model/resolve/main/tiny-Q4_K_M.gguf?download=true").stdout)

    def test_without_a_name_models_are_recommended(self):
        result = tyto("pull", environment={"HF_ENDPOINT": "http://nowhere.invalid"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Models that fit into this machine's ", result.stdout)
        self.assertGreaterEqual(result.stdout.count("\n    tyto pull "), 1)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)
        self.check_error(tyto("pull", "--dry-run"), 2, "--dry-run: has no effect without the name of a model")

    def test_a_host_without_an_address_is_asked_for_once(self):
        self.serve({})
        begin = time.monotonic()
        result = tyto("pull", "org/model", environment={**self.environment(), "HF_ENDPOINT": "http://nowhere.invalid"})
        self.check_error(result, 1, "http://nowhere.invalid: ", "nowhere.invalid (no network, or a proxy is needed "
                         "(https_proxy); HF_ENDPOINT names a mirror)")
        self.assertLess(time.monotonic() - begin, 10)

    def test_checkpoint_with_folders_and_parts(self):
        files = {"config.json": b"{}", "tokenizer.json": b"{ }", "model-00001-of-00002.safetensors": bytes_of(1000),
                 "model-00002-of-00002.safetensors": bytes_of(2000), "model.safetensors.index.json": b"{}", "merges.txt": b""}
        self.serve({**files, "original/consolidated.00.pth": b"no", "pytorch_model.bin": b"no", "empty.txt": b""})
        result = self.pull()
        self.check_pulled(result, files)
        self.assertEqual(Path(result.stdout.splitlines()[0]), self.repo_folder / "snapshots" / COMMIT)
        # Equal content is one blob, named by git's hash; what is there is not fetched again.
        self.assertTrue((self.repo_folder / "blobs" / git_hash(b"{}")).is_file())
        served = self.hub.served
        self.assertIn("all of it was there already", self.pull().stdout)
        self.assertEqual(self.hub.served, served)

    def test_files_in_folders_are_linked_from_there(self):
        files = {f"Q4_K_M/m x-Q4_K_M-0000{part}-of-00002.gguf": bytes_of(500, part) for part in (1, 2)}
        self.serve({**files, "Q8_0/m x-Q8_0.gguf": b"other", "config.json": b"{}"})
        self.check_pulled(self.pull("hf:org/model:q4_k_m"), files)
        link = self.repo_folder / "snapshots" / COMMIT / "Q4_K_M/m x-Q4_K_M-00001-of-00002.gguf"
        self.assertTrue(os.readlink(link).startswith("../../../blobs/"))

    def test_large_file_comes_over_several_connections(self):
        content = bytes_of(41 * MIB)
        self.serve({"m.gguf": content})
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, len(content))
        self.assertGreater(len(self.hub.peers), 1)
        self.assertLessEqual(len(self.hub.peers), 4)

    def test_small_file_comes_over_one(self):
        content = bytes_of(10 * MIB)
        self.serve({"m.gguf": content})
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(len(self.hub.seen("cdn")), 1)

    def test_list_comes_in_pages(self):
        files = {f"file-{number}.txt": b"x" for number in range(7)} | {"m.gguf": b"GGUF m"}
        self.serve(files, page_size=3)
        self.check_pulled(self.pull(), {"m.gguf": b"GGUF m"})
        self.assertEqual(len([path for path in self.hub.seen("hub") if "/tree/" in path]), 3)

    def test_dry_run_writes_nothing(self):
        content = bytes_of(3 * MIB)
        self.serve({"m-Q4_0.gguf": content, "m-Q8_0.gguf": b"x"})
        result = self.pull("org/model:Q4_0", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        for fragment in ("m-Q4_0.gguf", "3.1 MB", COMMIT, "to fetch into", "free"):
            self.assertIn(fragment, result.stdout)
        self.assertEqual(list(self.home.iterdir()), [])
        self.incomplete(content).parent.mkdir(parents=True)
        self.incomplete(content).write_bytes(content[:MIB])
        self.assertIn("2.1 MB to fetch", self.pull("org/model:Q4_0", "--dry-run").stdout)

    def test_other_files_of_the_cache_stay(self):
        self.serve({"m.gguf": b"GGUF m"})
        mine = [self.repo_folder / "snapshots" / ("a" * 40) / "m.gguf", self.cache / "models--org--other" / "refs" / "main",
                self.repo_folder / "blobs" / "0123.incomplete", self.repo_folder / "refs" / "v1"]
        for path in mine:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        self.assertEqual(self.pull().returncode, 0)
        for path in mine:
            self.assertEqual(path.read_text(), "mine")

    def test_revision(self):
        self.serve({"m.gguf": b"GGUF m"})
        result = self.pull("org/model", "--revision", COMMIT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse((self.repo_folder / "refs").exists())
        self.assertIn(f"tyto run {result.stdout.splitlines()[0]}", result.stdout)
        self.check_error(self.pull("org/model", "--revision", "v9"), 1, "no such revision")
        for bad in ("../x", "/x", "a//b"):
            self.check_error(self.pull("org/model", "--revision", bad), 2, "--revision")


class Tokens(PullTest):
    def test_go_to_the_hub_alone(self):
        files = {"config.json": b"{}", "model.safetensors": bytes_of(100)}
        self.serve(files, needs_token=TOKEN)
        result = self.pull(token=TOKEN)
        self.check_pulled(result, files)
        self.assertEqual(self.hub.tokens("hub"), {f"Bearer {TOKEN}"})
        self.assertEqual(self.hub.tokens("cdn"), {None})
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        for path in self.home.rglob("*"):
            self.assertFalse(path.is_file() and TOKEN.encode() in path.read_bytes(), path)

    def test_another_port_is_another_host(self):
        self.hub = Hub({"m.gguf": bytes_of(100)}, cdn_host="127.0.0.1")
        self.addCleanup(self.hub.__exit__)
        self.assertEqual(self.pull(token=TOKEN).returncode, 0)
        self.assertEqual(self.hub.tokens("cdn"), {None})

    def test_from_a_file(self):
        self.serve({"m.gguf": bytes_of(100)}, needs_token=TOKEN)
        (self.home / "token").write_text(TOKEN + "\n")
        self.assertEqual(self.pull().returncode, 0)
        (self.home / "token").write_text("two words")
        self.check_error(self.pull(), 2, "is not a token")

    def test_gated(self):
        self.serve({"m.gguf": bytes_of(100)}, needs_token=TOKEN)
        self.check_error(self.pull(), 1, "set HF_TOKEN", "/org/model")
        result = self.pull(token="hf_other")
        self.check_error(result, 1, "with the account of your token")
        self.assertNotIn("hf_other", result.stderr)


class Refused(PullTest):
    def test_answers_of_the_hub(self):
        self.serve({"m.gguf": bytes_of(100)})
        self.hub.fault("resolve", 300)
        self.check_error(self.pull(), 1, "the answer was 300")
        self.check_error(self.pull("org/absent"), 1, "no such repository, or it is private", "HF_TOKEN")
        for at, status, headers, said in (
                ("resolve", 404, {"X_Error_Code": "EntryNotFound"}, "no such file"),
                ("api", 401, {"X_Error_Message": "Invalid credentials in Authorization header"}, "does not accept the token"),
                ("api", 418, {"X_Error_Message": "a teapot\x1b[31m"}, "the answer was 418: a teapot\\u001b[31m"),
                ("api", 500, {}, "the answer was 500"),
                ("resolve", 502, {}, "the answer was 502")):
            self.hub.fault(at, status, **headers)
            self.check_error(self.pull("org/model", "--retries", "0"), 1, said)

    def test_names(self):
        self.serve({"m.gguf": b"x"})
        for name in ("../etc", "org/model:", "https://example.org/org/model", ""):
            self.check_error(self.pull(name), 2)
        self.check_error(self.pull("nonsense"), 2, "ORG/REPO:Q4_K_M")
        self.check_error(self.pull(str(self.model)), 2, "is on this machine already")
        self.check_error(self.pull("org/model:Q5_K_M"), 2, "m.gguf")
        self.assertEqual(list(self.home.iterdir()), [])

    def test_hostile_lists(self):
        self.serve({"m.gguf": b"x"})
        file = {"type": "file", "oid": "0" * 40, "size": 1}
        for path in ("../up.gguf", "/etc/x.gguf", "a\nb.gguf"):  # more of them: tests/unit/hub
            self.hub.listing = [{**file, "path": path}]
            self.check_error(self.pull(), 1, "not a name for a file")
        self.hub.listing = [{**file, "path": "m.gguf", "oid": "../../x"}]
        self.check_error(self.pull(), 1, "no hash")
        self.hub.listing = [{**file, "path": "m.gguf", "size": -1}]
        self.check_error(self.pull(), 1, "size")
        self.hub.listing = [{"type": "file"}]
        self.check_error(self.pull(), 1, "path")
        self.hub.listing = [{**file, "path": f"{number:0200}.txt"} for number in range(70000)]
        self.check_error(self.pull(), 1, "longer than 16 MiB")
        self.hub.listing, self.hub.page_size = [{**file, "path": f"{number}.txt"} for number in range(300)], 1
        self.check_error(self.pull(), 1, "more than 100 pages")
        self.assertEqual(list(self.home.iterdir()), [])

    def test_endless_redirects(self):
        self.serve({"m.gguf": bytes_of(100)})
        self.hub.fault("resolve", 302, times=100, Location="/org/model/resolve/main/m.gguf")
        self.check_error(self.pull(), 1, "redirects more than 5 times")
        self.hub.faults.clear()
        self.hub.fault("api", 302, times=100, Location="/api/models/org/model/revision/main")
        self.check_error(self.pull(), 1, "redirects more than 5 times")
        self.hub.faults.clear()
        self.hub.fault("resolve", 302, Location="file:///etc/passwd")
        self.check_error(self.pull(), 1, "not HTTP")

    def test_wrong_content(self):
        content = bytes_of(1000)
        self.serve({"m.gguf": content})
        self.hub.spoil = lambda good: good[:-1] + b"!"
        result = self.pull()
        self.check_error(result, 1, "it was thrown away", sha256(content))
        self.assertFalse(self.incomplete(content).exists())
        self.hub.spoil = lambda good: good[:-1]
        self.check_error(self.pull(), 1, "has 999 bytes, but the hub lists 1000")
        self.hub.spoil = lambda good: good + b"more"
        self.check_error(self.pull(), 1, "has 1004 bytes, but the hub lists 1000")
        self.hub.linked_etag = "0" * 64
        self.check_error(self.pull(), 1, "other content than it lists")
        self.assertFalse((self.repo_folder / "snapshots").exists())
        self.assertFalse((self.repo_folder / "refs").exists())

    def test_a_blob_of_another_size_is_left_alone(self):
        content = bytes_of(1000)
        self.serve({"m.gguf": content})
        blob = self.repo_folder / "blobs" / sha256(content)
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"short")
        self.check_error(self.pull(), 1, "has 5 bytes", "remove it")
        self.assertEqual(blob.read_bytes(), b"short")

    def test_no_hub_and_no_folder(self):
        self.serve({"m.gguf": b"x"})
        bad = tyto("pull", "org/model", environment={**self.environment(), "HF_ENDPOINT": "huggingface.co"})
        self.check_error(bad, 2, "HF_ENDPOINT")
        closed = tyto("pull", "org/model", "--retries", "0", environment={**self.environment(), "HF_ENDPOINT": "http://127.0.0.1:9"})
        self.check_error(closed, 1, "127.0.0.1")
        inside_a_file = tyto("pull", "org/model", environment={**self.environment(), "HF_HOME": str(self.model)})
        self.check_error(inside_a_file, 1, "cannot make the folder")


class Interrupted(PullTest):
    def test_cut_connections_go_on_where_they_were_cut(self):
        content = bytes_of(500_000)
        self.serve({"m.gguf": content}, cuts=[100_000, 300_000])
        result = self.pull()
        self.check_pulled(result, {"m.gguf": content})
        self.assertEqual(self.hub.served, len(content))
        self.assertEqual(result.stderr.count("trying again in 0.5 s (1 of 5)"), 2, result.stderr)

    def test_cut_ranges_go_on_too(self):
        content = bytes_of(41 * MIB)
        self.serve({"m.gguf": content}, cuts=[3 * MIB, 11 * MIB, 19 * MIB + 5])
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, len(content))

    def test_too_many_retries(self):
        content = bytes_of(500_000)
        self.serve({"m.gguf": content}, cuts=[100_000])
        self.check_error(self.pull("org/model", "--retries", "0"), 1, "the same command goes on from there")
        self.assertEqual(self.incomplete(content).read_bytes(), content[:100_000])
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, len(content))

    def test_stalled(self):
        content = bytes_of(500_000)
        self.serve({"m.gguf": content}, stall_at=200_000)
        self.check_error(self.pull("org/model", "--timeout", "2", "--retries", "0"), 1, "m.gguf: nothing came for 2 s")
        self.assertEqual(self.incomplete(content).read_bytes(), content[:200_000])

    def test_ranges_ignored(self):
        content = bytes_of(300_000)
        self.serve({"m.gguf": content}, ignores_ranges=True, cuts=[100_000])
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, len(content) + 100_000)
        large = bytes_of(20 * MIB)
        self.hub.files["large.gguf"] = large
        self.assertEqual(self.pull("org/model:large.gguf").returncode, 0)

    def test_expired_addresses_are_asked_for_again(self):
        content = bytes_of(500_000)
        self.serve({"m.gguf": content}, cuts=[100_000])
        self.hub.fault("cdn", 403, behind=1)
        result = self.pull()
        self.check_pulled(result, {"m.gguf": content})
        self.assertIn("the answer was 403", result.stderr)
        self.assertEqual(len([path for path in self.hub.seen("hub") if "/resolve/" in path]), 2)

    def test_redirects_are_counted_for_each_request(self):
        content = bytes_of(41 * MIB)
        self.serve({"m.gguf": content}, hops=2)
        # Each of four connections is told that its address has expired, and goes the whole way again.
        self.hub.fault("cdn", 403, times=4, behind=1)
        result = self.pull()
        self.check_pulled(result, {"m.gguf": content})
        asked = len([path for path in self.hub.seen("hub") if "/resolve/" in path])
        self.assertIn(asked, range(5, 9))  # ranges that begin meanwhile ask the hub, too
        self.assertEqual(len([path for path in self.hub.seen("hub") if path.startswith("/hop/")]), asked)
        self.assertLessEqual(result.stderr.count("the answer was 403"), 4)

    def test_told_to_wait(self):
        content = bytes_of(1000)
        self.serve({"m.gguf": content})
        in_a_second = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
        self.hub.fault("api", 429, Retry_After="1")
        self.hub.fault("resolve", 503, Retry_After=email.utils.format_datetime(in_a_second, usegmt=True))
        result = self.pull()
        self.check_pulled(result, {"m.gguf": content})
        self.assertIn("the answer was 429; trying again in 1.0 s (1 of 5)", result.stderr)
        self.hub.fault("api", 429, Retry_After="4000")
        self.check_error(self.pull(), 1, "it asks to wait 4000 s")

    def test_killed(self):
        content = bytes_of(41 * MIB)
        self.serve({"m.gguf": content}, stall_at=20 * MIB)
        process = self.start()
        self.wait_for(lambda: self.size_of_incomplete(content) == 20 * MIB)
        process.kill()
        process.communicate()
        self.assertEqual(self.incomplete(content).read_bytes(), content[:20 * MIB])
        self.hub.stall_at, served = None, self.hub.served
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served - served, 21 * MIB)

    def test_killed_before_it_was_checked(self):
        content = bytes_of(1000)
        self.serve({"m.gguf": content})
        self.incomplete(content).parent.mkdir(parents=True)
        self.incomplete(content).write_bytes(bytes(1000))
        self.check_error(self.pull(), 1, "it was thrown away")
        self.incomplete(content).write_bytes(content)
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, 0)
        # Longer than the file: not its beginning.
        (self.repo_folder / "blobs" / sha256(content)).unlink()
        self.incomplete(content).write_bytes(bytes(2000))
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served, 1000)

    def test_ctrl_c(self):
        content = bytes_of(2 * MIB)
        self.serve({"m.gguf": content}, stall_at=MIB)
        process = self.start()
        self.wait_for(lambda: self.size_of_incomplete(content) == MIB)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (-signal.SIGINT, ""))
        self.assertIn("the same command goes on from there", errors)
        self.hub.stall_at = None
        self.check_pulled(self.pull(), {"m.gguf": content})

    def test_two_at_once(self):
        content = bytes_of(2 * MIB)
        self.serve({"m.gguf": content}, stall_at=MIB)
        first = self.start()
        self.wait_for(lambda: self.size_of_incomplete(content) == MIB)
        second = self.start()
        self.assertIn("another program is fetching it", second.stderr.readline())
        self.hub.released.set()
        results = [process.communicate(timeout=60) for process in (first, second)]
        self.assertEqual([first.returncode, second.returncode], [0, 0], results)
        self.assertIn("all of it was there already", results[1][0])
        self.assertEqual(self.hub.served, len(content))
        self.check_pulled(self.pull(), {"m.gguf": content})


class FullDisk(PullTest):
    def test_no_room_is_said_first(self):
        self.serve({"m.gguf": b"x"})
        self.hub.listing = [{"type": "file", "path": "m.gguf", "oid": "0" * 40, "size": 1 << 49}]
        self.check_error(self.pull(), 1, "are free", "HF_HOME")
        self.assertEqual(list(self.home.iterdir()), [])
        self.assertEqual(self.hub.seen("cdn"), [])

    def test_what_was_written_is_kept(self):
        content = bytes_of(500_000)
        self.serve({"m.gguf": content})
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        full = subprocess.run([TYTO, "pull", "org/model"], env={**os.environ, **self.environment()}, preexec_fn=limit,
                              capture_output=True, text=True, timeout=60)
        self.check_error(full, 1, "200000 of 500000 bytes are there", "goes on from there")
        self.assertEqual(self.incomplete(content).read_bytes(), content[:200_000])
        served = self.hub.served
        self.check_pulled(self.pull(), {"m.gguf": content})
        self.assertEqual(self.hub.served - served, 300_000)


class Terminal(PullTest):
    def pull_on_terminal(self, columns, bar):
        """What is drawn; the hub goes on once the bar was."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        process = subprocess.Popen([TYTO, "pull", "org/model"], env={**os.environ, **self.environment()}, stdout=slave,
                                   stderr=slave)
        os.close(slave)
        text = b""
        try:
            while chunk := os.read(master, 65536):
                text += chunk
                if re.search(bar, text.decode(errors="replace")):
                    self.hub.released.set()
        except OSError:  # the other end is closed
            pass
        os.close(master)
        self.assertEqual(process.wait(60), 0, text)
        return re.split(r"\r\n|\r", text.decode())

    def test_bar(self):
        content = bytes_of(3 * MIB)
        for columns, bar in ((80, r"fetching  67% \[#{13}\.{7}\] 2\.1 MB/3\.1 MB [\d.]+ [kM]B/s \d:\d\d left"),
                             (40, r"fetching  67% \[#{13}\.{7}\] 2")):
            self.serve({f"{columns}.gguf": content + b"%d" % columns}, stall_at=2 * MIB)
            lines = self.pull_on_terminal(columns, bar)
            bars = [line for line in lines if line.startswith("fetching")]
            self.assertTrue(any(re.match(bar, line) for line in bars), lines)
            self.assertLess(max(map(len, bars)), columns)
            self.assertTrue(any(line.startswith("asking http://127.0.0.1") for line in lines), lines)
            # The bar is gone before the path is printed.
            path = next(index for index, line in enumerate(lines) if line.startswith(str(self.cache)))
            self.assertEqual(lines[path - 1].strip(), "")


if __name__ == "__main__":
    main()
