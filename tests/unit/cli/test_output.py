"""``Output``: JSON documents with a list that is written one item at a time."""

from __future__ import annotations

import json

import pytest

from kraft.cli.output import Output

ITEMS = [{"kind": "topic", "key": "a\nb", "values": [1, None, {"x": []}]}, {}, {"é": True}]


@pytest.mark.parametrize("items", [[], ITEMS[:1], ITEMS], ids=len)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_document_with_a_list_has_the_bytes_of_the_whole_document(
    items: list[object], is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"a": {"path": "x"}, "counts": {"list": 1}}
    output = Output(as_json=True)
    output.is_terminal = is_terminal
    output.document({**head, "list": items})
    expected = capsys.readouterr().out
    output.document_with_list(head, "list", iter(items))
    assert capsys.readouterr().out == expected
    assert json.loads(expected)["list"] == items
