"""The page as one file: it replays what the server would have answered, and needs no server.

All that runs show is in it: rows, bands, networks, timelines, and a deployment as it is now. What
asks the server for something new (what-if) says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError, SdfeelError
from sdfeel.files import write_report
from sdfeel.page.views import Views

__all__ = ["save_page"]

XS, ROUNDS = ("seconds", "iteration", "elapsed"), ("2", "4", "8", "16")
MOST = 50 * 2**20  # bytes: a browser opens more of them slowly
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:(?:async )?function|class|const) (\w+))", re.MULTILINE)

Query = dict[str, str]


def save_page(views: Views, path: Path, report: str | None = None) -> int:
    """Write the page into a file; returns its size in bytes.

    Args:
        views: what it shows.
        path: the file.
        report: of a comparison, the name of its file beside this one, for a link.
    """
    content = _page(views, report).encode()
    if len(content) > MOST:
        remedy = f"would have {len(content) / 2**20:.0f} MB of at most {MOST >> 20}: fewer folders"
        raise InputError("--save", str(path), remedy)
    write_report(path, content)
    return len(content)


def _page(views: Views, report: str | None) -> str:
    """Put style, program and answers into the page; its policy allows nothing else to run."""
    script, style = _script(), _static("style.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    answers = json.dumps(dict(_answers(views, report)), allow_nan=False, ensure_ascii=False)
    # Inside a script nothing may look like its end.
    answers = answers.replace("<", "\\u003c")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = _static("index.html")
    for old, new in (
        ('<link rel="icon" href="icon.svg" type="image/svg+xml">', head),
        ('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>"),
        ('<script type="module" src="main.js"></script>', ""),
        (
            "</body>",
            f'<script type="application/json" id="saved">{answers}</script>'
            f"<script>{script}</script></body>",
        ),
    ):
        assert page.count(old) == 1, old  # noqa: S101 - the page is ours
        page = page.replace(old, new)
    return page


def _script() -> str:
    """All modules as one script: each is a function that gives what it exports."""
    parts = ["const modules = {};"]
    for name in _in_order("main", []):
        text = _static(f"{name}.js")
        exported = ", ".join(found for _, found in EXPORT.findall(text))
        text = IMPORT.sub(_as_names, text)
        text = EXPORT.sub(r"\1", text)
        parts.append(f"modules.{name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();")
    return "(() => {\n" + "\n".join(parts) + "\n})();"


def _as_names(line: re.Match[str]) -> str:
    return f"const {{{line[1].replace(' as ', ': ')}}} = modules.{line[2]};"


def _in_order(name: str, before: list[str]) -> list[str]:
    """The modules that a module needs, each after those that it imports itself."""
    for _, needed in IMPORT.findall(_static(f"{name}.js")):
        if needed not in before:
            before = _in_order(needed, before)
    return [*before, name]


def _answers(views: Views, report: str | None) -> Iterator[tuple[str, Any]]:
    """All that the page will ask for, by question, as its `ask` writes questions."""

    def answer(view: str, **query: str) -> Iterator[tuple[str, Any]]:
        try:
            content = views.table[view](query)
        except SdfeelError as problem:
            content = {"error": str(problem)}
        yield _question(view, query), content

    table = views.table["runs"]({})
    yield _question("runs", {}), {**table, "reports": [report] if report else []}
    yield from answer("choices")
    if table["deployment"]:
        yield from answer("deployment")
    groups: dict[str, list[Any]] = {}
    for run in table["runs"]:
        groups.setdefault(run["group"], []).append(run)
        yield from answer("network", run=run["name"])
        for kind, count in (("metrics", run["rows"]), ("trace", run["traced"])):
            yield from _rows(views, run["name"], kind, count)
        if not run["real"]:
            yield from _events(views, run["name"])
            for rounds in ROUNDS:
                yield from _timeline(views, run["name"], rounds)
    for group in groups.values():
        if len(group) > 1:
            names = "\n".join(run["name"] for run in group)
            for x in XS:
                for y in group[0]["columns"]:
                    yield from answer("band", runs=names, x=x, y=y)


def _rows(views: Views, name: str, kind: str, count: int) -> Iterator[tuple[str, Any]]:
    start = 0
    while start < count:
        query = {"run": name, "start": str(start), "table": kind}
        part = views.table["rows"](query)
        yield _question("rows", query), part
        length = max((len(values) for values in part["columns"].values()), default=0)
        if not length:
            return
        start += length


def _events(views: Views, name: str) -> Iterator[tuple[str, Any]]:
    """What servers did; nothing where that is not known, which the timeline says."""
    query = {"run": name, "start": "0", "table": "events"}
    with suppress(SdfeelError):
        while not views.table["rows"](query)["whole"]:
            pass
        start, rows = 0, 1
        while start < rows:
            part = views.table["rows"](query | {"start": str(start)})
            yield _question("rows", query | {"start": str(start)}), part
            start, rows = start + len(part["columns"]["lane"]), part["rows"]


def _timeline(views: Views, name: str, rounds: str) -> Iterator[tuple[str, Any]]:
    """A timeline is made a part at a time: the whole of it goes into the file."""
    query = {"run": name, "rounds": rounds}
    try:
        content = views.table["timeline"](query)
        while not content["whole"]:
            content = views.table["timeline"](query)
    except SdfeelError as problem:
        content = {"error": str(problem)}
    yield _question("timeline", query), content


def _question(view: str, query: Query) -> str:
    pairs = [[name, value] for name, value in query.items()]
    return json.dumps([view, pairs], separators=(",", ":"), ensure_ascii=False)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _static(name: str) -> str:
    return (resources.files("sdfeel.page") / "static" / name).read_text("utf-8")
