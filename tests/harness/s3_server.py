"""An S3 server on loopback, in a process of its own, for tests of object stores.

It is moto's, which keeps the objects in memory and accepts any credentials. A thread of the test's
process would not do: `deltalake` keeps the interpreter's lock while it waits for the server.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.line_process import LineProcess


@contextmanager
def s3_server(bucket: str) -> Iterator[dict[str, str]]:
    """Run a server with a bucket; yield the environment with which `deltalake` uses it."""
    with LineProcess([sys.executable, "-m", __name__], errors=subprocess.DEVNULL) as server:
        address = server.read_line()
        created = urllib.request.Request(f"{address}/{bucket}", method="PUT")
        with urllib.request.urlopen(created, timeout=300) as answer:
            assert answer.status == 200
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }


def main() -> None:
    """Print the address, and serve until the standard input ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
