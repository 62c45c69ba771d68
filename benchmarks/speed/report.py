"""The numbers of a benchmark as tables, and as a part of a document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError
from sdfeel.files import write_report
from sdfeel.reports.figures import figure_bytes
from sdfeel.reports.rendering import markdown_table
from speed.figure import bench_figure
from speed.jobs import ALPHA, TAU1

__all__ = ["bench_tables", "write_bench"]

Row = dict[str, str]
Tables = list[tuple[str, list[Row]]]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ABOUT = {
    "fast_vs_loop": "fast engine / plain loop on one thread",
    "fast_vs_loop_all_cores": "fast engine / plain loop on all cores, a process each",
    "cifar_fast_vs_loop": "the same on 3x32x32 / loop on one thread",
    "mlp_fast_vs_loop": "MLP 784-200-10 / loop on one thread",
    "growth_10000": "time of a client step at 10,000 clients / at 50",
    "rss_gb_10000": "peak memory of a run with 10,000 clients, images as bytes (GB)",
    "ranks_2_vs_1": "two ranks / one rank, a core each, 200 clients",
    "share_of_matmul": "fast engine's FLOPs / those of a large matrix product",
}


def bench_tables(results: Mapping[str, Any]) -> Tables:
    """Title and rows of every table; values are texts, empty where nothing was measured."""
    details = results["details"]
    tables: Tables = [("In short", _short(details["ratios"]))]
    for setting in details["settings"].values():
        title = f"{setting['about']}, {setting['clients']} clients, batch 10, tau1 = {TAU1}"
        tables.append((title, _speed(setting["rows"])))
    if "zoo" in details:
        title = "Other models: what `auto` takes against a plain loop on all cores"
        tables.append((title, _zoo(details["zoo"])))
    if "layers" in details:
        title = "Layers of the fast engine against a plain loop on all cores"
        tables.append((title, _zoo(details["layers"])))
    beside = {**details.get("losses_vs_softmax", {}), **details.get("adam_vs_sgd", {})}
    if beside:
        title = "Losses and optimizers in the fast engine / softmax with SGD (CNN, 1x28x28)"
        rows = [{"": name, "x softmax, SGD": _spread(found)} for name, found in beside.items()]
        tables.append((title, rows))
    if "clients" in details:
        tables.append(("Growth with clients (fast engine, CNN on 1x28x28)", _clients(details)))
    if "servers" in details:
        title = f"Growth with servers (fast engine, tau1 = {TAU1}, alpha = {ALPHA})"
        tables.append((title, _servers(details)))
    if "topology" in details:
        tables.append(("Work on a ring before training (seconds)", _topology(details["topology"])))
    if "widths" in details:
        tables.append(("Growth with the model (MLP 784-width-10)", _widths(details["widths"])))
    if "periods" in details:
        tables.append(("Growth with tau1 (fast engine against the loop)", _periods(details)))
    if "memory" in details:
        tables.append(("Memory of a run of 20 iterations", _memory(details["memory"])))
    if "ranks" in details:
        tables.append(("Ranks, a core each", _ranks(details)))
    if "profile" in details:
        title = "Real time of a run with 1,000 clients, an evaluation every 50 iterations"
        tables.append((title, _profile(details["profile"])))
    tables.append(("Machine", _machine(details["machine"])))
    return tables


def _zoo(models: Mapping[str, Any]) -> list[Row]:
    return [
        {
            "model": name,
            "parameters": f"{own['parameters']:,}",
            "loop, all cores (steps/s)": _spread(own["loop_steps_per_second"]),
            "x loop, all cores": _spread(own["ratio"]),
            "auto took": own["engine"],
        }
        for name, own in models.items()
    ]


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _spread(found: Mapping[str, float] | None, unit: str = "", factor: float = 1.0) -> str:
    """`median (low–high)`."""
    if not found:
        return ""
    low, middle, high = (factor * found[key] for key in ("low", "median", "high"))
    if low == high:
        return f"{_number(middle)}{unit}"
    return f"{_number(middle)}{unit} ({_number(low)}–{_number(high)})"


def _short(ratios: Mapping[str, Any]) -> list[Row]:
    return [
        {"key": key, "what": about, "median (least–most)": _spread(ratios.get(key))}
        for key, about in ABOUT.items()
        if key in ratios
    ]


def _speed(rows: Mapping[str, Any]) -> list[Row]:
    table = []
    for who, row in rows.items():
        if "unsupported" in row:
            table.append({"": who, "client steps/s": f"not here: {row['unsupported']}"})
            continue
        speed = _spread(row.get("steps_per_second"))
        table.append(
            {
                "": who,
                "client steps/s": speed or _spread(row["gflops"], " GFLOPS"),
                "x loop": _spread(row.get("vs_loop")),
                "x loop, all cores": _spread(row.get("vs_loop_all_cores")),
                "of the matrix product": _spread(row.get("share_of_matmul"), " %", 100),
                "memory": f"{row['peak_gb']:.2f} GB",
                "first start": f"{row['first_start_seconds']:.2f} s",
            }
        )
    return table


def _clients(details: Mapping[str, Any]) -> list[Row]:
    return [
        {"clients": f"{int(clients):,}", "not here": row["unsupported"]}
        if "unsupported" in row
        else {
            "clients": f"{int(clients):,}",
            "µs per client step": _spread(row["microseconds_per_step"]),
            "memory": f"{row['peak_gb']:.2f} GB",
        }
        for clients, row in details["clients"].items()
    ]


def _servers(details: Mapping[str, Any]) -> list[Row]:
    return [
        {"servers": servers, "not here": row["unsupported"]}
        if "unsupported" in row
        else {
            "servers": servers,
            "local updates (ms a round)": _spread(row["local_ms_per_round"]),
            "aggregation (ms a round)": _spread(row["aggregation_ms_per_round"]),
            "local updates' share": _spread(row["local_share"], " %", 100),
        }
        for servers, row in details["servers"].items()
    ]


def _topology(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    return [
        {"servers": f"{int(n):,}", **{name: f"{seconds:.2g}" for name, seconds in parts.items()}}
        for n, parts in found.items()
    ]


def _widths(found: Mapping[str, Any]) -> list[Row]:
    return [
        {
            "width": width,
            "parameters": f"{row['parameters']:,}",
            "loop (steps/s)": _spread(row["plain loop"].get("steps_per_second")),
            "fast (steps/s)": _spread(row["fast"].get("steps_per_second")),
            "x loop": _spread(row["fast"].get("vs_loop")),
            "of the matrix product": _spread(row["fast"].get("share_of_matmul"), " %", 100),
        }
        for width, row in found.items()
    ]


def _periods(details: Mapping[str, Any]) -> list[Row]:
    table = []
    for tau1, settings in details["periods"].items():
        row = {"tau1": tau1}
        for short, found in settings.items():
            row[f"{short} (steps/s)"] = _spread(found.get("steps_per_second"))
            row[f"{short}, x loop"] = _spread(found.get("vs_loop"))
        table.append(row)
    return table


def _memory(found: Mapping[str, Any]) -> list[Row]:
    return [
        {
            "images as": kind,
            "clients": f"{row['clients']:,}",
            "servers": f"{row['servers']:,}",
            "peak": f"{row['peak_gb']:.2f} GB",
            "parameters of all clients": f"{row['parameters_gb']:.2f} GB",
            "their data": f"{row['data_gb']:.2f} GB",
        }
        for kind, row in found.items()
    ]


def _ranks(details: Mapping[str, Any]) -> list[Row]:
    found = details["ranks"]
    against = _spread(details["ratios"].get("ranks_2_vs_1"))
    return [
        {"ranks": "1", "client steps/s": _spread(found["one"]), "x one rank": "1"},
        {"ranks": "2", "client steps/s": _spread(found["two"]), "x one rank": against},
    ]


def _profile(found: Mapping[str, Any]) -> list[Row]:
    return [{"phase": name, "share": f"{share:.1%}"} for name, share in found["shares"].items()]


def _machine(machine: Mapping[str, Any]) -> list[Row]:
    return [{"": key.replace("_", " "), " ": str(value)} for key, value in machine.items()]


def write_bench(results: Mapping[str, Any], folder: Path, name: str = "performance") -> list[Path]:
    """`performance.md` and `performance.png` in `folder`.

    Only what stands between the two marks is replaced where the document exists already.
    """
    text, picture = folder / f"{name}.md", folder / f"{name}.png"
    parts = [f"![Speed and growth]({picture.name})\n"]
    for title, rows in bench_tables(results):
        parts.append(f"### {title}\n\n{markdown_table(rows)}")
    measured = "\n".join([BEGIN, "", *parts, END])
    before, after = "# Performance\n\nMeasured by `sdfeel bench`.\n\n", "\n"
    if text.exists():
        old = text.read_text("utf-8")
        if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
            raise InputError(
                "out", str(text), f"exists, and lacks the lines {BEGIN} and {END} to write between"
            )
        before, after = old[: old.index(BEGIN)], old[old.index(END) + len(END) :]
    write_report(picture, figure_bytes(bench_figure(results), "png"))
    write_report(text, (before + measured + after).encode())
    return [text, picture]
