"""``kraft sweep``: evaluate every outage of a cluster, or simulate very many clusters."""

from __future__ import annotations

import typer

from kraft.cli.exit_codes import EPILOG
from kraft.cli.sweep_outages import outages
from kraft.cli.sweep_simulate import simulate

app = typer.Typer(
    help="Evaluate every outage of a cluster, or simulate very many clusters.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _sweep() -> None:
    """Evaluate every outage of a cluster, or simulate very many clusters."""


app.command("outages", epilog=EPILOG)(outages)
app.command("simulate", epilog=EPILOG)(simulate)
