"""``kraft users``: the SCRAM credentials of users, as ``kafka-configs --entity-type users`` does.

The client salts a password itself: neither the request nor the metadata contains it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import QuorumOptions
from kraft.cli.config_values import read_changes
from kraft.cli.exit_codes import EPILOG
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft.admin import ScramMechanismType, ScramUpsertion

app = typer.Typer(
    help="Describe and change the SCRAM credentials of users.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]{1,9}),)?password=(.+)", re.DOTALL)


@app.callback()
def _users() -> None:
    """Describe and change the SCRAM credentials of users."""


@app.command(epilog=EPILOG)
@takes_groups
def describe(
    source: SourceOptions,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user", metavar="NAME", help="Only this user. Repeatable.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the mechanisms of users with the iterations of each; salts and keys are never printed.

    Exit code 1 if a named user has no credential.

    [bold]Examples[/bold]

      kraft users describe --bootstrap-controller localhost:9093

      kraft users describe --user alice --from /var/lib/kafka/metadata
    """
    from kraft.cli.output import Output
    from kraft.errors import ResourceNotFoundError

    found = _read(user, source)
    missing = [name for name in user or () if name not in found]
    if as_json:
        document = [
            {
                "user": name,
                "credentials": [
                    {"mechanism": mechanism, "iterations": iterations}
                    for mechanism, iterations in found[name].items()
                ],
            }
            for name in sorted(found)
        ]
        Output(as_json=True).document(document)
    else:
        for name in sorted(found):
            text = ", ".join(
                f"{mechanism}=iterations={iterations}"
                for mechanism, iterations in found[name].items()
            )
            print(f"SCRAM credential configs for user-principal '{name}' are {text}")
    if missing:
        raise ResourceNotFoundError(f"no SCRAM credential: {', '.join(missing)}")


@app.command(epilog=EPILOG)
@takes_groups
def alter(
    quorum: QuorumOptions,
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="The user.", show_default=False)
    ],
    add_config: Annotated[
        str | None,
        typer.Option(
            "--add-config",
            metavar="M=[…],…",
            help="Set a password: SCRAM-SHA-256=\\[iterations=8192,password=secret], or "
            "SCRAM-SHA-512; the default of iterations is 4096.",
            show_default=False,
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            help="Set the passwords of this .properties file, as SCRAM-SHA-256=password=secret. "
            "Other users of the machine cannot see them, as they can an option.",
            show_default=False,
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="M,…",
            help="Remove the credential of this mechanism. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set and remove the SCRAM credentials of one user.

    [bold]Examples[/bold]

      kraft users alter --user alice --add-config 'SCRAM-SHA-512=\\[password=secret]' --bootstrap-controller localhost:9093

      kraft users alter --user alice --delete-config SCRAM-SHA-512 --bootstrap-controller localhost:9093
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.admin import ScramDeletion
    from kraft.cli.output import Output

    added, deleted = read_changes(add_config, add_config_file, delete_config)
    changes: list[Any] = [ScramDeletion(user, _mechanism(name)) for name in deleted]
    changes += [_upsertion(user, name, value) for name, value in added.items()]
    with quorum.open() as admin:
        admin.alter_user_scram_credentials(changes).all()
    if as_json:
        document = {"user": user, "added": sorted(added), "deleted": sorted(deleted)}
        Output(as_json=True).document(document)
        return
    print(f"Completed updating config for user {user}.")


def _read(users: list[str] | None, source: SourceOptions) -> Mapping[str, Mapping[str, int]]:
    """Return the iterations by user and mechanism."""
    from kraft.errors import RESOURCE_NOT_FOUND
    from kraft.security.sasl.scram import SCRAM_MECHANISMS_BY_NUMBER

    quorum = source.quorum()
    found: dict[str, dict[str, int]] = {}
    if quorum is None:
        credentials = source.read_directory().scram_credentials
        for (number, name), credential in sorted(credentials.items()):
            if not users or name in users:
                mechanism = SCRAM_MECHANISMS_BY_NUMBER[number].name
                found.setdefault(name, {})[mechanism] = credential.iterations
        return found
    with quorum.open() as admin:
        described = admin.describe_user_scram_credentials(users or None)
    for name, result in described.items():
        if result.error is not None and result.error.kafka_code == RESOURCE_NOT_FOUND:
            continue
        found[name] = {
            SCRAM_MECHANISMS_BY_NUMBER[number].name: iterations
            for number, iterations in sorted(result.get().iterations.items())
        }
    return found


def _mechanism(name: str) -> ScramMechanismType:
    from kraft.admin import ScramMechanismType

    try:
        return ScramMechanismType[name.replace("-", "_")]
    except KeyError:
        raise typer.BadParameter(
            f"{name!r:.40} is no SCRAM mechanism: expected SCRAM-SHA-256 or SCRAM-SHA-512; quotas "
            "of a user are set by `kraft quotas alter`"
        ) from None


def _upsertion(user: str, name: str, value: str) -> ScramUpsertion:
    """Return the change for ``[iterations=8192,]password=secret``; raises a usage error."""
    from kraft.admin.scram import DEFAULT_ITERATIONS, scram_upsertion
    from kraft.errors import InvalidArgumentError

    mechanism = _mechanism(name)
    match = _CREDENTIAL.fullmatch(value)
    if match is None:
        raise typer.BadParameter(
            f"--add-config: the value of {name} is not of the form "
            "[iterations=N,password=P] or [password=P]"
        )
    iterations = DEFAULT_ITERATIONS
    if match[1] not in (None, "-1"):
        iterations = int(match[1])
    try:
        return scram_upsertion(user, mechanism, match[2], iterations)
    except InvalidArgumentError as error:
        raise typer.BadParameter(f"--add-config: {name}: {error}") from error
