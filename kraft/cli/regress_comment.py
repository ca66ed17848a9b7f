"""``kraft regress comment``: publish a report at a pull request, as a check, or to a webhook."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.regression.publication import WebhookDelivery

EPILOG = (
    "[bold]Exit codes[/bold]: 0 shown, or sent · 1 a server rejected a request (stderr says why) · "
    "2 bad input or wrong usage · 130 Ctrl-C"
)


@dataclass(frozen=True)
class WebhookOptions:
    """A webhook, and how patiently it is called."""

    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Post the result as JSON to this address, signed with the environment's "
            "KRAFT_WEBHOOK_SECRET if it is set.",
            show_default=False,
        ),
    ] = None
    webhook_timeout_s: Annotated[
        float,
        typer.Option(
            "--webhook-timeout-s",
            metavar="SECONDS",
            help="Give up a call of the webhook when it does not answer for this long.",
        ),
    ] = 30.0
    webhook_retries: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Call the webhook again at most this often if it does not answer, or answers "
            "that it is busy (408, 425, 429) or broken (500, 502, 503, 504); 10 at most.",
        ),
    ] = 2
    webhook_wait_s: Annotated[
        float,
        typer.Option(
            "--webhook-wait-s",
            metavar="SECONDS",
            help="Wait this long before the first retry, or as long as the answer's Retry-After "
            "says, and twice as long before each next one; 60 s at most.",
        ),
    ] = 1.0

    @property
    def delivery(self) -> WebhookDelivery:
        from kraft.regression.publication import WebhookDelivery

        return WebhookDelivery(self.webhook_timeout_s, self.webhook_retries, self.webhook_wait_s)


@takes_groups
def comment(
    *,
    markdown: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The text, as kraft regress --markdown or compare --markdown wrote it.",
            show_default=False,
        ),
    ],
    repo: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="The repository at GitHub. Default: the environment's GITHUB_REPOSITORY.",
            show_default=False,
        ),
    ] = None,
    pull: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="Comment on this pull request; an earlier comment is replaced.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="Make a check of this commit (its full hash).",
            show_default=False,
        ),
    ] = None,
    hook: WebhookOptions,
    conclusion: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The conclusion of the check: success, failure, neutral. Default: that of the "
            "text's title.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Name the check, and distinguish comments of several suites."
        ),
    ] = "benchmarks",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; print the requests. The default.")
    ] = False,
    send: Annotated[bool, typer.Option("--send", help="Send the requests.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a report: a comment on a pull request, a check of a commit, a webhook.

    Nothing is sent without --send. The token is the environment's GITHUB_TOKEN; it needs write access to pull requests and checks. GITHUB_API_URL names another server than GitHub's own.

    [bold]Examples[/bold]

      kraft regress comment comment.md --repo owner/name --pull 12 --dry-run

      kraft regress comment comment.md --pull 12 --check 3f2a9c1d… --send

      kraft regress comment comment.md --webhook https://hooks.example.org/T0/B1 --webhook-retries 5 --send
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output
    from kraft.cli.regress_options import refusing_bad_input
    from kraft.errors import InvalidRequestError
    from kraft.regression import publication

    output = Output(as_json=as_json)
    with refusing_bad_input():
        if dry_run and send:
            raise InvalidRequestError("--dry-run and --send exclude each other")
        results = [each.value for each in publication.Conclusion]
        if conclusion is not None and conclusion not in results:
            raise InvalidRequestError(
                f"the conclusion is {conclusion!r}, must be one of {', '.join(results)}"
            )
        try:
            text = markdown.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"{markdown}: not UTF-8 text: {error}") from None
        made = publication.Publication(
            markdown=text,
            conclusion=publication.conclusion_of(text)
            if conclusion is None
            else publication.Conclusion(conclusion),
            repository=repo or os.environ.get("GITHUB_REPOSITORY"),
            pull=pull,
            commit=check,
            webhook=hook.webhook,
            name=name,
            api=os.environ.get("GITHUB_API_URL", publication.GITHUB_API).rstrip("/"),
        )
        delivery = hook.delivery
        if send and (pull or check) and not os.environ.get("GITHUB_TOKEN"):
            raise InvalidRequestError("GitHub needs a token: set the environment's GITHUB_TOKEN")
    if send:

        def report(error: publication.PublicationError, wait_s: float, retry: int) -> None:
            output.note(f"{error}; retry {retry} of {delivery.retries} in {wait_s:g} s")

        addresses = publication.publish(
            made,
            token=os.environ.get("GITHUB_TOKEN"),
            webhook_secret=os.environ.get("KRAFT_WEBHOOK_SECRET"),
            delivery=delivery,
            on_retry=report,
        )
        if as_json:
            output.document({"sent": True, "addresses": addresses})
        for address in addresses:
            output.note(f"sent: {address}")
        return
    requests = made.requests()
    if as_json:
        output.document(
            {
                "sent": False,
                "requests": [
                    {
                        "method": each.method,
                        "url": publication.shown_url(each.url),
                        "body": each.body,
                    }
                    for each in requests
                ],
            }
        )
        return
    output.note("nothing is sent without --send; a comment that is there already is replaced")
    for each in requests:
        lines = [f"{each.method} {publication.shown_url(each.url)}"]
        for key, value in (each.body or {}).items():
            lines.append(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")
        for line in lines:
            output.console.print(line, markup=False, highlight=False, soft_wrap=True)
