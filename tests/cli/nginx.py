"""Debian's nginx with deploy/nginx.conf, on ports of this machine alone."""
import os
import socket
import subprocess
import time

from harness import ROOT


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def write_nginx_conf(folder, listen, replicas):
    """The example with other ports, inside what a site's own nginx.conf would say."""
    example = (ROOT / "deploy" / "nginx.conf").read_text()
    for old, new in zip(("8080", "9378", "9379"), (listen, *replicas)):
        assert f"127.0.0.1:{old}" in example
        example = example.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"  {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    user = "user root;\n" if os.geteuid() == 0 else ""  # nginx's own cannot enter our folder
    conf = folder / "nginx.conf"
    conf.write_text(f"{user}worker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\ndaemon off;\n"
                    f"events {{}}\nhttp {{\n  access_log off;\n{temporary}{example}\n}}\n")
    return conf


def start_nginx(folder, replicas):
    """The process and its port, once it answers there."""
    port = free_port()
    conf = write_nginx_conf(folder, port, replicas)
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(conf), "-e", str(folder / "error.log")],
                               env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, port
        except OSError:
            assert process.poll() is None, (folder / "error.log").read_text()
            time.sleep(0.1)
    raise TimeoutError("nginx does not listen")
