"""The documents as they stand on GitHub become a site: mkdocs calls these functions while it builds (mkdocs.yml).

README.md is its first page, and a few other Markdown files of the repository are pages like those in docs/. A file of
code that a page links to becomes a page that shows it, so that every link leads somewhere without a network.
"""

import re
from pathlib import Path
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {"README.md": "index.md"} | {
    path: path for path in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "results/README.md")
}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/, those outside it, and one for every file or folder that any of them links to."""
    for path, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    texts = [*(ROOT / path for path in OUTSIDE), *(ROOT / "docs").rglob("*.md")]
    linked = {target for text in texts for target in _targets(text)}
    within = {file for folder in linked if folder.is_dir() for file in _files_of(folder)}
    for target in sorted(linked | within):
        if _place(target).startswith("repository/"):
            files.append(File.generated(config, _place(target), content=_shown(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where their files stand in the site; GitHub's fence around a formula becomes two signs."""
    source = page.file.abs_src_path
    if source is None:  # made by `_shown`, for the site alone
        return markdown
    folder = Path(page.file.src_uri).parent.as_posix()

    def moved(link: re.Match[str]) -> str:
        return relpath(_place((Path(source).parent / link[1]).resolve()), folder)

    return MATH.sub(r"$$\n\1$$", LINK.sub(moved, markdown))


def _targets(text: Path) -> list[Path]:
    return [(text.parent / link).resolve() for link in LINK.findall(text.read_text(encoding="utf-8"))]


def _place(target: Path) -> str:
    """Where a file or a folder of the repository stands in the site."""
    if (target / "README.md").is_file():
        target = target / "README.md"
    path = target.relative_to(ROOT).as_posix()
    return OUTSIDE.get(path) or path.removeprefix("docs/") if _is_page(path) else f"repository/{path}.md"


def _is_page(path: str) -> bool:
    return path in OUTSIDE or path.startswith("docs/")


def _shown(target: Path) -> str:
    """A page with the code of a file, or with the names in a folder; neither is for the search to find."""
    title = f"---\nsearch:\n  exclude: true\n---\n# {target.relative_to(ROOT).as_posix()}\n\n"
    if target.is_dir():
        return title + "\n".join(
            f"- [{file.name}]({target.name}/{file.name}.md)" for file in _files_of(target)
        )
    return f"{title}~~~~ {target.suffix[1:]}\n{target.read_text(encoding='utf-8')}~~~~\n"


def _files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix == ".py" and file.stem != "__init__")
