"""A process that stands by with torch in it and forks for each command, for most of a start is the import of torch.

Every line of its standard input asks for one command, which runs and ends as the main program of its own process. Of
`nnrs` nothing is imported before that. In the folder that a command is given it leaves `pid`, `stdout` and `stderr`,
and when it has ended `code` is there, too.
"""

import atexit
import json
import os
import runpy
import signal
import sys
from importlib import import_module
from pathlib import Path

import numpy

COSTLY = ("torch", "torch._dynamo")  # the second is imported by the first optimizer


def leave(path: Path, number: int) -> None:
    """Write a number to a file that is whole as soon as it is there."""
    half = path.with_suffix(".half")
    half.write_text(str(number))
    half.rename(path)


def become(words: list[str], cwd: str, folder: Path, seconds: int) -> None:
    """Make of this process what `python -m nnrs` is at its start; it has some seconds to live."""
    os.setsid()
    leave(folder / "pid", os.getpid())
    signal.alarm(seconds)
    for number, name in enumerate((os.devnull, folder / "stdout", folder / "stderr")):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    numpy.random.seed()  # a process of its own would have drawn another
    sys.argv, sys.path[0] = ["nnrs", *words], cwd


def await_command() -> None:
    """Come back in a new process for every command that is asked for; in this one never."""
    for line in sys.stdin:
        words, cwd, folder, seconds = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            process = os.fork()
            if process == 0:
                become(words, cwd, Path(folder), seconds)
                return
            _, status = os.waitpid(process, 0)
            leave(Path(folder, "code"), os.waitstatus_to_exitcode(status))
            os._exit(0)
    os._exit(0)


def end(code: str | int | None) -> None:
    """End this process without taking apart, piece by piece, all that was imported before the fork."""
    if not isinstance(code, str):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    for module in COSTLY:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    await_command()
    try:
        runpy.run_module("nnrs", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        end(exit.code)
        raise
