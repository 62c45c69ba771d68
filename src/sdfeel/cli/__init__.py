"""The command line, thin: it parses, calls and prints; users' mistakes end with status 2."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from typing import Any

import typer

from sdfeel.cli.bench import app as bench_app
from sdfeel.cli.bound import bound
from sdfeel.cli.clock import clock
from sdfeel.cli.compare import compare
from sdfeel.cli.data import app as data_app
from sdfeel.cli.deploy import client, edge, export, launch, rollback, status
from sdfeel.cli.devices import devices
from sdfeel.cli.output import say
from sdfeel.cli.plan import constants, plan
from sdfeel.cli.plot import plot
from sdfeel.cli.provision import app as provision_app
from sdfeel.cli.ranks import end_with_parent, explain
from sdfeel.cli.reproduce import reproduce
from sdfeel.cli.run import Stopped, run
from sdfeel.cli.topology import topology
from sdfeel.cli.verify import verify
from sdfeel.cli.watch import watch
from sdfeel.errors import InputError, SdfeelError

__all__ = ["app", "main"]

# Torch's threads wait asleep instead of spinning: on a busy machine that is up to ten times faster
# for models as small as ours. Read when torch is first imported, which no command has done yet.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    name="sdfeel",
    help="Semi-decentralized federated edge learning: simulate it, plan it, run it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = {
    "Simulate": (run, compare, plot, watch, devices),
    "Understand and plan": (topology, clock, bound, constants, plan, reproduce, verify),
    "Deploy": (edge, client, launch, status, export, rollback),
}
app.add_typer(provision_app, name="provision", rich_help_panel="Deploy")
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data_app, name="data", rich_help_panel="Simulate")
app.add_typer(bench_app, name="bench", rich_help_panel="Simulate")

# Mistakes in how a command is called. Typer carries its own copy of click in newer versions, so
# its class is found by a name that typer exports.
UsageMistake: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        print(importlib.import_module("sdfeel").__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; the status says whose mistake it was: 2 the user's, 1 the run's."""
    warnings.showwarning = _note
    end_with_parent()
    try:
        code = app(prog_name="sdfeel", standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except UsageMistake as problem:
        if problem.format_message():  # without one, help was printed
            say(f"error: {_usage(problem)}", style="red")
        code = 2
    except Stopped as stopped:
        if stopped.says:
            say(str(stopped))
        code = 128 + stopped.signal
    except SdfeelError as problem:
        explain(problem)
        code = 2 if isinstance(problem, InputError) else 1
    except (KeyboardInterrupt, typer.Abort) as stop:
        say(f"stopped {stop}".rstrip())
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        sys.stderr.close()  # the reader (`| head`) went away: nothing to say, and nobody to
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _usage(problem: Any) -> str:
    """Write a mistake of typer's as ours are: small letters, no full stop, then where to look."""
    message = str(problem.format_message()).rstrip(".")
    words = message[:1].lower() + message[1:]
    words = words.replace(". Did you", "; did you").replace(" Did you", "; did you").rstrip("?")
    context = getattr(problem, "ctx", None)
    path = ["sdfeel", *context.command_path.split()[1:]] if context else ["sdfeel"]
    if path[1:2] == ["-m"]:
        path = ["sdfeel", *path[3:]]
    return f"{words}; see `{' '.join(path)} --help`"


_noted: set[str] = set()


def _note(message: Warning | str, *_: object, **__: object) -> None:
    """Warnings are for people here: what they say, once, without the line of code."""
    if str(message) not in _noted and os.environ.get("RANK", "0") == "0":
        _noted.add(str(message))
        say(f"note: {message}", style="yellow")
