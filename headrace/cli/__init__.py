"""The command line: one small file for each command. Heavy imports happen inside the commands."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from headrace.cli import contract, lab
from headrace.cli.alerts import alerts
from headrace.cli.audit import audit
from headrace.cli.check import check
from headrace.cli.demo import demo
from headrace.cli.down import down
from headrace.cli.explain import explain
from headrace.cli.health import health
from headrace.cli.init import init
from headrace.cli.lag import lag
from headrace.cli.monitoring import monitoring
from headrace.cli.run import run
from headrace.cli.serve import serve
from headrace.cli.simulate import simulate
from headrace.cli.status import status
from headrace.cli.traffic import traffic
from headrace.cli.up import up
from headrace.errors import HeadraceError
from headrace.settings_reference import help_lines


def settings_help() -> str:
    """Every setting, under the help of the command that reads them all."""
    head = "Settings, in headrace.toml or as HEADRACE_<NAME> in the environment:"
    return "\n\n".join([head, *(line.replace("[", "\\[") for line in help_lines())])


app = typer.Typer(
    name="headrace",
    help="Kafka topics as live tables and streams, with every event accounted for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# In the order of a working day: --help lists them so.
app.command()(init)
app.command()(check)
app.command(epilog=settings_help())(up)
app.command()(run)
app.command()(serve)
app.command()(status)
app.command()(lag)
app.command()(health)
app.command()(demo)
app.command()(traffic)
app.command()(simulate)
app.command()(audit)
app.command()(explain)
app.command()(alerts)
app.command()(monitoring)
app.command()(down)
app.add_typer(contract.app, name="contract")
app.add_typer(lab.app, name="lab")


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=lambda asked: _show_version(asked), help="Show the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; an error that a user can meet is one message and an exit code, never a trace."""
    try:
        app(prog_name="headrace")
    except HeadraceError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        _complain(
            f"{type(error).__name__}: {error}\n  → this is a defect; HEADRACE_DEBUG=1 shows where it happened"
        )
        sys.exit(70)


def _complain(message: str) -> None:
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    print(f"\033[1;31merror:\033[0m {message}" if colour else f"error: {message}", file=sys.stderr)


def _show_version(asked: bool) -> None:
    if asked:
        try:
            print(f"headrace {version('headrace')}")
        except PackageNotFoundError:
            print("headrace (not installed)")
        raise typer.Exit()
