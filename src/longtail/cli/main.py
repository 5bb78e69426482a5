"""`longtail`: the commands, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from longtail.cli import failures
from longtail.cli.compare import compare
from longtail.cli.data import data
from longtail.cli.doctor import doctor
from longtail.cli.evaluate import evaluate
from longtail.cli.failures import Session
from longtail.cli.features import features
from longtail.cli.figure import figure
from longtail.cli.predict import predict
from longtail.cli.recipes import recipes
from longtail.cli.report import report
from longtail.cli.retrain import retrain
from longtail.cli.table import table
from longtail.cli.train import train
from longtail.cli.verify import verify

app = typer.Typer(
    name="longtail",
    help="Long-tailed image recognition: train, look, compare.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and the same text everywhere
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train)
app.command("retrain")(retrain)
app.command("eval")(evaluate)
app.command("predict")(predict)
app.add_typer(recipes, name="recipes")
app.add_typer(data, name="data")
app.command("compare")(compare)
app.command("table")(table)
app.command("report")(report)
app.command("figure")(figure)
app.command("features")(features)
app.command("verify")(verify)
app.command("doctor")(doctor)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    context.ensure_object(Session).debug = debug
    if version:
        from importlib.metadata import version as installed

        print(f"longtail {installed('longtail')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; whatever goes wrong is one line on stderr."""
    session, command = Session(), typer.main.get_command(app)
    try:
        # Not command.main(): that would answer signals and broken pipes in its own way.
        with command.make_context("longtail", list(arguments), obj=session) as context:
            command.invoke(context)
        sys.stdout.flush()
    except BaseException as error:  # nothing leaves as a traceback
        return failures.report(error, session, arguments)
    return 0


def run() -> None:
    """The entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show a character gets an escape, not an error
            reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, failures.terminated)
    sys.exit(main(sys.argv[1:]))
