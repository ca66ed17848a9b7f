"""Parsing the values of ``sasl.jaas.config``."""

from __future__ import annotations

import pytest

from kraft.errors import InvalidConfigError
from kraft.security.sasl.jaas import PLAIN_LOGIN_MODULE, parse_jaas, parse_jaas_of_listener


def test_a_line_names_the_users_of_plain() -> None:
    module = parse_jaas_of_listener(
        f'{PLAIN_LOGIN_MODULE} required\n  username="admin" password="a;b" // comment\n'
        '  user_admin=\'it"s\' user_=empty /* user_x=y */ user_b="q\\"\\t\\101";'
    )
    assert module.name == PLAIN_LOGIN_MODULE
    assert module.options["password"] == "a;b"
    assert module.users == {"admin": 'it"s', "": "empty", "b": 'q"\tA'}
    assert "a;b" not in repr(module)


def test_several_modules_are_for_files_only() -> None:
    text = "a.B required x=y; a.C optional;"
    assert [module.name for module in parse_jaas(text)] == ["a.B", "a.C"]
    with pytest.raises(InvalidConfigError, match="2 login modules"):
        parse_jaas_of_listener(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", ";", "a.B", "a.B;", "a.B sometimes;", "a.B required", "a.B required x;"),
        *(
            "a.B required x=;",
            "a.B required x=y",
            "a.B required =y;",
            "= required;",
            "/ a.B required;",
        ),
        *('a.B required password="secret" x', "a.B required x=1;", "a.B required #=y;"),
    ],
)
def test_a_malformed_line_is_rejected_without_its_values(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"sasl\.jaas\.config") as error:
        parse_jaas(text)
    assert "secret" not in str(error.value)
