"""CRC-32C, from the ``crc32c`` package's compiled module.

The package's ``__init__`` also imports ``importlib.metadata``, ``argparse`` and its command line,
which would take half of kraft's import time. So only the compiled module is loaded. Where the
package has another layout, it is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path


def _load() -> Callable[..., int]:
    package = find_spec("crc32c")
    for folder in (package and package.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder, "_crc32c" + suffix)
            if path.exists():
                loader = ExtensionFileLoader("crc32c._crc32c", str(path))
                spec = spec_from_loader(loader.name, loader)
                assert spec is not None
                module = module_from_spec(spec)
                loader.exec_module(module)
                loaded: Callable[..., int] = module.crc32c
                return loaded
    from crc32c import crc32c as imported

    return imported


#: ``crc32c(data, value=0) -> int``: the checksum of a buffer, continuing from ``value``.
crc32c = _load()
