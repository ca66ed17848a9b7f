"""Publish a comment: on a pull request and as a check at GitHub, and to a webhook.

`Publication.requests` are the requests, for a dry run; `publish` sends them. The text is the
Markdown that `regression.markdown` wrote. A comment of an earlier run is replaced: a hidden mark in
it names it. Nothing is sent twice and nothing is retried: an error says which request failed.

The interface is GitHub's REST API of version 2022-11-28 ("issue comments", "check runs"), also that
of a GitHub Enterprise server.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

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


class PublicationError(KraftError):
    """A server rejected a request, or did not answer; the message names the request."""


class Conclusion(StrEnum):
    """Result of a check."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


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
    publication: Publication, *, token: str | None, webhook_secret: str | None = None
) -> list[str]:
    """Send all requests, and return the addresses of what they made.

    ``token`` is GitHub's. With a ``webhook_secret`` the webhook's body is signed: the header
    ``X-Kraft-Signature-256`` is ``sha256=`` and the HMAC in hex.

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
        is_webhook = publication.webhook is not None and request.url == publication.webhook
        answer = _sent(request, {} if is_webhook else headers, webhook_secret)
        url = answer.get("html_url") if isinstance(answer, dict) else None
        addresses.append(url if isinstance(url, str) else shown_url(request.url))
    return addresses


def _earlier_comment(publication: Publication, headers: dict[str, str]) -> int | None:
    """Return the id of the newest comment with the publication's mark."""
    base = f"{publication.api}/repos/{publication.repository}/issues/{publication.pull}/comments"
    found = None
    for page in range(1, _MOST_PAGES + 1):
        url = f"{base}?per_page={_PAGE}&page={page}"
        comments = _sent(PublishedRequest("GET", url), headers, None)
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


def _sent(request: PublishedRequest, headers: dict[str, str], secret: str | None) -> Any:
    """Send a request and return its JSON answer, None for any other answer."""
    name = f"{request.method} {shown_url(request.url)}"
    data = None if request.body is None else json.dumps(request.body).encode()
    sent = dict(headers) | {"User-Agent": "kraft", "Content-Type": "application/json"}
    if secret and data is not None and "Authorization" not in sent:
        digest = hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()
        sent["X-Kraft-Signature-256"] = f"sha256={digest}"
    made = urllib.request.Request(request.url, data, sent, method=request.method)
    try:
        with urllib.request.build_opener(_NoRedirects).open(made, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_MOST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            raise PublicationError(f"{name}: {error.code} {_reason(error)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise PublicationError(f"{name}: {reason}") from None
    try:
        return json.loads(body)
    except ValueError:
        return None


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
