"""Write docs/kafka-tests.md from the recorded outcomes of both back ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kafka_suites.outcomes import (
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    Outcomes,
    SuiteList,
    counts,
    kept_path,
    load,
    read_list,
)

_PROJECT = Path(__file__).resolve().parents[2]
_PAGE = _PROJECT / "docs" / "kafka-tests.md"
_HEAD = """\
# Kafka's own tests

With this page you see which of Apache Kafka {version}'s own integration tests pass with kraft as
the controller. `make kafka-tests` runs them again and fails where a test fails that passed before:

```
make kafka-tests                                        # all classes; takes about two hours
make kafka-tests CLASSES="CreateTopicsRequestTest"      # one of them
make kafka-tests BACKEND=kafka                          # with Kafka's own controller
```

The tests are those of Kafka's published test jars, unchanged. Their brokers and clients are
Kafka's, in the JVM of the test. Only the controller is replaced: the test kits start a class
that runs the controller as a **process of its own** and answers the kits by requests to it. The
same class can start Kafka's own controller as a process; that is the control. A test that also
fails with the control says nothing about kraft.

A test is **not applicable** if it looks inside the controller's JVM: metrics, threads, casts to
Kafka's classes, Java plugins whose static fields the test reads, combined nodes. The reasons are
below. Some tests give the controller a Java authorizer or principal builder whose decisions
settings can make: for kraft the class is replaced by these settings (`Equivalents.java`). Of
AuthorizerIntegrationTest and PlaintextAdminIntegrationTest only the methods that touch the
controller are run; the others test brokers (`methods` in `suites.toml`).

The list (`suites.toml`) has the classes that test what a controller does: its requests, features,
configurations, ACLs, tokens and quotas, TLS and SASL, elections, reassignments, log directories,
and what brokers do with its records. Classes that only create a topic and then test brokers,
producers, consumers or groups are left out, and so are unit tests, which start no controller.

The table shows the last recorded run of each class, in the same set-up with Kafka's own controller
beside it. Classes of `suites.toml` that it does not show have no recorded run.

"""


def write() -> None:
    """Write the page from `results`."""
    kraft, kafka = load(kept_path("kraft")), load(kept_path("kafka"))
    _PAGE.write_text("\n".join([_head(), results(read_list(), kraft, kafka)]))


def results(suites: SuiteList, kraft: Mapping[str, Outcomes], kafka: Mapping[str, Outcomes]) -> str:
    """Return the tables of a page: the classes, what fails, and what is not applicable."""
    return "\n".join(
        [_table(suites, kraft, kafka), _failures(suites, kraft, kafka), _reasons(kraft)]
    )


def _head() -> str:
    from tests.harness.kafka_jars import KAFKA_4

    return _HEAD.format(version=KAFKA_4).rstrip() + "\n"


def _cell(tests: Outcomes | None) -> str:
    if tests is None:
        return "- | - | -"
    of = counts(tests)
    return f"{of[PASSED]} | {of[FAILED]} | {of[NOT_APPLICABLE]}"


def _table(suites: SuiteList, kraft: Mapping[str, Outcomes], kafka: Mapping[str, Outcomes]) -> str:
    lines = [
        "## Results",
        "",
        "| class | kraft: passed | failed | n/a | control: passed | failed | n/a |",
        "|---|---|---|---|---|---|---|",
    ]
    names = [one.simple_name for one in suites.classes if one.simple_name in kraft]
    lines += [f"| {name} | {_cell(kraft[name])} | {_cell(kafka.get(name))} |" for name in names]
    merged = {f"{name} > {test}": one for name in names for test, one in kraft[name].items()}
    control = {
        f"{name} > {test}": one for name in names for test, one in kafka.get(name, {}).items()
    }
    lines.append(f"| **all** | {_cell(merged)} | {_cell(control)} |")
    of = counts(merged)
    applicable = of[PASSED] + of[FAILED]
    share = 100 * of[PASSED] / applicable if applicable else 0
    return "\n".join(
        [*lines, "", f"{of[PASSED]} of {applicable} applicable tests pass: {share:.1f} %.", ""]
    )


def _failures(
    suites: SuiteList, kraft: Mapping[str, Outcomes], kafka: Mapping[str, Outcomes]
) -> str:
    known = suites.known_failures
    lines = ["## What fails", "", "| test | reason | control |", "|---|---|---|"]
    for test_class, tests in sorted(kraft.items()):
        for name, one in sorted(tests.items()):
            if one.outcome == FAILED:
                control = kafka.get(test_class, {}).get(name)
                why = next(
                    (
                        each.reason
                        for each in known
                        if each.test_class == test_class and each.methods.match(name)
                    ),
                    one.reason,
                )
                shown = control.outcome if control else "not run"
                lines.append(f"| {test_class}: {_plain(name)} | {_plain(why)} | {shown} |")
    if len(lines) == 4:
        return "## What fails\n\nNothing.\n"
    return "\n".join([*lines, ""])


def _reasons(kraft: Mapping[str, Outcomes]) -> str:
    by_reason: dict[str, dict[str, int]] = {}
    for test_class, tests in kraft.items():
        for one in tests.values():
            if one.outcome == NOT_APPLICABLE:
                of = by_reason.setdefault(one.reason, {})
                of[test_class] = of.get(test_class, 0) + 1
    lines = ["## What is not applicable", "", "| reason | tests |", "|---|---|"]
    for reason, of in sorted(by_reason.items()):
        where = ", ".join(f"{name} {count}" for name, count in sorted(of.items()))
        lines.append(f"| {_plain(reason)} | {where} |")
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:300]


if __name__ == "__main__":
    write()
