"""A page in a real browser, with an ear for all that goes wrong in it."""

from pathlib import Path
from typing import Any

PLOTS = [
    *("learning", "learning-differences", "predictions", "neighbors", "temperature", "effective-neighbors"),
    *(
        "exposure",
        "tradeoff",
        "deciles",
        "decile-differences",
        "noise-neighbor",
        "noise-unigram",
        "noise-own",
    ),
    "trajectory",
]


class Opened:
    """A page in the browser, and all that went wrong in it."""

    def __init__(self, browser: Any, path: Path, width: int = 1100, scheme: str = "light") -> None:
        self.url = path.as_uri()
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("console", lambda told: told.type == "error" and self.errors.append(told.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._close)
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]")

    def _close(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def drawn(self, figure: str) -> Any:
        """A plot, once it is scrolled to and drawn."""
        place = self.page.locator(f"#figure-{figure}")
        place.scroll_into_view_if_needed()
        self.page.wait_for_selector(f"#figure-{figure} .plot[data-drawn] svg")
        return place

    def asked(self) -> list[str]:
        """The addresses that were asked for, but for what the page itself holds."""
        return [url for url in self.requests if not url.startswith(("data:", "blob:"))]

    def names(self) -> list[str]:
        """The first column of the table of results."""
        return [text.strip() for text in self.page.locator("#table tbody .open").all_inner_texts()]


def slide(page: Any, slider: str, value: object) -> None:
    """Move a slider as a mouse would."""
    page.locator(slider).evaluate(
        "(element, value) => { element.value = value; element.dispatchEvent(new Event('input')); }",
        str(value),
    )


def saved(page: Any, button: str) -> str:
    """The text of what a button downloads."""
    with page.expect_download() as download:
        page.click(button)
    return download.value.path().read_text()
