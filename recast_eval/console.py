"""What both command lines share: verbs from files, exit statuses, progress."""

import logging
import os
import pkgutil
import sys
from importlib import import_module
from types import ModuleType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recast_eval.errors import RecastError


def build_app(package: ModuleType, help_text: str) -> typer.Typer:
    """Make a command of each module of ``package``: its function (or Typer) of the same name."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=help_text)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):
            continue
        command = getattr(import_module(f"{package.__name__}.{module.name}"), module.name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=module.name)
        else:
            app.command(name=module.name.replace("_", "-"))(command)
    return app


def run_app(app: typer.Typer) -> None:
    """Run; errors raised on purpose, and the system's, become their message and status 2.

    Ctrl-C gives 130.
    """
    # Notices about optional packages of theirs are no news to a user of ours.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "httpx2"):  # a line a request, which nobody reads
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        app()  # typer itself leaves with 2 on wrong usage and 130 on Ctrl-C
    except RecastError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None
    except OSError as error:  # a path that is no folder, a full disk, a missing permission
        named = error.filename is not None and error.strerror
        said = f"{error.filename}: {error.strerror}" if named else error
        typer.echo(f"error: {said}", err=True)
        raise SystemExit(2) from None


def progress() -> Progress:
    """A progress display on stderr, silent when stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
