"""``kraft sweep``: one question asked of very many cases."""

from __future__ import annotations

import typer

from kraft.cli.exits import EPILOG
from kraft.cli.sweep_outages import outages
from kraft.cli.sweep_simulate import simulate

app = typer.Typer(
    help="Sweeps: every outage of a cluster, a million simulated histories.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _sweep() -> None:
    """Sweeps over very many cases, on this machine's cores or on Spark."""


app.command("outages", epilog=EPILOG)(outages)
app.command("simulate", epilog=EPILOG)(simulate)
