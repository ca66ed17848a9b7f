"""Options that several commands share as a group: a dataclass with one option a field.

    @app.command()
    @takes_groups
    def list_acls(resources: AclResources, source: SourceOptions, as_json: JsonOption) -> None:

Typer knows only single parameters. `takes_groups` shows it the fields in place of the group, and
calls the command with the group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its groups.

    A group is a dataclass whose fields are annotated as Typer's parameters.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        group: Any = parameter.annotation
        if is_dataclass(group):
            fields = _options_of(group)
            groups[parameter.name] = group, [each.name for each in fields]
            parameters += fields
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def expanded(**given: Any) -> None:
        for name, (make, options) in groups.items():
            given[name] = make(**{option: given.pop(option) for option in options})
        command(**given)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return expanded


def _options_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        field.replace(annotation=hints[field.name], kind=Parameter.KEYWORD_ONLY)
        for field in inspect.signature(group).parameters.values()
    ]
