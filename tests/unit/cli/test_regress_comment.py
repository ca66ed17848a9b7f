"""``kraft regress comment`` against a local server that answers as GitHub's API does."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kraft.regression import publication
from tests.unit.cli.conftest import Run

TEXT = "### Benchmarks: 1 regression\n\n| benchmark | change |\n|---|---|\n| `a` | **+20 %** |\n"
COMMIT = "3f2a9c1d" * 5
TOKEN = "the-token"


class GitHub(ThreadingHTTPServer):
    """The comments and checks of one repository; `sent` has every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.hooks: list[tuple[dict[str, str], bytes]] = []
        self.sent: list[str] = []
        self.redirect = ""
        self.broken = 0  # the status of every answer of the API, if it is not 0
        self.hook_answers: list[tuple[int, str | None]] = []  # status and Retry-After, next first

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: GitHub
    retry_after: str | None = None

    def answer(self, code: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect)
        if self.retry_after is not None:
            self.send_header("Retry-After", self.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.sent.append(f"{self.command} {parts.path}")
        if parts.path == "/hook":
            self.server.hooks.append((dict(self.headers), data))
            code, self.retry_after = (self.server.hook_answers or [(200, None)])[0]
            del self.server.hook_answers[:1]
            return self.answer(code, "ok")
        if self.server.redirect:
            return self.answer(302, {})
        if self.server.broken:
            return self.answer(self.server.broken, {})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"message": "Bad credentials"})
        if self.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return self.answer(400, {"message": "no version"})
        return self.api(parts.path, parse_qs(parts.query), data)

    def api(self, path: str, query: dict[str, list[str]], data: bytes) -> None:
        comments = self.server.comments
        if path == "/repos/o/n/issues/12/comments" and self.command == "GET":
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return self.answer(200, comments[(page - 1) * size : page * size])
        if path == "/repos/o/n/issues/12/comments" and self.command == "POST":
            made = {"id": len(comments) + 1, "html_url": f"https://pull/{len(comments) + 1}"}
            comments.append({**made, **json.loads(data)})
            return self.answer(201, made)
        if path.startswith("/repos/o/n/issues/comments/") and self.command == "PATCH":
            comment = comments[int(path.rpartition("/")[2]) - 1]
            comment |= json.loads(data)
            return self.answer(200, comment)
        if path == "/repos/o/n/check-runs" and self.command == "POST":
            self.server.checks.append(json.loads(data))
            return self.answer(201, {"id": 1, "html_url": "https://check/1"})
        return self.answer(404, {"message": "Not Found"})

    do_GET = do_POST = do_PATCH = handle_any  # noqa: N815  (their names in http.server)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    for name in ("GITHUB_REPOSITORY", "KRAFT_WEBHOOK_SECRET", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("GITHUB_API_URL", server.address)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "comment.md"
    path.write_text(TEXT)
    return path


PLACE = ("--repo", "o/n", "--pull", "12", "--check", COMMIT)


def test_nothing_is_sent_without_being_told_to(kraft: Run, github: GitHub, text: Path) -> None:
    for options in ((), ("--dry-run",)):
        ran = kraft("regress", "comment", text, *PLACE, *options)
        assert ran.code == 0
        assert f"POST {github.address}/repos/o/n/issues/12/comments" in ran.out
        assert "conclusion: failure" in ran.out
        assert "nothing is sent" in ran.err
        assert TOKEN not in ran.out + ran.err
    assert github.sent == []
    hook = f"{github.address}/hook?secret=42"
    shown = kraft("regress", "comment", text, "--webhook", hook, "--json").json
    assert shown["sent"] is False
    assert "secret" not in json.dumps(shown["requests"][0]["url"])
    assert github.sent == []


def test_a_comment_and_a_check_are_made_and_the_comment_replaced(
    kraft: Run, github: GitHub, text: Path
) -> None:
    github.comments = [{"id": at + 1, "body": f"remark {at}"} for at in range(120)]
    ran = kraft("regress", "comment", text, *PLACE, "--send", "--json")
    assert ran.code == 0
    assert ran.json["addresses"] == ["https://pull/121", "https://check/1"]
    assert github.comments[-1]["body"].startswith(TEXT)
    (check,) = github.checks
    assert (check["head_sha"], check["conclusion"]) == (COMMIT, "failure")
    assert check["output"] == {"title": "Benchmarks: 1 regression", "summary": TEXT}
    # Later comments of people, then the next run: the old comment is on the second page.
    github.comments.append({"id": 122, "body": "thanks"})
    text.write_text("### Benchmarks: no regression\n")
    ran = kraft("regress", "comment", text, *PLACE, "--send")
    assert ran.code == 0
    assert len(github.comments) == 122
    assert github.comments[120]["body"].startswith("### Benchmarks: no regression")
    assert github.checks[-1]["conclusion"] == "success"
    # Another suite has a comment of its own.
    ran = kraft("regress", "comment", text, *PLACE, "--name", "loads", "--send")
    assert len(github.comments) == 123


def test_a_webhook_gets_the_result_signed_and_no_token(
    kraft: Run, github: GitHub, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFT_WEBHOOK_SECRET", "shared")
    hook = f"{github.address}/hook"
    ran = kraft("regress", "comment", text, "--webhook", hook, "--send")
    assert ran.code == 0
    ((headers, data),) = github.hooks
    assert json.loads(data)["text"] == "benchmarks: Benchmarks: 1 regression"
    assert json.loads(data)["markdown"] == TEXT
    digest = hmac.new(b"shared", data, hashlib.sha256).hexdigest()
    assert headers["X-Kraft-Signature-256"] == f"sha256={digest}"
    assert "Authorization" not in headers
    assert github.sent == ["POST /hook"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the waits between calls of a webhook, which take no time."""
    found: list[float] = []
    monkeypatch.setattr(publication.time, "sleep", found.append)
    return found


def test_a_webhook_that_is_busy_or_broken_is_called_again(
    kraft: Run, github: GitHub, text: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFT_WEBHOOK_SECRET", "shared")
    github.hook_answers = [(503, None), (429, "7"), (502, "soon")]
    hook = ("--webhook", f"{github.address}/hook", "--webhook-retries", "3", "--send")
    ran = kraft("regress", "comment", text, *hook)
    assert ran.code == 0, ran.err
    assert waits == [1, 7, 4]
    assert "503 Service Unavailable; retry 1 of 3 in 1 s" in ran.err
    # One delivery: the receiver can drop a second call that it had understood.
    assert len(github.hooks) == 4
    assert len({headers["X-Kraft-Delivery"] for headers, _ in github.hooks}) == 1
    assert len({(headers["X-Kraft-Signature-256"], data) for headers, data in github.hooks}) == 1
    kraft("regress", "comment", text, *hook)
    assert len({headers["X-Kraft-Delivery"] for headers, _ in github.hooks}) == 2


def test_a_webhook_is_not_called_for_ever(
    kraft: Run, github: GitHub, text: Path, waits: list[float]
) -> None:
    hook = ("--webhook", f"{github.address}/hook", "--send")
    github.hook_answers = [(500, None)] * 20
    ran = kraft("regress", "comment", text, *hook, "--webhook-wait-s", "20")
    assert ran.code == 1
    assert "500" in ran.err
    assert (len(github.hooks), waits) == (3, [20, 40])
    waits.clear()
    github.hook_answers = [(503, "86400")] * 20
    ran = kraft("regress", "comment", text, *hook, "--webhook-retries", "10")
    assert (ran.code, len(github.hooks), waits) == (1, 14, [60] * 10)
    # An answer that rejects the request is final.
    waits.clear()
    github.hook_answers = [(404, None), (200, None)]
    ran = kraft("regress", "comment", text, *hook)
    assert (ran.code, len(github.hooks), waits) == (1, 15, [])
    github.hook_answers = []
    github.redirect = f"{github.address}/hook"
    ran = kraft("regress", "comment", text, "--webhook", f"{github.address}/moved", "--send")
    assert (ran.code, len(github.hooks), waits) == (1, 15, [])


def test_a_webhook_that_never_answers_is_given_up(
    kraft: Run, github: GitHub, text: Path, waits: list[float]
) -> None:
    begin = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        options = ("--webhook-timeout-s", "0.2", "--webhook-retries", "1", "--send")
        ran = kraft("regress", "comment", text, "--webhook", hook, *options)
    assert ran.code == 1
    assert "timed out" in ran.err
    assert time.monotonic() - begin < 30  # the timeout of other requests, which is not used
    assert waits == [1]
    # Nobody listens there any more.
    ran = kraft("regress", "comment", text, "--webhook", hook, "--webhook-retries", "0", "--send")
    assert ran.code == 1
    assert "refused" in ran.err
    assert waits == [1]


def test_only_the_webhook_is_called_again(
    kraft: Run, github: GitHub, text: Path, waits: list[float]
) -> None:
    github.broken = 503
    assert kraft("regress", "comment", text, *PLACE, "--send").code == 1
    assert (github.sent, waits) == (["GET /repos/o/n/issues/12/comments"], [])


def test_a_rejected_request_is_an_error_with_its_reason(
    kraft: Run, github: GitHub, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kraft("regress", "comment", text, "--repo", "o/other", "--pull", "12", "--send")
    assert ran.code == 1
    assert "/repos/o/other/issues/12/comments: 404 Not Found; does the repository exist" in ran.err
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    ran = kraft("regress", "comment", text, *PLACE, "--send")
    assert ran.code == 1
    assert "401 Bad credentials; is GITHUB_TOKEN valid?" in ran.err
    assert "wrong" not in ran.err
    # A redirect would take the token elsewhere.
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github.redirect = f"{github.address}/hook"
    ran = kraft("regress", "comment", text, *PLACE, "--send")
    assert ran.code == 1
    assert "302" in ran.err
    assert github.hooks == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing to publish: name a pull request, a commit or a webhook"),
        (("--pull", "1"), "the repository is None, must be owner/name"),
        (("--pull", "1", "--repo", "o/n/x"), "must be owner/name"),
        (("--check", "3f2a9c", "--repo", "o/n"), "a check needs the full hash"),
        (("--webhook", "http://hooks.example.org/1"), "the webhook must be https"),
        (("--webhook", "file:///etc/passwd"), "must be https://host/"),
        (("--pull", "1", "--repo", "o/n", "--conclusion", "maybe"), "must be one of success"),
        (("--pull", "1", "--repo", "o/n", "--name", "-->"), "the name is '-->'"),
        (("--pull", "1", "--repo", "o/n", "--send", "--dry-run"), "exclude each other"),
        (("--webhook", "https://h/", "--webhook-retries", "11"), "is 11, must be 0 to 10"),
        (("--webhook", "https://h/", "--webhook-timeout-s", "0"), "must be above 0, 600 at most"),
        (("--webhook", "https://h/", "--webhook-wait-s", "61"), "is 61.0, must be 0 to 60"),
    ],
)
def test_bad_input_exits_with_2_and_sends_nothing(
    kraft: Run, github: GitHub, text: Path, options: tuple[str, ...], message: str
) -> None:
    ran = kraft("regress", "comment", text, *options)
    assert ran.code == 2
    assert message in ran.err
    assert github.sent == []


def test_github_needs_a_token_and_the_file_must_exist(
    kraft: Run, github: GitHub, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    ran = kraft("regress", "comment", text, *PLACE, "--send")
    assert ran.code == 2
    assert "set the environment's GITHUB_TOKEN" in ran.err
    assert kraft("regress", "comment", text.with_name("no.md"), *PLACE).code == 2
    assert github.sent == []
