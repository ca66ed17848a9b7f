"""The counted works, one module per subject; importing this package fills `WORKS`."""

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.counted.work import WORKS

__all__ = ["WORKS"]

for _found in iter_modules(__path__, f"{__name__}."):
    import_module(_found.name)
