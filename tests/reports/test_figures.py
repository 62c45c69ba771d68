from __future__ import annotations

import ast
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

import sdfeel
import sdfeel.reports
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.errors import InputError
from sdfeel.reports import (
    Panel,
    draw_topology,
    figure_of_metrics,
    figure_panels,
    plot_curves,
    save_figure,
    style,
)
from sdfeel.reports.bands import band
from sdfeel.reports.labels import ink
from sdfeel.reports.style import line_style, line_styles


def legend_texts(figure):
    """What names the curves: a legend, or labels at their ends."""
    direct = [
        text.get_text() for on in figure.axes for text in on.texts if text.get_gid() == "label"
    ]
    return direct or [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def drawn(figure):
    FigureCanvasAgg(figure)
    figure.canvas.draw()
    return figure.canvas.get_renderer()


def overlap(box, other):
    return box.padded(-1).overlaps(other.padded(-1))


def test_one_line_and_legend_entry_per_label(curve):
    figure = plot_curves({"sd-feel": curve(10), "fedavg": curve(20)}, title="A title")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["sd-feel", "fedavg"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), curve(10)["train_loss"])
    assert sorted(legend_texts(figure)) == ["fedavg", "sd-feel"]
    assert not figure.legends, "labels stand at the ends of the curves"
    assert axes.get_xlabel() == "simulated time (s)"
    assert axes.get_ylabel() == "training loss"
    assert figure.get_suptitle() == "A title"


def test_layout_of_figure_3(curve):
    figure = figure_of_metrics({"a": curve(), "b": curve(20)})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "(a) training loss",
        "(b) test accuracy",
    ]
    assert sorted(legend_texts(figure)) == ["a", "b"]
    assert all(len(axes.lines) == 2 for axes in figure.axes)


def test_long_runs_are_in_minutes_and_iterations_are_not(curve):
    frame = curve(step=60.0)
    (axes,) = plot_curves({"a": frame}).axes
    assert axes.get_xlabel() == "simulated time (min)"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), frame["seconds"] / 60)
    (axes,) = plot_curves({"a": frame}, x="iteration", y="test_accuracy").axes
    assert axes.get_xlabel() == "iteration"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), frame["iteration"])
    (axes,) = plot_curves({"a": frame}, until=300.0).axes
    assert axes.get_xlim()[1] == 300


@pytest.mark.parametrize(("spread", "says"), [("range", "min to max"), ("quartiles", "quartiles")])
def test_seeds_give_a_median_and_a_band_that_the_legend_names(curve, spread, says):
    seeds = [curve(seed=seed) for seed in (0, 1, 2)]
    figure = plot_curves({"a": seeds}, spread=spread)
    (axes,) = figure.axes
    assert len(axes.lines) == 1
    assert len(axes.collections) == 1
    assert figure.legends[0].get_title().get_text() == f"line: median of 3 seeds; band: {says}"


def test_an_unknown_band_is_refused(curve):
    with pytest.raises(InputError, match="range, quartiles"):
        plot_curves({"a": [curve(), curve()]}, spread="sigma")


curves = st.lists(
    st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 3)), min_size=3, max_size=15),
    min_size=2,
    max_size=5,
)


@given(curves, st.sampled_from(["range", "quartiles"]))
def test_bands_keep_monotone_curves_monotone(seeds, kind):
    frames = []
    for pairs in seeds:
        gaps, falls = np.array(pairs).T
        at = np.concatenate([[0.0], np.cumsum(gaps)])
        value = 10 - np.concatenate([[0.0], np.cumsum(falls)])
        frames.append(pd.DataFrame({"seconds": at, "train_loss": value}))
    lines = band(frames, "seconds", "train_loss", kind)
    assert lines is not None
    assert lines.seeds == len(seeds)
    assert lines.x[-1] == min(frame["seconds"].iloc[-1] for frame in frames)
    assert (np.diff(lines.x) > 0).all()
    for edge in (lines.low, lines.middle, lines.high):
        assert (np.diff(edge) <= 1e-9).all()
    assert (lines.low <= lines.middle + 1e-9).all()
    assert (lines.middle <= lines.high + 1e-9).all()


def test_seeds_without_a_common_stretch(curve):
    with pytest.raises(InputError, match="share no stretch"):
        band(
            [curve(), curve().assign(seconds=lambda f: f["seconds"] + 1e4)], "seconds", "train_loss"
        )


def test_missing_columns_are_said_not_hidden(curve):
    without = curve().drop(columns="test_accuracy")
    figure = figure_of_metrics({"a": curve(), "b": without})
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]
    assert figure.legends[0].get_title().get_text() == "test accuracy not recorded: b"
    loss, accuracy = Panel({"a": without}), Panel({"a": without}, y="test_accuracy")
    figure = figure_panels([loss, accuracy])
    assert [text.get_text() for text in figure.axes[1].texts] == ["not recorded"]
    figure = figure_of_metrics({"a": curve(), "b": curve()[["iteration"]]})
    assert "b (not recorded)" in legend_texts(figure)
    drawn(figure)
    with pytest.raises(InputError, match="did you mean 'train_loss'"):
        plot_curves({"a": curve()}, y="train_los")
    with pytest.raises(InputError, match="'seconds'"):
        plot_curves({"a": curve().drop(columns="seconds")})


def test_nothing_to_draw():
    with pytest.raises(InputError, match="at least one curve"):
        plot_curves({})
    with pytest.raises(InputError, match="panels"):
        figure_panels([])


def test_panels_with_different_curves_share_a_legend_and_a_curve_looks_the_same_in_all(curve):
    figure = figure_panels(
        [
            Panel({"ring": curve(30), "full": curve(10)}, "iteration", "test_accuracy", "graphs"),
            Panel(
                {"alpha 1": [curve(), curve()], "full": curve(9)}, "seconds", "train_loss", "alpha"
            ),
        ]
    )
    assert legend_texts(figure) == ["ring", "full", "alpha 1"]
    note = figure.legends[0].get_title().get_text()
    assert note == "line: median of 1 to 2 seeds; band: min to max"
    drawn_as = [{line.get_label(): line.get_color() for line in on.lines} for on in figure.axes]
    assert drawn_as[0].keys() == {"ring", "full"}
    assert drawn_as[1].keys() == {"alpha 1", "full"}
    assert drawn_as[0]["full"] == drawn_as[1]["full"]
    assert len({*drawn_as[0].values(), *drawn_as[1].values()}) == 3


def test_labels_at_the_ends_stand_in_the_order_of_the_ends_and_apart(curve):
    """Two curves that end at nearly the same value would have one label over the other."""
    ends = {"first": 1.0, "second": 1.001, "third": 0.2}
    frames = {
        n: curve().assign(train_loss=lambda f, s=s: f["train_loss"] * s) for n, s in ends.items()
    }
    figure = plot_curves(frames)
    renderer = drawn(figure)
    (axes,) = figure.axes
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in axes.texts}
    assert sorted(boxes, key=lambda label: -boxes[label].y0) == ["second", "first", "third"]
    assert not overlap(boxes["first"], boxes["second"])
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    inks = {text.get_text(): ink_of(text.get_color()) for text in axes.texts}
    assert inks == {label: ink_of(ink(colour)) for label, colour in colours.items()}
    assert min(4.5, *(contrast(colour) for colour in inks.values())) == 4.5, "small text"


def ink_of(colour):
    return mpl.colors.to_rgb(colour)


def contrast(colour):
    """With white, as WCAG defines it."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 1.05 / (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)


@pytest.mark.parametrize("colour", style.COLOURS)
def test_every_colour_has_an_ink_that_can_be_read(colour):
    assert contrast(ink(colour)) >= 4.5


def test_a_curve_that_ends_early_gets_a_legend(curve):
    """A label at the right edge would be far from where the curve ends."""
    figure = plot_curves({"long": curve(), "short": curve().iloc[:3]})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["long", "short"]


def test_bands_that_overlap_have_edges_of_their_own(curve):
    """As flat fills two of them were one grey."""
    seeds = [curve(seed=seed) for seed in (0, 1)]
    (axes,) = plot_curves({"sd-feel": seeds, "fedavg": seeds}).axes
    edges = [band.get_edgecolor()[0].tolist() for band in axes.collections]
    assert edges[0] != edges[1]
    assert all(band.get_linewidth()[0] > 0 for band in axes.collections)


def test_a_legend_is_read_row_by_row_in_the_order_of_the_curves(curve):
    """Matplotlib fills columns; with five entries in two columns it would begin with 1, 5, 2."""
    labels = [f"curve number {number}" for number in range(7)]  # too many for labels at the ends
    figure = plot_curves({label: curve(4 + number) for number, label in enumerate(labels)})
    renderer = drawn(figure)
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in
             figure.legends[0].get_texts()}  # fmt: skip
    rows = {round(box.y0) for box in boxes.values()}
    assert 1 < len(rows) < 7
    assert sorted(boxes, key=lambda label: (-round(boxes[label].y0), boxes[label].x0)) == labels


def test_accuracies_are_in_percent_and_losses_are_not(curve):
    figure = figure_of_metrics({"a": curve()})
    drawn(figure)
    loss, accuracy = ([t.get_text() for t in on.get_yticklabels()] for on in figure.axes)
    assert "60 %" in accuracy
    assert not any("." in text for text in accuracy), "not 60.0 %"
    assert not any("%" in text for text in loss)


def test_a_scheme_has_one_look_whatever_stands_beside_it():
    """By place or by alphabet, FedAvg would be blue in one figure and green in the next."""
    alone = line_styles(["fedavg"])["fedavg"]
    for others in (["a"], ["sd-feel", "feel"], ["mine", "x", "y", "z"]):
        assert line_styles([*others, "fedavg"])["fedavg"] == alone
        assert (
            line_styles(["fedavg (shared backhaul)", *others])["fedavg (shared backhaul)"] == alone
        )
    assert set(style.SCHEMES) == set(SCHEMES)


labels_of = st.lists(
    st.sampled_from(
        [*SCHEMES, "fedavg (b)", "fedavg, tau1 3", "sd-feel (a)", "a", "b", "tau1 = 3"]
    ),
    unique=True,
)


@given(labels_of)
def test_every_curve_of_a_figure_has_a_look_of_its_own(labels):
    looks = line_styles(labels)
    assert list(looks) == labels
    assert len({(look.colour, look.dashes, look.marker) for look in looks.values()}) == len(labels)


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize("words", [1, 12])
@pytest.mark.parametrize("panels", [1, 2])
def test_nothing_overlaps_and_nothing_is_clipped(curve, count, words, panels):
    curves = {f"{k} " + "label " * words: [curve(4 + 3 * k), curve(5)] for k in range(count)}
    if panels == 2:
        both = [Panel(curves), Panel({"other": curve()}, y="test_accuracy")]
        figure = figure_panels(both, title="A title of many words " * 6)
    else:
        figure = plot_curves(curves, title="A title of many words " * 4)
    renderer = drawn(figure)
    sheet = figure.bbox.padded(1)
    boxes = [legend.get_window_extent(renderer) for legend in figure.legends]
    for axes in figure.axes:
        labels = [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]
        for box in boxes:
            assert not overlap(box, axes.bbox)
            assert not any(overlap(box, label.get_window_extent(renderer)) for label in labels)
        assert axes.get_window_extent(renderer).height > 0.3 * 2.45 * figure.dpi
        tight = axes.get_tightbbox(renderer)
        assert (sheet.x0, sheet.y0) <= (tight.x0, tight.y0)
        assert tight.x1 <= sheet.x1
        assert tight.y1 <= sheet.y1
        assert tight.y0 >= sheet.y0
    for box in boxes:
        assert sheet.x0 <= box.x0
        assert box.x1 <= sheet.x1
        assert sheet.y0 <= box.y0


def test_the_page_has_the_looks_of_the_figures():
    """One colour for one scheme and one activity, on paper and on the live page."""
    static = Path(sdfeel.__file__).parent / "page" / "static"
    script = (static / "util.js").read_text()
    (listed,) = re.findall(r"const SCHEMES = \[(.*?)\]", script, re.DOTALL)
    assert tuple(re.findall(r'"([\w-]+)"', listed)) == style.SCHEMES
    light = (static / "style.css").read_text().partition("}")[0]
    parts = {name: name for name in ("compute", "upload", "exchange", "download")}
    parts["waiting"] = "wait"
    for name, does in parts.items():
        (colour,) = re.findall(rf"--{name}: (#\w+);", light)
        assert colour.upper() == style.ACTIVITIES[does].upper()


def test_no_two_curves_look_alike():
    looks = [line_style(index) for index in range(60)]
    assert len({(look.colour, look.dashes, look.marker) for look in looks}) == 60
    # Without colours dashes and markers alone must do, for as many as a figure can hold.
    assert len({(look.dashes, look.marker) for look in looks[:30]}) == 30


def test_saved_as_png_and_svg_that_never_change(curve, tmp_path):
    def save(name):
        return save_figure(figure_of_metrics({"a": [curve(), curve(seed=1)]}), tmp_path / name)

    png, svg = save("deep/er/fig.3")
    assert (png.name, svg.name) == ("fig.3.png", "fig.3.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"dc:date" not in svg.read_bytes()
    again = save("other.png")
    assert [path.name for path in again] == ["other.png", "other.svg"]
    assert again[0].read_bytes() == png.read_bytes()
    assert again[1].read_bytes() == svg.read_bytes()
    assert sorted(p.name for p in png.parent.iterdir()) == ["fig.3.png", "fig.3.svg"]


def test_a_place_that_cannot_be_written(curve, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can be written"):
        save_figure(plot_curves({"a": curve()}), tmp_path / "file" / "x")


def test_matplotlib_is_left_as_it_was(curve, tmp_path):
    before = dict(mpl.rcParams)
    save_figure(figure_of_metrics({"a": curve()}), tmp_path / "x")
    assert dict(mpl.rcParams) == before


def test_a_users_style_does_not_leak_in(curve, tmp_path):
    plain = save_figure(plot_curves({"a": curve()}), tmp_path / "plain")[1].read_bytes()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        styled = save_figure(plot_curves({"a": curve()}), tmp_path / "styled")[1].read_bytes()
    assert plain == styled


def test_the_room_opens_no_other_door():
    folder = Path(sdfeel.reports.__file__).parent
    rooms = ("sdfeel.errors", "sdfeel.files", "sdfeel.reports", "sdfeel.records.")
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [
                    alias.name for alias in node.names
                ]  # fmt: skip
                for name in names:
                    assert name is not None
                    assert not name.startswith(("torch", "matplotlib.pyplot"))
                    if name.startswith("sdfeel"):
                        assert name.startswith(rooms)


@pytest.mark.parametrize(
    "sizes", [[3], [2, 1], [5] * 10, [1, 0, 20, 3], [6] * 30, [100] * 50, [9] * 60]
)
def test_topology(sizes):
    servers = len(sizes)
    ring = [(d, (d + 1) % servers) for d in range(servers)] if servers > 1 else []
    figure = draw_topology(ring, sizes, zeta=0.82574, title="ring")
    (axes,) = figure.axes
    assert axes.get_title() == "ring, ζ = 0.8257"
    assert legend_texts(figure)[0].startswith(f"{servers} edge server")
    assert legend_texts(figure)[1].startswith(f"{sum(sizes):,} client")
    links = axes.collections[0].get_segments()
    assert len(links) == (servers if servers > 2 else servers - 1)
    if servers <= 30:
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert sum(len(line.get_xdata()) for line in dots) == sum(sizes)
    drawn(figure)


def test_topology_refuses_what_it_cannot_draw():
    with pytest.raises(InputError, match="from 0 to 1"):
        draw_topology([(0, 2)], [1, 1])
    with pytest.raises(InputError, match="sizes"):
        draw_topology([], [])
