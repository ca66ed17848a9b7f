"""CPU, memory and listening ports of processes, and the queue times of their metrics."""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from kraft.fleet.samples import ProcessUse, listening_processes, queue_time_p99_ms, use_of

METRIC = "kafka_controller_controllereventmanager_eventqueuetimems"


def test_the_use_of_processes_adds_up() -> None:
    own = use_of([os.getpid()])
    assert own.cpu_s > 0
    assert own.rss > 1 << 20
    assert use_of([os.getpid(), os.getpid()]).rss > 1.5 * own.rss


def test_a_process_that_has_ended_uses_nothing() -> None:
    assert use_of([2**22 + 1]) == ProcessUse()


def test_the_process_that_listens_at_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening_processes([port]) == [os.getpid()]
    assert listening_processes([port]) == []


def served(*values: str) -> float | None:
    """Return the longest queue time of servers whose metrics have these values."""

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values[servers.index(self.server)]  # type: ignore[arg-type]
            body = f'a 1\n{METRIC}{{quantile="0.5"}} 7\n{METRIC}{{quantile="0.99"}} {value}\n'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing to stderr."""

    servers = [HTTPServer(("127.0.0.1", 0), Metrics) for _ in values]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return queue_time_p99_ms(server.server_port for server in servers)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def test_the_longest_queue_time_of_the_controllers_counts() -> None:
    assert served("NaN", "3.5", "1.25") == 3.5


def test_without_a_queue_time_there_is_no_sample() -> None:
    assert served("NaN") is None
    assert queue_time_p99_ms([1]) is None
