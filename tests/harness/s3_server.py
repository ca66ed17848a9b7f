"""An S3 server on loopback, in a process of its own, for tests of object stores.

It is moto's, which keeps the objects in memory and accepts any credentials. A thread of the test's
process would not do: `deltalake` keeps the interpreter's lock while it waits for the server.

moto finds out whether an object exists, and later writes it, without a lock: two writers with
``If-None-Match: *`` may both succeed. S3 lets one of them win, and so does this server, which makes
one change at a time.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from tests.harness.line_process import LineProcess

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


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


def one_change_at_a_time(application: WSGIApplication) -> WSGIApplication:
    """Return the application with a lock for requests that change something."""
    lock = threading.Lock()

    def locked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with lock if environ["REQUEST_METHOD"] not in ("GET", "HEAD") else nullcontext():
            answer = application(environ, start_response)
            try:
                return list(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()

    return locked


def main() -> None:
    """Print the address, and serve until the standard input ends."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    application = one_change_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server(
        "127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
