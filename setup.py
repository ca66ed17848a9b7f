"""Builds the compiled core: one extension for each ``kraft/_core/*.pyx``.

Environment switches (all optional):

``KRAFT_DEBUG=1``      bounds checks, line tracing, no optimisation
``KRAFT_SANITIZE=1``   address and undefined-behaviour sanitizers, whose reports end the process;
                       with ``CC=clang`` also coverage for a fuzzer, as ``make fuzz`` wants it
``KRAFT_PORTABLE=1``   no ``-march=native``: for wheels that travel to other machines
``KRAFT_MODULES=a,b``  build only these modules of the core
"""

import os
import sys
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

CORE = Path("kraft/_core")


def switched_on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


DEBUG = switched_on("KRAFT_DEBUG")
SANITIZE = switched_on("KRAFT_SANITIZE")
FUZZ = SANITIZE and "clang" in os.environ.get("CC", "")

compile_args = ["-std=c11", "-Wall", "-Wno-unused-function", "-Wno-unreachable-code"]
link_args: list[str] = []
macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if DEBUG:
    compile_args += ["-O0", "-g"]
    macros += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
elif SANITIZE:
    # A fuzzer runs long; tests end before -O1 has taken twice the time of -O0 to compile.
    compile_args += ["-O1" if FUZZ else "-O0", "-g1"]
else:
    compile_args += ["-O3", "-fno-semantic-interposition"]
    if not switched_on("KRAFT_PORTABLE"):
        compile_args += ["-march=native"]
if SANITIZE:
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    if FUZZ:
        sanitizers += ["-fsanitize=fuzzer-no-link"]
    compile_args += [*sanitizers, "-fno-omit-frame-pointer"]
    link_args += sanitizers

chosen = {name for name in os.environ.get("KRAFT_MODULES", "").split(",") if name}
extensions = [
    Extension(
        f"kraft._core.{source.stem}",
        [str(source)],
        include_dirs=[numpy.get_include()],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for source in sorted(CORE.glob("*.pyx"))
    if not chosen or source.stem in chosen
]

setup(
    ext_modules=cythonize(
        extensions,
        nthreads=os.cpu_count() or 1,
        quiet=True,
        # `build_ext --force` is how a build of another kind takes the place of this one.
        force="--force" in sys.argv,
        compiler_directives={
            "language_level": "3",
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": not DEBUG,
            "linetrace": DEBUG,
            "embedsignature": True,
            "freethreading_compatible": False,
        },
    )
)
