"""The command group, and which exit code an error becomes."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from dask_nlis import __version__
from dask_nlis.cli.demo import demo
from dask_nlis.cli.ingest import ingest
from dask_nlis.cli.inspect import inspect
from dask_nlis.cli.plan import plan
from dask_nlis.cli.report import report
from dask_nlis.cli.run import run
from dask_nlis.cli.words import command_of, in_shell, usage
from dask_nlis.errors import (
    InputError,
    InputTypeError,
    MissingDataError,
    NlisWarning,
    StoreExistsError,
    StoreLockedError,
)

EXIT_FAILED, EXIT_REFUSED, EXIT_LOCKED, EXIT_INTERRUPTED = 1, 2, 75, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dask-nlis")
def group() -> None:
    """Draw the rows that matter to a nonlinear model, and fit on them.

    \b
    Examples:
      dask-nlis demo                      the whole job on built-in data, in a temporary folder
      dask-nlis demo --folder try --seed 7
      dask-nlis ingest taxi.csv --target fare --out taxi.zarr                 a table becomes a store
      dask-nlis plan taxi.zarr --y y --model single-index --activation tanh   what a run would take
      dask-nlis run taxi.zarr --y y --model single-index --activation tanh --size 5000 --store run.zarr --resume
      dask-nlis inspect run.zarr          how far it has come
      dask-nlis report run.zarr -o report.html                                what came of it, as a page
    \b
    Exit codes: 0 done; 1 failed, a retry may help; 2 usage or data refused, a retry cannot help;
    3 finished, but a --require does not hold; 75 the store is being written by another process; 130 interrupted.
    """


group.add_command(demo)
group.add_command(plan)
group.add_command(run)
group.add_command(inspect)
group.add_command(ingest)
group.add_command(report)


def _remedy(arguments: Sequence[str] | None) -> str:
    words = sys.argv[1:] if arguments is None else arguments
    return "; the same command with --resume goes on" if words and words[0] == "run" else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code of the outcome; errors are one line on standard error."""
    shown = warnings.showwarning
    words = sys.argv[1:] if arguments is None else arguments

    def said(message: object) -> str:
        return in_shell(str(message), command_of(group, words))

    def one_line(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, NlisWarning):
            click.echo(f"dask-nlis: warning: {said(message)}", err=True)
        else:
            shown(message, category, *where, **more)

    try:
        warnings.showwarning = one_line
        code = group.main(
            args=None if arguments is None else list(arguments), prog_name="dask-nlis", standalone_mode=False
        )
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and not isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(f"dask-nlis: {usage(error)}", err=True)
        else:
            error.show()
        sys.exit(EXIT_REFUSED)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"dask-nlis: interrupted{_remedy(arguments)}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (InputError, InputTypeError, MissingDataError, StoreExistsError, PermissionError) as error:
        click.echo(f"dask-nlis: {said(error)}", err=True)
        sys.exit(EXIT_REFUSED)
    except StoreLockedError as error:
        click.echo(f"dask-nlis: {said(error)}", err=True)
        sys.exit(EXIT_LOCKED)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        click.echo(f"dask-nlis: {type(error).__name__}: {said(first)}", err=True)
        sys.exit(EXIT_FAILED)
    finally:
        warnings.showwarning = shown
    sys.exit(code if isinstance(code, int) else 0)  # of ctx.exit
