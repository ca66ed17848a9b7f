"""HTTP proxies that kill their client at a chosen step: for proofs about writers of object stores.

Each writer has a proxy of its own, on loopback, in front of one server. A step is the moment before
a request that changes something (PUT, POST, DELETE), or the one after it, when the server has done
it and the client does not know. The proxies run in a process of their own: the one that starts the
writers forks, and so has no threads.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.harness.line_process import LineProcess

_CONTROL = "/-/arm"
_CHANGES = ("PUT", "POST", "DELETE")
#: Headers of one connection, and those that the proxy sets.
_OWN_HEADERS = ("connection", "content-length", "date", "server", "transfer-encoding")


@contextmanager
def killing_proxies(server: str, count: int) -> Iterator[list[str]]:
    """Run ``count`` proxies in front of ``server``, a URL with a host and a port; yield their
    addresses.
    """
    command = [sys.executable, "-m", __name__, server.removeprefix("http://"), str(count)]
    with LineProcess(command) as process:
        yield process.read_line().split()


def die_after(proxy: str, steps: int) -> None:
    """Let the proxy kill this process before its step ``steps``, counted from 0; -1 for never."""
    _control(proxy, {"pid": os.getpid(), "steps": steps})


def steps_made(proxy: str) -> int:
    """Return the number of steps since the last call of `die_after`."""
    return _control(proxy, None)


def _control(proxy: str, given: dict[str, int] | None) -> int:
    asked = urllib.request.Request(f"{proxy}{_CONTROL}", json.dumps(given).encode(), method="POST")
    with urllib.request.urlopen(asked, timeout=300) as answer:
        made: int = json.load(answer)
        return made


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: str) -> None:
        self.server = server
        self.pid = 0
        self.steps = -1
        self.made = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a client that was killed has ended its connection."""

    def kills(self) -> bool:
        """Count a step; return whether the client was killed at it or before."""
        with self.lock:
            if self.made == self.steps:
                os.kill(self.pid, signal.SIGKILL)
                self.pid, self.steps = 0, -2
            self.made += 1
            return self.steps == -2


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection(self.server.server, timeout=300)

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == _CONTROL:
            self.control(json.loads(body))
            return
        is_change = self.command in _CHANGES
        if is_change and self.server.kills():
            self.close_connection = True
            return
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self.upstream.putheader(name, value)
        self.upstream.endheaders(body)
        answer = self.upstream.getresponse()
        content = answer.read()
        if is_change and self.server.kills():
            self.close_connection = True
            return
        size = str(len(content))
        if self.command == "HEAD":
            size = answer.getheader("Content-Length") or "0"
        headers = [pair for pair in answer.getheaders() if pair[0].lower() not in _OWN_HEADERS]
        self.answer(answer.status, [*headers, ("Content-Length", size)], content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815

    def control(self, given: dict[str, int] | None) -> None:
        proxy = self.server
        with proxy.lock:
            made = proxy.made
            if given is not None:
                proxy.pid, proxy.steps, proxy.made = given["pid"], given["steps"], 0
        content = json.dumps(made).encode()
        self.answer(200, [("Content-Length", str(len(content)))], content)

    def answer(self, status: int, headers: Sequence[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    """Print the addresses, and serve until the standard input ends."""
    server, count = sys.argv[1], int(sys.argv[2])
    proxies = [_Proxy(server) for _ in range(count)]
    for proxy in proxies:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(*(f"http://127.0.0.1:{proxy.server_port}" for proxy in proxies), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
