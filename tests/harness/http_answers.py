"""Ask a node's HTTP listener, for tests of metrics and health."""

from __future__ import annotations

import urllib.error
import urllib.request

from tests.harness.commands import PATIENCE_S


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body; 0 where nobody listens yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""
