"""The simulation (``kraft.simulation``) at work: its seeds in CI, planted faults, disks crashed."""
