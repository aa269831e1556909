"""Files of results in a quarter of their size: read like any other, the same bytes for the same results."""

import gzip
import json
import subprocess

import pytest
from tests.report.factory import make_results

from nnrs.errors import RunError
from nnrs.experiments.store import collect
from nnrs.files import read_text, write_text

RECORDS = json.loads(json.dumps(make_results(groups=3, seeds=2)))
TEXT = "".join(json.dumps(record) + "\n" for record in RECORDS)


def test_a_compressed_file_of_results_says_what_the_plain_one_says(tmp_path):
    for name in ("plain.jsonl", "small.jsonl.gz"):
        write_text(tmp_path / name, TEXT)
        assert [result.record for result in collect(tmp_path / name)] == RECORDS
    assert (tmp_path / "plain.jsonl").read_text() == TEXT
    assert gzip.decompress((tmp_path / "small.jsonl.gz").read_bytes()).decode() == TEXT


def test_files_that_were_compressed_by_others_and_put_behind_each_other_are_one(tmp_path):
    for name, records in (("a", RECORDS[:4]), ("b", RECORDS[4:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        subprocess.run(["gzip", str(tmp_path / f"{name}.jsonl")], check=True)
    both = tmp_path / "both.jsonl.gz"
    both.write_bytes(b"".join((tmp_path / f"{name}.jsonl.gz").read_bytes() for name in "ab"))
    assert [result.record for result in collect(both)] == RECORDS


def test_the_same_text_gives_the_same_bytes_whatever_the_time_and_the_name(tmp_path, monkeypatch):
    write_text(tmp_path / "now.jsonl.gz", TEXT)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_text(tmp_path / "then.jsonl.gz", TEXT)
    data = (tmp_path / "now.jsonl.gz").read_bytes()
    assert data == (tmp_path / "then.jsonl.gz").read_bytes()
    # RFC 1952: magic, deflate, no flags (thus no name), four bytes of time
    assert data[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


WHOLE = gzip.compress(TEXT.encode(), mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:-20] + bytes(12) + WHOLE[-8:],
        WHOLE[:-8] + bytes(8),
        WHOLE + b"more",
        TEXT.encode(),
        gzip.compress(b"\xff\xfe"),
    ],
    ids=["torn", "changed", "sum", "more", "plain", "letters"],
)
def test_a_damaged_file_is_named_in_one_line_whatever_the_damage(data, tmp_path):
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(data)
    with pytest.raises(
        RunError, match=r"records\.jsonl\.gz is damaged: .*\. Copy or make it again\."
    ) as caught:
        collect(path)
    assert "\n" not in str(caught.value)


def test_a_plain_file_that_is_no_text_is_damaged_too(tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match=r"records\.jsonl is damaged: 'utf-8' codec"):
        read_text(tmp_path / "records.jsonl")


def test_a_compressed_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot read .*none\.jsonl\.gz: No such file"):
        collect(tmp_path / "none.jsonl.gz")
