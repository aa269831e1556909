"""How long does the page of 10,000 stored runs take, and how large is it?

From a .jsonl file to report.html, in this process: reading, statistics, aggregation, writing.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' made-up results

from tests.report.factory import make_results

from nnrs.report.page import write_report

REPEATS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "results.jsonl", Path(folder) / "report.html"
        with source.open("w") as file:
            for record in make_results(groups=2000, seeds=5, epochs=40, corpora=("ptb", "wikitext-2")):
                file.write(json.dumps(record) + "\n")
        print(f"10,000 results, {source.stat().st_size / 1e6:.0f} MB")
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            write_report([source], out)
            seconds.append(time.perf_counter() - started)
        spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
        print(f"page: {out.stat().st_size / 1e6:.1f} MB in {statistics.median(seconds):.1f} s ({spread})")


if __name__ == "__main__":
    main()
