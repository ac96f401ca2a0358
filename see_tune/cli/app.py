"""`see-tune`: the commands, and the one place where an error becomes a message and an exit code.

0 done; 1 the run failed; 2 the input is wrong; 130 interrupted.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import TyperException

from see_tune.cli import (
    best,
    compare,
    datasets,
    doctor,
    evaluate,
    export,
    index,
    report,
    run,
    studies,
    submit,
    train,
    ui,
    validate,
)
from see_tune.errors import SeeTuneError
from see_tune.signals import Presses

_INTERRUPTED = 130
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
_AGAIN_S = 0.05
_APART_S = 0.3  # what one interrupt begins (a word to the user, a clean-up) is under way when the next one comes

app = typer.Typer(
    name="see-tune",
    help="Hyperparameter search for image retrieval with Spherical Embedding Expansion.\n\n"
    "Start with: see-tune run search_spaces/glyphs.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"see-tune {version('see-tune')}")
        raise typer.Exit


_ShowVersion = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")]


@app.callback()
def _options(show_version: _ShowVersion = False) -> None:
    pass


app.command("run")(run.run)
app.command("list")(studies.list_studies)
app.command("status")(studies.status)
app.command("stop")(studies.stop)
app.command("final")(studies.final)
app.command("submit")(submit.submit)
app.command("logs")(submit.logs)
app.command("work", hidden=True)(submit.work)
app.command("validate")(validate.validate)
app.command("schema")(validate.schema)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("best")(best.best)
app.command("promote")(best.promote)
app.command("export")(export.export)
app.command("index")(index.index)
app.command("query")(index.query)
app.command("ui")(ui.ui)
app.command("doctor")(doctor.doctor)
app.add_typer(datasets.commands, name="datasets")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a user's mistake is a message on stderr, never a traceback."""
    try:
        code = app(list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:  # an unknown command or option, a missing argument, no arguments at all
        print(_in_words(error), file=sys.stderr)
        return error.exit_code
    except SeeTuneError as error:
        print(f"see-tune: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read it has read enough
        return 1
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"see-tune: {where}{error.strerror}. Make room there or make it writable, or choose --home", file=sys.stderr)
        return 1
    if code == _INTERRUPTED:  # a command's own, or what typer makes of Ctrl-C
        _say_interrupted()
    return code if isinstance(code, int) else 0


def _say_interrupted() -> None:
    print("see-tune: interrupted; the same command continues", file=sys.stderr)


_VALID = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def _in_words(error: TyperException) -> str:
    """typer's message, and where it only hands on what pydantic said of a value: what was found, and what is valid."""
    from pydantic import ValidationError

    if isinstance(error.__cause__, ValidationError):
        detail = error.__cause__.errors()[0]
        own = detail["msg"].removeprefix("Value error, ")
        valid = _VALID.get(detail["type"], "").format_map(detail.get("ctx", {}))
        error.message = f"found {detail['input']!r}; valid: {valid}" if valid else own
    return error.format_message()


def run_from_shell() -> None:
    """The console script."""
    # torch makes its compiler's cache when it is imported, used or not, in a folder of its own below this one.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())
    code = 1

    def leave() -> None:
        """Without the interpreter's own end: it takes what was imported apart, for seconds, before the prompt is back, and
        ends by SIGINT where a Ctrl-C has passed through an import, although that was answered."""
        with suppress(OSError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)  # the first one registered runs last
    _interrupt_on_signals()
    try:
        code = main()
    except KeyboardInterrupt:  # Ctrl-C once more, while the first was being answered
        _say_interrupted()
        code = _INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's own end is not to be interrupted
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.exit(code)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: what is raised there may come out as another exception (Python makes a RuntimeError
    of whatever `__set_name__` raises), or reach C++ that calls Python, and abort the process."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _interrupt_on_signals() -> None:
    """Ctrl-C, SIGTERM and, where it is not ignored (nohup), SIGHUP interrupt a command; `run` stops its study in its own way.

    Each interrupts once: those that come during an import wait for its end, and then come one after the other.
    """
    terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]
    here, waiting, presses = os.getpid(), 0, Presses()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if os.getpid() != here:  # forked this moment, and another program in the next
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes twice where it goes to a process and to its group
        if signum != signal.SIGALRM:
            if presses.is_echo():
                return
            waiting += 1
        if _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        waiting -= 1
        signal.setitimer(signal.ITIMER_REAL, _APART_S if waiting else 0)
        raise KeyboardInterrupt

    def hang_up(signum: int, frame: FrameType | None) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in terminals:  # gone: whatever is written there from now on would fail
            os.dup2(nowhere, stream)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, interrupt)
    for number, handler in ((signal.SIGINT, interrupt), (signal.SIGTERM, interrupt), (signal.SIGHUP, hang_up)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


if __name__ == "__main__":
    run_from_shell()
