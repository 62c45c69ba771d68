from __future__ import annotations

from html.parser import HTMLParser

from sdfeel.records.reading import read_run
from sdfeel.reports import figure_of_metrics, plot_curves, write_comparison
from sdfeel.reports.page import write_page


class Reader(HTMLParser):
    """What a browser would see: the elements, their addresses, the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in {"src", "href"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text += data


EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>&'


def test_a_page_holds_everything(curve, tmp_path):
    figure = figure_of_metrics({"a": curve()})
    narrow = plot_curves({"a": curve()})
    path = write_page(
        tmp_path / "new" / "page.html",
        "A title",
        {"wide": figure, "narrow": narrow},
        {"Results": [{"label": "a", "accuracy": 0.9}], "Nothing": []},
        {"lr": 0.0123456789, "schedule": {"tau1": 2}, "flag": True, "none": None, "empty": {}},
        ["A note."],
        environment={"packages": {"torch": "2.13.0"}},
    )
    seen = Reader(path.read_text(encoding="utf-8"))
    assert seen.tags.count("img") == 2
    assert all(source.startswith("data:image/") for source in seen.sources)
    for text in ("A title", "A note.", "Results", "90.0 %", "schedule.tau1", "0.0123456789",
                 "packages.torch", "2.13.0", "Nothing to show"):  # fmt: skip
        assert text in seen.text


def test_whatever_files_hold_is_shown_not_run(curve, tmp_path):
    path = write_page(
        tmp_path / "page.html",
        EVIL,
        {EVIL: figure_of_metrics({EVIL: curve()}, title="x < y & z")},
        {EVIL: [{"label": EVIL, EVIL: EVIL, "n": 1}]},
        {EVIL: EVIL, "nested": {EVIL: [EVIL]}, "odd": "\ud800"},
        [EVIL],
        environment={EVIL: EVIL},
    )
    seen = Reader(path.read_text(encoding="utf-8"))
    assert "script" not in seen.tags
    assert seen.tags.count("img") == 1
    assert seen.handlers == []
    assert seen.text.count(EVIL) >= 9


def test_a_comparison_in_one_call(write_run, curve, tmp_path):
    ours = [read_run(write_run(curve(seed=s), f"ours{s}", seed=s)) for s in (0, 1)]
    rival = read_run(write_run(curve(30), "rival", scheme="fedavg", lr=0.0200001))
    out = tmp_path / "report"
    made = write_comparison(out, {"sd-feel": ours, "fedavg": rival}, title="Both", notes=["Why."])
    assert sorted(path.name for path in out.iterdir()) == [
        "index.html", "over_time.png", "over_time.svg", "table.md",
    ]  # fmt: skip
    assert [row["label"] for row in made.rows] == ["sd-feel", "fedavg"]
    page = Reader(made.page.read_text(encoding="utf-8")).text
    assert "Settings that differ" in page
    assert "0.0200001" in page
    assert "0, 1" in page
    assert made.table.read_text(encoding="utf-8").startswith("| run | seeds |")


def test_the_same_report_twice_is_the_same_file(write_run, curve, tmp_path):
    run = read_run(write_run(curve()))
    pages = [
        write_comparison(tmp_path / name, {"a": run}, title="t").page.read_bytes()
        for name in ("one", "two")
    ]
    assert pages[0] == pages[1]
