"""Messages of the library in the words of the shell: an argument of a call becomes the option that stands for it."""

import re
from collections.abc import Mapping, Sequence

import click

#: What the library calls otherwise than the options do.
_ARGUMENTS = {"sample_weight": "weight", "X": "x"}

#: Remedies that only a program can follow, and what they are in a shell.
_REMEDIES = {
    "open_run() reads the finished run there, ": "",
    "leave it out if they are names of rows": "leave it out (exclude) if they are names of rows",
    "give an array of shape (n,)": "give --y",
    "y is None, but": "--y is missing, but",
    "give y, or": "give --y, or",
}


def in_shell(message: str, command: click.Command | None) -> str:
    """Return the message with the options of the command in place of arguments: ``missing='drop'`` as ``--missing 'drop'``.

    Examples
    --------
    >>> command = click.Command("run", params=[click.Option(["--block-bytes"]), click.Option(["--resume"], is_flag=True)])
    >>> in_shell("chunks are large; give block_bytes=64,000,000, or resume=True", command)
    'chunks are large; give --block-bytes 64000000, or --resume'
    """
    options = {} if command is None else _options(command)
    if not options:
        return message
    for said, instead in _REMEDIES.items():
        message = message.replace(said, instead)
    names = "|".join(sorted(options, key=len, reverse=True))
    message = re.sub(rf"\b(?:in|among|larger|smaller) ({names})\b", lambda found: _named(found, options), message)
    message = re.sub(rf"\(({names})\)", lambda found: f"({options[found[1]]})", message)
    message = re.sub(rf"^({names})(?=: )", lambda found: options[found[1]], message)
    return re.sub(
        rf"(?<![\w.-])({names})=(True\b|[\d,]*\d|(?=['\"\[]))?", lambda found: _given(found, options), message
    )


def _options(command: click.Command) -> dict[str, str]:
    """The options of a command by the names of the library's arguments."""
    known = {each.name: each.opts[0] for each in command.params if isinstance(each, click.Option) and each.name}
    return known | {argument: known[name] for argument, name in _ARGUMENTS.items() if name in known}


def _named(found: re.Match[str], options: Mapping[str, str]) -> str:
    return f"{found[0][: found.start(1) - found.start()]}{options[found[1]]}"


def _given(found: re.Match[str], options: Mapping[str, str]) -> str:
    """``--resume`` for ``resume=True``, ``--size 100`` for ``size=100``, ``--out `` before a value in quotes."""
    option, value = options[found[1]], found[2]
    if value is None or value == "True":
        return option
    return f"{option} {value.replace(',', '')}"


def usage(error: click.UsageError) -> str:
    """Return a mistake in the words of a command as one line, with where to look.

    Examples
    --------
    >>> usage(click.UsageError("Missing option '--out'.", click.Context(click.Command("ingest"), info_name="ingest")))
    "Missing option '--out'; see ingest --help"
    """
    where = "dask-nlis" if error.ctx is None else error.ctx.command_path
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{said}{'' if said.endswith('?') else ';'} see {where} --help"


def command_of(group: click.Group, words: Sequence[str]) -> click.Command | None:
    """The command that the words call, if any."""
    return group.commands.get(next((word for word in words if not word.startswith("-")), ""))
