"""Counted instructions are those of the measured call alone."""

from tests.counting import instructions_of


class Left:
    """An object in a reference cycle, with a finalizer that takes many instructions."""

    finalized = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Left.finalized += sum(1 for _ in range(100))


def allocate() -> None:
    assert len([[number] for number in range(20_000)]) == 20_000


def test_finalizers_of_other_tests_garbage_are_not_counted() -> None:
    alone = instructions_of(allocate)
    for _ in range(300):
        Left()
    assert instructions_of(allocate) == alone
