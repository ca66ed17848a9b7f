"""The compiled server of the floors over loopback, ``loopback_peer serve``."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from benchmarks.loopback_client import LoopbackClient
from tests.harness.commands import PATIENCE_S

REQUEST_SIZE, RESPONSE_SIZE, FILE_SIZE = 10, 300, 1000


def test_responses_go_on_at_the_files_start_after_its_end(tmp_path: Path) -> None:
    content = bytes(number % 251 for number in range(FILE_SIZE))
    file = tmp_path / "served"
    file.write_bytes(content)
    command = [LoopbackClient(tmp_path).path, "serve", file, RESPONSE_SIZE, REQUEST_SIZE]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = ("127.0.0.1", int(server.stdout.readline()))
            with socket.create_connection(address, PATIENCE_S) as client:
                answers = client.makefile("rb")
                for number in range(10):
                    client.sendall(bytes(REQUEST_SIZE))
                    assert answers.read(4) == RESPONSE_SIZE.to_bytes(4, "big")
                    begin = number * RESPONSE_SIZE % FILE_SIZE
                    assert answers.read(RESPONSE_SIZE) == (2 * content)[begin:][:RESPONSE_SIZE]
        finally:
            server.kill()


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    command = [str(LoopbackClient(tmp_path).path), "serve", str(file), "300", "10"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stderr) == (1, f"{file} is empty: there is nothing to send\n")
