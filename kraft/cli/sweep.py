"""``kraft sweep``: every outage of a cluster, many simulated clusters, many runs of the fleet."""

from __future__ import annotations

import typer

from kraft.cli.exit_codes import EPILOG
from kraft.cli.sweep_fleet import fleet
from kraft.cli.sweep_outages import outages
from kraft.cli.sweep_simulate import simulate

app = typer.Typer(
    help="Evaluate every outage of a cluster, simulate very many, or run the fleet at many sizes.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _sweep() -> None:
    """Evaluate every outage of a cluster, simulate very many, or run the fleet at many sizes."""


app.command("outages", epilog=EPILOG)(outages)
app.command("simulate", epilog=EPILOG)(simulate)
app.command("fleet", epilog=EPILOG)(fleet)
