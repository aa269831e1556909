"""The pictures of the report page in the README, made again: `python -m results.photograph`.

It trains a small study (three minutes on a core), makes its page and keeps what Chromium shows of it. Apart from
rebuild.py, which needs no browser and gives the same bytes on any machine: here they hang on the fonts.
"""

import shlex
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# Each from the top of one part of the page to the end of another, in the light or in the dark.
PICTURES = {
    "report-summary.png": ("body", "#table", "light"),
    "report-plots.png": ("#own", "#quality", "dark"),
    "report-explorer.png": ("#trajectory", "#explore-neighbors", "dark"),
}
TITLE = "State of the Union: four ways to train"
STUDY = """
    compare --data sotu:2009 --max-vocabulary 2000 --preset tiny --epochs 8 --methods mle,ss,nnrs,ss-nnrs --seeds 1-3
    --metrics perplexity,deciles,noise,bleu,self-bleu,exposure
"""
WIDTH, MARGIN = 1140, 16  # pixels; the margin is below the last part
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => !plot.offsetParent || 'drawn' in plot.dataset)"


def photograph(browser: Browser, page: Path, out: Path) -> None:
    """Keep the part of the page that `out` is named for, in the few bytes that a palette takes."""
    first, last, scheme = PICTURES[out.name]
    shown = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
    shown.goto(page.resolve().as_uri())
    shown.wait_for_selector("html[data-ready]")
    height = shown.evaluate("document.documentElement.scrollHeight")
    shown.set_viewport_size({"width": WIDTH, "height": height})  # plots are drawn when they come into view
    shown.wait_for_function(DRAWN)
    top = shown.locator(first).evaluate("part => part.getBoundingClientRect().top")
    end = shown.locator(last).evaluate("part => part.getBoundingClientRect().bottom")
    clip = {"x": 0, "y": round(top), "width": WIDTH, "height": round(end) - round(top) + MARGIN}
    taken = shown.screenshot(full_page=True, clip=clip)
    Image.open(BytesIO(taken)).quantize().save(out, optimize=True)
    shown.close()


def main() -> None:
    """Train, make the page, and write its pictures."""
    nnrs = [sys.executable, "-m", "nnrs"]
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        subprocess.run([*nnrs, *shlex.split(STUDY), "--out", folder], check=True)
        subprocess.run([*nnrs, "report", folder, "--title", TITLE, "--out", str(page)], check=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            for name in PICTURES:
                photograph(browser, page, IMAGES / name)
                print(IMAGES / name)
            browser.close()


if __name__ == "__main__":
    main()
