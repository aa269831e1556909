"""What a log hears of a grid: a line whenever a run ends, and one a minute while epochs do."""

import pytest

from nnrs.cli.grid import GridProgress
from nnrs.experiments.grid import Progress


def where(*, done=0, epochs=0):
    return Progress(
        total=9, done=done, failed=0, running=9 - done, epochs=epochs, all_epochs=360, seconds_left=None
    )


@pytest.fixture
def lines(capsys):
    """`lines(looks)`: the seconds at which a line came, of looks at a grid as (seconds, progress)."""

    def heard(looks):
        told, now = [], 0.0
        shown = GridProgress(clock=lambda: now)
        for now, progress in looks:
            shown.show(progress)
            told += [now] * len(capsys.readouterr().err.splitlines())
        return told

    return heard


def test_a_fleet_that_trains_is_told_of_once_a_minute(lines):
    # 1,000 s of uptime, then a look every second; an epoch of all nine runs takes 15 s.
    looks = [(1000.0 + second, where(epochs=9 * (second // 15))) for second in range(181)]
    assert lines(looks) == [1000.0, 1060.0, 1120.0, 1180.0]


def test_where_nothing_moves_nothing_is_told_until_it_does(lines):
    looks = [
        (0.0, where()),
        (60.0, where()),
        (600.0, where()),
        (601.0, where(epochs=9)),
        (602.0, where(epochs=18)),
        (661.0, where(epochs=18)),
        (780.0, where(epochs=18)),
    ]
    assert lines(looks) == [0.0, 601.0, 661.0]


def test_a_run_that_ends_is_told_of_at_once_and_the_minute_begins_anew(lines):
    looks = [
        (0.0, where()),
        (50.0, where(done=1, epochs=40)),
        (70.0, where(done=1, epochs=49)),
        (110.0, where(done=1, epochs=58)),
        (111.0, where(done=2, epochs=80)),
    ]
    assert lines(looks) == [0.0, 50.0, 110.0, 111.0]
