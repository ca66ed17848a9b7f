"""Write docs/client-tests.md from the recorded outcomes of both back ends."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from tests.harness.kafka_jars import KAFKA_4, PROJECT
from tests.kafka_suites.outcomes import SuiteList, load, read_list
from tests.kafka_suites.page import results

_HERE = Path(__file__).parent
_PAGE = PROJECT / "docs" / "client-tests.md"
_HEAD = """\
# Clients' own tests

With this page you see which of kafka-python's own integration tests pass with kraft's
[broker](broker.md). `make client-tests` runs them again. It fails where a test fails that passed
before:

```
make client-tests                                  # all files; takes three minutes
make client-tests FILES=test_admin_integration     # one of them
make client-tests BACKEND=kafka                    # with Apache Kafka's broker
```

The tests are those of the source distribution of kafka-python {client}, unchanged; pip fetches it.
Their fixture would start an installed Apache Kafka. `tests/client_suites/broker_fixtures.py`
replaces this fixture: it starts `kraft server start`, as one process that is controller and broker,
with plain connections, TLS or SASL as the test wants them. The control is Apache Kafka {kafka} with
the same settings. CI runs a part of the tests.

A test is **not applicable** if it needs transactions, which kraft's broker does not have, or if it
skips itself for this release of Kafka.

"""


def write() -> None:
    """Write the page from `results`."""
    head = _HEAD.format(client=version("kafka-python"), kafka=KAFKA_4)
    kraft, kafka = load(kept_path("kraft")), load(kept_path("kafka"))
    _PAGE.write_text(head + results(read_suites(), kraft, kafka))


def read_suites() -> SuiteList:
    """Read `suites.toml`: the test files are its classes."""
    return read_list(_HERE / "suites.toml")


def kept_path(backend: str) -> Path:
    """Return the path of the outcomes of the last recorded run."""
    return _HERE / "results" / f"{backend}.json"


if __name__ == "__main__":
    write()
