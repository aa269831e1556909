"""Files that are whole or not there, and locks that hold between processes and machines."""

import fcntl
import os
import subprocess
import sys
import threading

import pytest
from safetensors import SafetensorError

from nnrs.errors import RunError
from nnrs.files import locked, read_json, write_atomically, write_json
from nnrs.grid_directory import GridDirectory
from nnrs.run_directory import RunDirectory

HOLD = """
import sys
from pathlib import Path
from nnrs.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("I/O: no space left")]
)
def test_a_failing_writer_leaves_the_old_file_and_no_other(error, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def half_write(temporary):
        temporary.write_text("ne")
        raise error

    with pytest.raises(RunError, match=r"cannot write .*/file\.txt: .*[Nn]o space left") as caught:
        write_atomically(path, half_write)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(
        "What was there before is untouched. Mend that, or choose another place, and try again."
    )
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_any_other_error_of_a_writer_leaves_the_old_file_too(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def interrupted(temporary):
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, interrupted)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write .*/file/below: there is no folder .*/file\. Make it"):
        write_atomically(tmp_path / "file" / "below", lambda path: path.write_text("x"))


def test_threads_that_write_one_file_at_once_each_write_it_whole(tmp_path):
    path, together = tmp_path / "file.txt", threading.Barrier(2)
    written, failed = {}, []

    def write(text):
        def halves(temporary):
            with temporary.open("w") as file:
                file.write(text)
                file.flush()
                together.wait(timeout=30)  # both are in the middle of it
                file.write(text)
            written[text] = temporary

        try:
            write_atomically(path, halves)
        except RunError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one, ", "two, ")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert written["one, "] != written["two, "]
    assert path.read_text() in ("one, one, ", "two, two, ")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_a_written_file_is_as_readable_as_any_other(umask, tmp_path):
    script = """
from pathlib import Path
from safetensors.numpy import save_file
from nnrs.files import write_atomically
write_atomically(Path("text"), lambda path: path.write_text("x"))
write_atomically(Path("tensors"), lambda path: save_file({}, path))
Path("plain").touch()
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, umask=umask, check=True)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("text", "tensors", "plain"), oct(0o666 & ~umask))


def test_json_comes_back_and_what_is_none_is_named(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"word": "ö"})
    assert path.read_text(encoding="utf-8") == '{"word": "ö"}\n'
    assert read_json(path) == {"word": "ö"}
    for text, told in (("{", "file.json is damaged: Expecting"), ("[]", "a JSON object was expected")):
        path.write_text(text)
        with pytest.raises(RunError, match=told) as caught:
            read_json(path, " Try another.")
        assert str(path) in str(caught.value)
        assert str(caught.value).endswith(" Try another.")
    path.unlink()
    with pytest.raises(RunError) as caught:
        read_json(path)
    assert str(caught.value) == f"cannot read {path}: No such file or directory. Copy it back."


def test_a_lock_is_waited_for_until_its_process_dies(tmp_path):
    got = threading.Event()

    def wait():
        with locked(tmp_path / ".lock"):
            got.set()

    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.2)
        holder.kill()
    assert got.wait(10)
    waiting.join()


def test_no_lock_is_on_a_folder_for_nfs_would_not_share_it(tmp_path):
    def is_free(path):
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    grid = GridDirectory(tmp_path / "grid")
    with grid.opened():
        assert (is_free(grid.path), is_free(grid.path / ".lock")) == (True, False)
    assert is_free(grid.path / ".lock")
    run = RunDirectory.create(tmp_path / "run", {})
    run.replace("scores", "signature", {"a"}, [{"signature": "a"}])
    assert (run.path / ".lock").is_file()
