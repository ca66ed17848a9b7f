"""Publish a comment: on a pull request and as a check at GitHub, and to a webhook.

`Publication.requests` are the requests, for a dry run; `publish` sends them. The text is the
Markdown that `regression.markdown` wrote. A comment of an earlier run is replaced: a hidden mark in
it names it. A request to GitHub is sent once: an error says which one failed. A webhook that does
not answer, or answers that it is busy or broken, is called again (`WebhookDelivery`). All its calls
have the same ``X-Kraft-Delivery``, so that a receiver can drop a second one.

The interface is GitHub's REST API of version 2022-11-28 ("issue comments", "check runs"), also that
of a GitHub Enterprise server.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from kraft.errors import InvalidRequestError, KraftError

#: GitHub's REST API.
GITHUB_API = "https://api.github.com"
_TIMEOUT_S = 30.0
#: Characters that GitHub accepts in the summary of a check.
_MOST_SUMMARY = 65_535
_PAGE = 100
#: Pages of comments that are searched for an earlier one.
_MOST_PAGES = 30
_MOST_ANSWER = 16 << 20


#: Answers after which a webhook is called again: too early, too many requests, server errors.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
#: The longest wait between two calls of a webhook, whatever its Retry-After says.
MOST_WAIT_S = 60.0
#: The most further calls of a webhook.
MOST_RETRIES = 10


class PublicationError(KraftError):
    """A server rejected a request, or did not answer; the message names the request.

    ``is_transient`` is whether the same request may succeed later; ``retry_after_s`` is when, if
    the server said it.
    """

    def __init__(
        self, message: str, *, is_transient: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.is_transient = is_transient
        self.retry_after_s = retry_after_s


class Conclusion(StrEnum):
    """Result of a check."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True)
class WebhookDelivery:
    """How patiently a webhook is called.

    Raises:
        InvalidRequestError: a value is out of its range.
    """

    timeout_s: float = 30.0  # without an answer, or a further byte of it
    retries: int = 2  # after the first call, if it failed for a reason that may pass
    wait_s: float = 1.0  # before the first retry; doubles for each next one, up to `MOST_WAIT_S`

    def __post_init__(self) -> None:
        for name, holds, range_ in (
            ("timeout_s", 0 < self.timeout_s <= 600, "above 0, 600 at most"),
            ("retries", 0 <= self.retries <= MOST_RETRIES, f"0 to {MOST_RETRIES}"),
            ("wait_s", 0 <= self.wait_s <= MOST_WAIT_S, f"0 to {MOST_WAIT_S:g}"),
        ):
            if not holds:
                raise InvalidRequestError(
                    f"{name} of the webhook is {getattr(self, name)}, must be {range_}"
                )

    def wait_before_s(self, retry: int, asked_s: float | None) -> float:
        """Return the seconds before a retry, counted from 1; ``asked_s`` is the Retry-After."""
        own = self.wait_s * 2.0 ** (retry - 1)
        return min(own if asked_s is None else max(own, asked_s), MOST_WAIT_S)


#: The default.
DELIVERY = WebhookDelivery()

#: Called with the error of a call, the wait before the next one in seconds, and its number from 1.
OnRetry = Callable[[PublicationError, float, int], None]


@dataclass(frozen=True)
class PublishedRequest:
    """One request: its body is JSON, without secrets."""

    method: str
    url: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Publication:
    """What is published, and where. None leaves a place out.

    Raises:
        InvalidRequestError: a value has another form, or nothing is to be published.
    """

    markdown: str
    conclusion: Conclusion
    repository: str | None = None  # owner/name
    pull: int | None = None  # number of the pull request that gets the comment
    commit: str | None = None  # that gets the check
    webhook: str | None = None
    name: str = "benchmarks"  # of the check; distinguishes comments of several suites
    api: str = GITHUB_API

    def __post_init__(self) -> None:
        if self.pull is None and self.commit is None and self.webhook is None:
            raise InvalidRequestError(
                "nothing to publish: name a pull request, a commit or a webhook"
            )
        if self.pull is not None or self.commit is not None:
            if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.repository or ""):
                raise InvalidRequestError(
                    f"the repository is {self.repository!r}, must be owner/name"
                )
            _check_url(self.api, "the API's address")
        if self.commit is not None and not re.fullmatch(r"[0-9a-f]{40,64}", self.commit):
            raise InvalidRequestError(f"{self.commit!r}: a check needs the full hash of its commit")
        if not re.fullmatch(r"[\w .:/-]{1,60}", self.name):
            raise InvalidRequestError(
                f"the name is {self.name!r}, must be 1 to 60 letters, digits, spaces and . : / -"
            )
        if self.webhook is not None:
            _check_url(self.webhook, "the webhook")

    @property
    def title(self) -> str:
        """Return the first line of the text, without the marks of a heading."""
        return self.markdown.strip().partition("\n")[0].lstrip("# ").strip()

    @property
    def mark(self) -> str:
        """Return the hidden line by which an earlier comment is found."""
        return f"<!-- kraft regress: {self.name} -->"

    def requests(self, earlier: int | None = None) -> list[PublishedRequest]:
        """Return the requests that change something; ``earlier`` is the id of the old comment."""
        made = []
        if self.pull is not None:
            body = {"body": f"{self.markdown}\n{self.mark}\n"}
            issues = f"{self.api}/repos/{self.repository}/issues"
            if earlier is None:
                made.append(PublishedRequest("POST", f"{issues}/{self.pull}/comments", body))
            else:
                made.append(PublishedRequest("PATCH", f"{issues}/comments/{earlier}", body))
        if self.commit is not None:
            output = {"title": self.title, "summary": self.markdown[:_MOST_SUMMARY]}
            made.append(
                PublishedRequest(
                    "POST",
                    f"{self.api}/repos/{self.repository}/check-runs",
                    {
                        "name": self.name,
                        "head_sha": self.commit,
                        "status": "completed",
                        "conclusion": self.conclusion.value,
                        "output": output,
                    },
                )
            )
        if self.webhook is not None:
            message = {
                "text": f"{self.name}: {self.title}",
                "markdown": self.markdown,
                "conclusion": self.conclusion.value,
                "repository": self.repository,
                "pull": self.pull,
                "commit": self.commit,
            }
            made.append(PublishedRequest("POST", self.webhook, message))
        return made


def conclusion_of(markdown: str) -> Conclusion:
    """Return the conclusion that the title of a comment states."""
    title = markdown.strip().partition("\n")[0]
    is_quiet = title.endswith(("no regression", "no new regression"))
    return Conclusion.SUCCESS if is_quiet else Conclusion.FAILURE


def publish(
    publication: Publication,
    *,
    token: str | None,
    webhook_secret: str | None = None,
    delivery: WebhookDelivery = DELIVERY,
    on_retry: OnRetry = lambda error, wait_s, retry: None,
) -> list[str]:
    """Send all requests, and return the addresses of what they made.

    ``token`` is GitHub's. With a ``webhook_secret`` the webhook's body is signed: the header
    ``X-Kraft-Signature-256`` is ``sha256=`` and the HMAC in hex. ``on_retry`` is called before each
    wait for a webhook.

    Raises:
        InvalidRequestError: GitHub is asked for without a token.
        PublicationError: a request failed; the requests before it have been made.
    """
    to_github = publication.pull is not None or publication.commit is not None
    if to_github and not token:
        raise InvalidRequestError("GitHub needs a token: set the environment's GITHUB_TOKEN")
    headers = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "Authorization": f"Bearer {token}",
    }
    earlier = None
    if publication.pull is not None:
        earlier = _earlier_comment(publication, headers)
    addresses = []
    for request in publication.requests(earlier):
        if publication.webhook is not None and request.url == publication.webhook:
            answer = _delivered(request, webhook_secret, delivery, on_retry)
        else:
            answer = _sent(request, headers)
        url = answer.get("html_url") if isinstance(answer, dict) else None
        addresses.append(url if isinstance(url, str) else shown_url(request.url))
    return addresses


def _earlier_comment(publication: Publication, headers: dict[str, str]) -> int | None:
    """Return the id of the newest comment with the publication's mark."""
    base = f"{publication.api}/repos/{publication.repository}/issues/{publication.pull}/comments"
    found = None
    for page in range(1, _MOST_PAGES + 1):
        url = f"{base}?per_page={_PAGE}&page={page}"
        comments = _sent(PublishedRequest("GET", url), headers)
        if not isinstance(comments, list):
            raise PublicationError(f"GET {url}: expected a list of comments")
        for comment in comments:
            if publication.mark in str(comment.get("body") or ""):
                found = int(comment["id"])
        if len(comments) < _PAGE:
            break
    return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would take the token to another host."""

    def redirect_request(self, *arguments: object) -> None:
        return None


def _delivered(
    request: PublishedRequest, secret: str | None, delivery: WebhookDelivery, on_retry: OnRetry
) -> Any:
    """Call a webhook until it answers, and return its JSON answer.

    Raises PublicationError after the last retry, or for an answer that rejects the request.
    """
    headers = {"X-Kraft-Delivery": uuid4().hex}
    if secret:
        digest = hmac.new(secret.encode(), _body(request) or b"", hashlib.sha256).hexdigest()
        headers["X-Kraft-Signature-256"] = f"sha256={digest}"
    retry = 0
    while True:
        try:
            return _sent(request, headers, delivery.timeout_s)
        except PublicationError as error:
            retry += 1
            if not error.is_transient or retry > delivery.retries:
                raise
            wait_s = delivery.wait_before_s(retry, error.retry_after_s)
            on_retry(error, wait_s, retry)
        time.sleep(wait_s)


def _body(request: PublishedRequest) -> bytes | None:
    return None if request.body is None else json.dumps(request.body).encode()


def _sent(request: PublishedRequest, headers: dict[str, str], timeout_s: float = _TIMEOUT_S) -> Any:
    """Send a request and return its JSON answer, None for any other answer."""
    name = f"{request.method} {shown_url(request.url)}"
    sent = dict(headers) | {"User-Agent": "kraft", "Content-Type": "application/json"}
    made = urllib.request.Request(request.url, _body(request), sent, method=request.method)
    try:
        with urllib.request.build_opener(_NoRedirects).open(made, timeout=timeout_s) as answer:
            body = answer.read(_MOST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            raise PublicationError(
                f"{name}: {error.code} {_reason(error)}",
                is_transient=error.code in _TRANSIENT,
                retry_after_s=_seconds(error.headers.get("Retry-After")),
            ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        # Another call would meet the same certificate, and the same address that is none.
        is_final = isinstance(reason, ssl.SSLCertVerificationError | ValueError)
        raise PublicationError(
            f"{name}: {str(reason) or type(error).__name__}", is_transient=not is_final
        ) from None
    try:
        return json.loads(body)
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    """Return a Retry-After in seconds; None for a date, whose clock may be another one."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _reason(error: urllib.error.HTTPError) -> str:
    """Return GitHub's message, else the name of the status."""
    try:
        message = json.loads(error.read(1 << 16)).get("message")
    except (AttributeError, OSError, ValueError):
        message = None
    advice = {
        401: "; is GITHUB_TOKEN valid?",
        403: "; the token needs write access to pull requests and checks",
        404: "; does the repository exist, and may the token read it?",
    }
    return f"{message or error.reason}{advice.get(error.code, '')}"


def shown_url(url: str) -> str:
    """Return an address without its query and path of a webhook, which may be a password."""
    parts = urlsplit(url)
    is_api = "/repos/" in parts.path
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path if is_api else '/…'}"


def _check_url(url: str, what: str) -> None:
    """Refuse an address that would send a token or results unencrypted to another machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"{what} is {url!r}, must be https://host/…")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InvalidRequestError(f"{what} must be https, except on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
