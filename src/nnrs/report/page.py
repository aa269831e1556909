"""One self-contained HTML page of results: data, style, script and the plotting library in a single file."""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from nnrs import __version__
from nnrs.errors import ConfigError, DataError, RunError
from nnrs.experiments.explorer import FORMAT
from nnrs.experiments.findings import Findings, findings
from nnrs.experiments.missing import missing_runs
from nnrs.experiments.paper import published
from nnrs.experiments.store import Result, collect, without_collector
from nnrs.files import check_replaceable, read_json, write_text
from nnrs.grid_directory import EXPLORER_ANEW, GridDirectory
from nnrs.metrics.score import signature_parts
from nnrs.report.columns import Published
from nnrs.report.payload import contrast_row, make_payload, nothing_published
from nnrs.report.picture import check_drawable, write_picture
from nnrs.run_directory import Json
from nnrs.wording import counted

SCRIPTS = ("base", "rows", "plots", "table", "results", "samples", "explorers", "start")
CODE = re.compile("`(nnrs [^`]+)`")  # and not what stands between backticks of a user's
MARK = '<meta name="generator" content="nnrs '


def write_report(
    sources: Sequence[Path], out: Path, picture: Path | None = None, title: str | None = None
) -> list[str]:
    """Write the page of all results that the sources hold, and their picture where one is asked for.

    Returns what the page says of runs of their plans that are missing. One that was there is made anew; any other
    file is left alone.
    """
    check_replaceable(out, MARK, "report")
    if picture:
        check_drawable(picture)
    with without_collector():
        results = collect(*sources)
        missing = missing_runs(sources)
        page = _page_of(results, sources, title, missing)
    if picture:
        write_picture(results, picture)
    write_text(out, page)
    return missing


def _page_of(
    results: Sequence[Result], sources: Sequence[Path], title: str | None, missing: Sequence[str]
) -> str:
    if not results:
        raise DataError(f"{', '.join(map(str, sources))}: no finished run to report on. Finish one first.")
    plans = [plan for source in sources if source.is_dir() and (plan := GridDirectory(source).plan())]
    return build_page(
        results,
        title=title or " and ".join(dict.fromkeys(plan["title"] for plan in plans)) or "Results",
        commands=[plan["command"] for plan in plans],
        found=findings(results, missing),
        explorer=next((found for source in sources if (found := _explorer(source))), None),
        published=published,
    )


def build_page(
    results: Sequence[Result],
    *,
    title: str,
    commands: Sequence[str] = (),
    found: Findings | None = None,
    explorer: Json | None = None,
    published: Published = nothing_published,
) -> str:
    """The page as text."""
    found = found or Findings()
    payload = make_payload(results, explorer, published)
    payload["contrasts"] = [contrast_row(item) for item in found.contrasts]
    payload["others"] = [contrast_row(item) for item in found.others]
    parts = {
        "VERSION": __version__,
        "TITLE": escape(title),
        "FACTS": escape(_facts(results, payload)),
        "SUMMARY": _sentences(found.sentences),
        "REPEAT": _repeat(commands),
        "STYLE": _asset("page.css"),
        "DATA": for_script(payload),
        "VEGA": _plotting_library(),
        "SCRIPT": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
    }
    first, *rest = _asset("page.html").split("@")  # text and names take turns
    return first + "".join(parts[part] if place % 2 == 0 else part for place, part in enumerate(rest))


def for_script(value: Json) -> str:
    r"""JSON that no word in it can end or leave: `<` is written as an escape.

    >>> print(for_script({"word": "</script><b>"}))
    {"word":"\u003c/script>\u003cb>"}
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _facts(results: Sequence[Result], payload: Json) -> str:
    """What was run, in one line."""
    records = [result.record for result in results]
    seeds, groups = {record["seed"] for record in records}, payload["groups"]
    told = [signature_parts(record["signature"]) for record in records]
    models = dict.fromkeys(parts["model"] for parts in told if "model" in parts)
    epochs = sorted({len(record["epochs"]) for record in records})
    parts = [
        counted(len(records), "run"),
        f"{counted(len(groups), 'setting')} × up to {counted(len(seeds), 'seed')}"
        if len(groups) * len(seeds) != len(records)
        else f"{counted(len(groups), 'setting')} × {counted(len(seeds), 'seed')}",
        _some(dict.fromkeys(group["corpus"] for group in groups)),
        _some(models),
        counted(epochs[0], "epoch") if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]} epochs",
    ]
    return " · ".join(parts)


def _some(names: Sequence[str] | dict[str, None]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


def _sentences(sentences: Sequence[str]) -> str:
    """A list, in which our own commands are code."""
    told = (CODE.sub(r"<code>\1</code>", escape(sentence)) for sentence in sentences)
    items = "".join(f"<li>{sentence}</li>" for sentence in told)
    return f'<ul class="lead">{items}</ul>' if items else ""


def _repeat(commands: Sequence[str]) -> str:
    """The commands that made all of it, and where they and those of the rows are to be run."""
    every = (
        "Each row of the table above opens to the command that repeats its runs and to each number's signature. "
        "Commands name files without their folders: run them in the folder where these files lie, with a run "
        "directory for RUN."
    )
    if not commands:
        return f"<p>{every}</p>"
    lines = "".join(f'<div class="command line"><code>{escape(command)}</code></div>' for command in commands)
    return (
        f"<p>This made all of it; the same command continues what was interrupted:</p>{lines}<p>{every}</p>"
    )


def _explorer(source: Path) -> Json | None:
    path = GridDirectory(source).explorer_path
    if not path.is_file():
        return None
    explorer = read_json(path, EXPLORER_ANEW)
    if explorer.get("format") != FORMAT:
        raise RunError(f"{path} is of another version.{EXPLORER_ANEW}")
    return explorer


def _asset(name: str) -> str:
    return (files("nnrs.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, compressed: most of a page would be they, in full."""
    try:
        import vl_convert
    except ImportError:
        raise ConfigError("the report needs vl-convert-python: pip install 'nnrs[report]'.") from None
    library: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return b64encode(zlib.compress(f"(() => {{{library}}})();".encode(), level=9)).decode()
