"""The entry point: what goes wrong becomes text on stderr and an exit status."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

import click

from generator.problem import Refused, render


def main() -> None:
    """Run gen-seed: exit status 0 done, 1 refused or failed, 2 wrong usage."""
    # Data is the same bytes in every locale; the name of a file may be no text at all.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.stderr is None:  # closed; no file of ours may come to stand in its place
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status. No traceback reaches the user."""
    from generator.cli import gen_seed

    try:
        # Without its own handling of errors, click returns the status of an early exit.
        status = gen_seed.main(arguments, prog_name="gen-seed", standalone_mode=False)
        # What is still in Python's buffer is written here, where a full disk can be told.
        if sys.stdout is not None:
            sys.stdout.flush()
    except Refused as refused:
        click.echo("\n".join(render(problem) for problem in refused.problems), err=True)
    except click.ClickException as wrong:
        if type(wrong).__name__ == "NoArgsIsHelpError":  # click 8.2; before, it printed the help
            click.echo(wrong.format_message(), err=True)
            return wrong.exit_code
        click.echo(_usage(wrong), err=True)
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader went away; there is nobody to tell, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # What reads and writes files explains itself; this is what prints, to a full device say,
        # or looks whether there is a file at all, in a folder that it may not enter.
        file = f"{error.filename}: " if isinstance(error.filename, str) else ""
        click.echo(f"error: {file}{(error.strerror or 'it failed').lower()}", err=True)
    except Exception as bug:  # noqa: BLE001 - the last line of defence
        import traceback

        # Not the exception's text: it may quote a secret.
        at = traceback.extract_tb(bug.__traceback__)[-1]
        click.echo(
            f"error: gen-seed is broken: {type(bug).__name__} at {at.filename}:{at.lineno}\n"
            "  hint: report this line with the command that you gave",
            err=True,
        )
    else:
        return status if isinstance(status, int) else 0
    return 1


def _usage(wrong: click.ClickException) -> str:
    """Return click's complaint in the form that all our errors have."""
    message = wrong.format_message().rstrip(".")
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    command = context.command_path if context else "gen-seed"
    return f"error: {message[:1].lower()}{message[1:]}\n  hint: see {command} --help"


if __name__ == "__main__":
    main()
