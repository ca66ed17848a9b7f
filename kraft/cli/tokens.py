"""``kraft tokens``: create, describe, renew and expire delegation tokens.

Options, columns and texts are those of ``kafka-delegation-tokens`` (4.3.1). The commands that
change tokens need an authenticated connection, by --command-config: SASL, or SSL with a client
certificate. ``describe`` reads the metadata, which does not contain the HMACs.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.exit_codes import EPILOG
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.admin import IssuedToken

app = typer.Typer(
    help="Create, describe, renew and expire delegation tokens.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

_COLUMNS = (
    *("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"),
    *("ISSUEDATE", "EXPIRYDATE", "MAXDATE"),
)

HmacOption = Annotated[
    str,
    typer.Option(
        "--hmac", metavar="BASE64", help="The HMAC of the token, its secret.", show_default=False
    ),
]


@app.callback()
def _tokens() -> None:
    """Create, describe, renew and expire delegation tokens."""


@app.command(epilog=EPILOG)
@takes_groups
def create(
    quorum: QuorumOptions,
    max_life_time_period: Annotated[
        int,
        typer.Option(
            "--max-life-time-period",
            metavar="MS",
            help="How long the token can be renewed, in ms; -1: the controller's "
            "delegation.token.max.lifetime.ms.",
        ),
    ] = -1,
    owner_principal: Annotated[
        str | None,
        typer.Option(
            "--owner-principal",
            metavar="NAME",
            help="The owner, as User:alice. Default: the principal of this connection.",
            show_default=False,
        ),
    ] = None,
    renewer_principal: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer-principal",
            metavar="NAME",
            help="Who may renew the token beside its owner. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it with its HMAC: user name and password of a SCRAM login.

    [bold]Examples[/bold]

      kraft tokens create --renewer-principal User:bob --bootstrap-controller localhost:9093 --command-config client.properties
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    renewers = renewer_principal or []
    with quorum.open() as admin:
        created = admin.create_delegation_token(
            owner=owner_principal, renewers=renewers, max_lifetime_ms=max_life_time_period
        )
    if as_json:
        Output(as_json=True).document(_document(created))
        return
    print(f"Created delegation token with tokenId : {created.token_id}")
    _show([created])


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    quorum: QuorumOptions,
    owner_principal: Annotated[
        list[str] | None,
        typer.Option(
            "--owner-principal",
            metavar="NAME",
            help="Only the tokens that this principal, as User:alice, owns, has requested or may "
            "renew. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the tokens in the metadata of the quorum, which does not contain their HMACs: `-`.

    [bold]Examples[/bold]

      kraft tokens describe --bootstrap-controller localhost:9093 --command-config client.properties
    """
    from kraft.admin import IssuedToken
    from kraft.cli.output import Output

    with quorum.open() as admin:
        found = admin.describe_delegation_token(owner_principal or None)
    tokens = sorted(
        (IssuedToken(token_id, b"", token) for token_id, token in found.items()),
        key=lambda each: (each.token.issue_timestamp_ms, each.token_id),
    )
    if as_json:
        Output(as_json=True).document([_document(each) for each in tokens])
        return
    print(f"Total number of tokens : {len(tokens)}", end="")
    _show(tokens)


@app.command(epilog=EPILOG)
@takes_groups
def renew(
    quorum: QuorumOptions,
    hmac: HmacOption,
    renew_time_period: Annotated[
        int,
        typer.Option(
            "--renew-time-period",
            metavar="MS",
            help="How long the token is valid from now on, in ms; -1: the controller's "
            "delegation.token.expiry.time.ms.",
        ),
    ] = -1,
    as_json: JsonOption = False,
) -> None:
    """Renew a token.

    [bold]Examples[/bold]

      kraft tokens renew --hmac 4vGr…= --bootstrap-controller localhost:9093 --command-config client.properties
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    secret = _hmac(hmac)
    with quorum.open() as admin:
        expiry_ms = admin.renew_delegation_token(secret, renew_time_period)
    if as_json:
        Output(as_json=True).document({"expiryTimestampMs": expiry_ms})
        return
    print(f"Completed renew operation. New expiry date : {_date(expiry_ms)}")


@app.command(epilog=EPILOG)
@takes_groups
def expire(
    quorum: QuorumOptions,
    hmac: HmacOption,
    expiry_time_period: Annotated[
        int,
        typer.Option(
            "--expiry-time-period",
            metavar="MS",
            help="After which time the token expires, in ms; -1: at once.",
        ),
    ] = -1,
    as_json: JsonOption = False,
) -> None:
    """Let a token expire, at once or after a time.

    [bold]Examples[/bold]

      kraft tokens expire --hmac 4vGr…= --bootstrap-controller localhost:9093 --command-config client.properties
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    secret = _hmac(hmac)
    with quorum.open() as admin:
        expiry_ms = admin.expire_delegation_token(secret, expiry_time_period)
    if as_json:
        Output(as_json=True).document({"expiryTimestampMs": expiry_ms})
        return
    print(f"Completed expire operation. New expiry date : {_date(expiry_ms)}")


def _hmac(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise typer.BadParameter("--hmac is not in base64") from None


def _show(tokens: Iterable[IssuedToken]) -> None:
    """Print the table of Kafka's tool, which has an empty line before each row."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for each in tokens:
        token = each.token
        rows.append(
            (
                each.token_id,
                base64.b64encode(each.hmac).decode() or "-",
                token.owner,
                token.requester,
                f"[{', '.join(token.renewers)}]",
                _date(token.issue_timestamp_ms),
                _date(token.expiration_timestamp_ms),
                _date(token.max_timestamp_ms),
            )
        )
    widths = (15, 30, 15, 15, 25, 15, 15, 15)
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("\n" + " ".join(cells).rstrip())


def _date(timestamp_ms: int) -> str:
    """Return the local time to the minute, as Kafka's tool prints it."""
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(timestamp_ms / 1000))


def _document(issued: IssuedToken) -> dict[str, Any]:
    token = issued.token
    return {
        "tokenId": issued.token_id,
        "hmac": base64.b64encode(issued.hmac).decode() or None,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestampMs": token.issue_timestamp_ms,
        "expiryTimestampMs": token.expiration_timestamp_ms,
        "maxTimestampMs": token.max_timestamp_ms,
    }
