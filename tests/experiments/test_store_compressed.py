"""Files of results in a small part of their size: read like any other, the same bytes for the same results."""

import json
import lzma

import pytest
from tests.report.factory import make_results

from nnrs.errors import RunError
from nnrs.experiments.store import collect
from nnrs.files import read_text, write_text

RECORDS = json.loads(json.dumps(make_results(groups=3, seeds=2)))
TEXT = "".join(json.dumps(record) + "\n" for record in RECORDS)


def test_a_compressed_file_of_results_says_what_the_plain_one_says(tmp_path):
    for name in ("plain.jsonl", "small.jsonl.xz"):
        write_text(tmp_path / name, TEXT)
        assert [result.record for result in collect(tmp_path / name)] == RECORDS
    assert (tmp_path / "plain.jsonl").read_text() == TEXT
    assert lzma.decompress((tmp_path / "small.jsonl.xz").read_bytes()).decode() == TEXT


def test_files_that_were_compressed_otherwise_and_put_behind_each_other_are_one(tmp_path):
    lines = [f"{json.dumps(record)}\n".encode() for record in RECORDS]
    ways = {"preset": 0, "check": lzma.CHECK_CRC32}, {"preset": 9 | lzma.PRESET_EXTREME}
    parts = [
        lzma.compress(b"".join(part), **way) for part, way in zip((lines[:4], lines[4:]), ways, strict=True)
    ]
    (tmp_path / "both.jsonl.xz").write_bytes(b"".join(parts))
    assert [result.record for result in collect(tmp_path / "both.jsonl.xz")] == RECORDS


def test_the_same_text_gives_the_same_bytes_whatever_the_time_and_the_name(tmp_path, monkeypatch):
    write_text(tmp_path / "now.jsonl.xz", TEXT)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_text(tmp_path / "then.jsonl.xz", TEXT)
    assert (tmp_path / "now.jsonl.xz").read_bytes() == (tmp_path / "then.jsonl.xz").read_bytes()


WHOLE = lzma.compress(TEXT.encode())


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:200] + bytes(12) + WHOLE[212:],
        WHOLE[:-8] + bytes(8),
        WHOLE + b"more",
        WHOLE + WHOLE[:200] + bytes(12) + WHOLE[212:],
        TEXT.encode(),
        lzma.compress(b"\xff\xfe"),
    ],
    ids=["torn", "changed", "end", "more", "second", "plain", "letters"],
)
def test_a_damaged_file_is_named_in_one_line_whatever_the_damage(data, tmp_path):
    path = tmp_path / "records.jsonl.xz"
    path.write_bytes(data)
    with pytest.raises(
        RunError, match=r"records\.jsonl\.xz is damaged: .*\. Copy or make it again\."
    ) as caught:
        collect(path)
    assert "\n" not in str(caught.value)


def test_a_plain_file_that_is_no_text_is_damaged_too(tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match=r"records\.jsonl is damaged: 'utf-8' codec"):
        read_text(tmp_path / "records.jsonl")


def test_a_compressed_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot read .*none\.jsonl\.xz: No such file"):
        collect(tmp_path / "none.jsonl.xz")
