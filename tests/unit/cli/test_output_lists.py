"""Lists that are encoded item by item have the text of ``json.dump``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft.cli.output import Output

ITEMS: list[list[Any]] = [[], [1], [{"a": [], "b": {"c": [1, 2]}}, {"d": "x]\ny"}], ["[", "]"]]


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("items", ITEMS)
def test_one_document(
    items: list[Any], is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output(as_json=True)
    output.is_terminal = is_terminal
    head = {"path": "a]b[", "counts": {"x": []}}
    output.document_with_list(head, "found", iter(items))
    expected = json.dumps({**head, "found": items}, indent=2 if is_terminal else None)
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_several_documents(
    count: int, is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output(as_json=True)
    output.is_terminal = is_terminal
    documents = [{"topic": f"[{place}]"} for place in range(count)]
    pairs = zip(documents, ITEMS, strict=False)
    output.documents_with_lists(pairs, "partitions")
    whole = [{**each, "partitions": items} for each, items in zip(documents, ITEMS, strict=False)]
    expected = json.dumps(whole, indent=2 if is_terminal else None)
    assert capsys.readouterr().out == expected + "\n"
