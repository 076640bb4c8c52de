"""A hub of our own on loopback, with the shapes of Hugging Face's API, and faults that a test switches on.

Two servers stand for two hosts: the hub on 127.0.0.1, and on 127.0.0.2 the host that it redirects large files to, which
must never see a token.
"""
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit

COMMIT = "c0ffee0123456789abcdef0123456789abcdef01"


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        try:
            self.server.hub.answer(self)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that go away are part of the tests
        pass


class Hub:
    """`files` are a repository's: path to content. What ends in .gguf or .safetensors is in LFS. With no `repo` every
    repository has them."""

    def __init__(self, files, repo="org/model", cdn_host="127.0.0.2"):
        self.repo, self.files = repo, dict(files)
        self.needs_token = None   # who has another one gets GatedRepo
        self.faults = []          # faults of answers; fault() adds them
        self.cuts = []            # offsets in the file at which one connection each is cut
        self.stall_at = None      # offset behind which nothing comes until `released` is set
        self.released = threading.Event()
        self.throttle = None      # bytes per second and connection
        self.ignores_ranges = False
        self.hops = 1             # redirects between a large file's address and its bytes
        self.page_size = None     # files on a page of the list
        self.listing = None       # replaces the list of files
        self.linked_etag = None   # replaces what the redirect says
        self.spoil = lambda content: content   # what is served instead of a file
        self.requests = []        # (host, path, headers)
        self.served = 0           # bytes of files
        self.peers = set()        # connections that the large files' host has seen
        self.lock, self.closing = threading.Lock(), threading.Event()
        self.servers = {}
        for name, host in (("hub", "127.0.0.1"), ("cdn", cdn_host)):
            server = Server((host, 0), Handler)
            server.hub, server.name = self, name
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers[name] = server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.released.set()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def url(self, name="hub"):
        return "http://{}:{}".format(*self.servers[name].server_address)

    def fault(self, at, status, times=1, behind=0, **headers):
        """Answers so to the next requests `at` "api", "resolve" or "cdn", `behind` as many that are served."""
        self.faults.append({"at": at, "status": status, "times": times, "behind": behind,
                            "headers": {name.replace("_", "-"): value for name, value in headers.items()}})

    def seen(self, host):
        return [path for name, path, _ in self.requests if name == host]

    def tokens(self, host):
        return {headers.get("Authorization") for name, _, headers in self.requests if name == host}

    # Answers.

    def answer(self, request):
        host, path = request.server.name, urlsplit(request.path).path
        with self.lock:
            self.requests.append((host, request.path, request.headers))
        at = "cdn" if host == "cdn" else "api" if path.startswith("/api/models/") else "resolve"
        for fault in self.faults:
            if fault["at"] == at and fault["times"] > 0:
                fault["behind"] -= 1
                if fault["behind"] >= 0:
                    continue
                fault["times"] -= 1
                return request.reply(fault["status"], b"an error page", fault["headers"])
        if host == "cdn":
            self.peers.add(request.client_address)
            return self.send_file(request, self.files[unquote(path.lstrip("/"))])
        if path.startswith("/hop/"):  # "/hop/2/FILE" leads to "/hop/1/FILE", by an address without a host
            left, name = path.split("/", 3)[2:]
            where = f"/hop/{int(left) - 1}/{name}?Signature=secret" if int(left) > 1 else self.signed(unquote(name))
            return request.reply(302, b"Found", {"Location": where})
        if path.startswith("/api/resolve-cache/"):
            return self.send_file(request, self.files[unquote(path.split("/", 7)[7])])
        repo = re.match(r"/(?:api/models/)?([^/]+/[^/]+)/(revision|tree|resolve)/([^/]+)(?:/(.*))?$", path)
        if not repo or self.repo not in (None, repo[1]):
            return request.reply(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if repo[3] not in ("main", COMMIT):
            return request.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if repo[2] == "revision":
            return request.reply(200, json.dumps({"id": repo[1], "sha": COMMIT, "gated": bool(self.needs_token),
                                                  "siblings": [{"rfilename": name} for name in self.files]}).encode())
        if repo[2] == "tree":
            return self.send_tree(request, repo[1])
        return self.resolve(request, repo[1], unquote(repo[4]))

    def tree(self):
        if self.listing is not None:
            return self.listing
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "a-folder"}]
        for path, content in self.files.items():
            entry = {"type": "file", "oid": git_hash(content), "size": len(content), "path": path}
            if self.is_lfs(path):
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(content)}\n".encode()
                entry |= {"oid": git_hash(pointer), "xetHash": "0" * 64,
                          "lfs": {"oid": sha256(content), "size": len(content), "pointerSize": len(pointer)}}
            entries.append(entry)
        return entries

    def send_tree(self, request, repo):
        entries, headers = self.tree(), {"Content-Type": "application/json"}
        if self.page_size:
            start = int(dict(part.split("=") for part in urlsplit(request.path).query.split("&")).get("cursor", 0))
            end = start + self.page_size
            if end < len(entries):
                headers["Link"] = f'<{self.url()}/api/models/{repo}/tree/{COMMIT}?recursive=true&cursor={end}>; rel="next"'
            entries = entries[start:end]
        request.reply(200, json.dumps(entries).encode(), headers)

    def is_lfs(self, path):
        return path.endswith((".gguf", ".safetensors"))

    def resolve(self, request, repo, path):
        if self.needs_token and request.headers.get("Authorization") != f"Bearer {self.needs_token}":
            status = 403 if request.headers.get("Authorization") else 401
            return request.reply(status, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        if path not in self.files:
            return request.reply(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        content, about = self.files[path], {"X-Repo-Commit": COMMIT}
        if not self.is_lfs(path):
            where = f"/api/resolve-cache/models/{repo}/{COMMIT}/{quote(path)}"
            return request.reply(307, b"Temporary Redirect", about | {"Location": where, "ETag": f'"{git_hash(content)}"'})
        where = self.signed(path) if self.hops == 1 else f"/hop/{self.hops - 1}/{quote(path)}"
        return request.reply(302, b"Found", about | {
            "Location": where, "X-Linked-Size": str(len(content)),
            "X-Linked-Etag": f'"{self.linked_etag or sha256(content)}"'})

    def signed(self, path):
        return f"{self.url('cdn')}/{quote(path)}?Expires=1&Signature=secret"

    def send_file(self, request, content):
        content = self.spoil(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        first, last = (int(asked[1]), int(asked[2])) if asked and not self.ignores_ranges else (0, len(content) - 1)
        request.send_response(206 if asked and not self.ignores_ranges else 200)
        if asked and not self.ignores_ranges:
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        request.send_header("Content-Length", str(last + 1 - first))
        request.end_headers()
        step = 1 << 16 if self.throttle is None else max(1, self.throttle // 50)
        while first <= last:
            stop = min(last + 1, first + step, *(cut for cut in self.cuts if cut > first))
            if self.stall_at is not None and not self.released.is_set():
                stop = min(stop, max(self.stall_at, first))
                if stop == first:
                    self.released.wait(60)
                    if self.closing.is_set():
                        raise ConnectionAbortedError
                    continue
            request.wfile.write(content[first:stop])
            with self.lock:
                self.served += stop - first
                if stop in self.cuts:
                    self.cuts.remove(stop)
                    raise ConnectionAbortedError
            if self.throttle:
                time.sleep((stop - first) / self.throttle)
            first = stop
