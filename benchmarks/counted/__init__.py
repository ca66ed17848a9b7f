"""Workloads ("works") whose instructions are counted: the cost of a change without machine noise.

Every work is small (50,000 partitions), runs once under callgrind, and produces the same number
each time: its input and hashes are seeded, the garbage collector is off, and valgrind determines
the memory layout and emulates the same processor on every machine. The core is compiled separately
for that processor (``-march=x86-64-v3``), so that code for AVX2 is counted too. Two toolchains
still produce different counts: compiler, libraries and interpreter are recorded as the machine of
the result.

``work``       a work, and the table of all works
``works``      the works: those of the ``core``, of ``deciding``, of the ``quorum``
``toolchain``  the environment of the counts, and the copy of the core that is counted
``callgrind``  a process under valgrind that starts and stops counting
``process``    the counted process itself: each work in its own fork
``suite``      the works as a pytest-benchmark suite: instructions and times
``check``      whether, and how closely, a result can be compared with a baseline

Instructions are not time: a cache miss costs hundreds of cycles and counts as one instruction, and
the kernel's part of a work is not counted. They show reliably whether a work does more than before.
"""
