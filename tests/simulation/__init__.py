"""Tests of the simulation (``kraft.simulation``): seeds in CI, planted faults, crashes of disks."""
