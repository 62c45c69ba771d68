"""The fast engine and all others beside the plain loop and the machine's matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sdfeel.engines.choose import ENGINES
from sdfeel.models import count_flops
from speed import measuring
from speed.extent import Extent
from speed.jobs import SHAPES, Job, make_model
from speed.measuring import Measured, Spread, cores, ratio, spread

__all__ = ["LOOP_ALL", "SETTINGS", "periods", "speed", "widths"]

# Setting -> (key of its ratio to the loop, its model, what it is, the same in short)
SETTINGS = {
    "mnist": ("fast_vs_loop", "mnist-cnn", "CNN of 21,840 parameters on 1x28x28", "CNN, 1x28x28"),
    "cifar": (
        "cifar_fast_vs_loop",
        "cifar-cnn",
        "CNN of 21,840 parameters on 3x32x32",
        "CNN, 3x32x32",
    ),
    "mlp": ("mlp_fast_vs_loop", "mlp", "MLP 784-200-10", "MLP 784-200-10"),
}
LOOP, LOOP_ALL, LOOP_OFF = "plain loop", "plain loop, all cores", "plain loop, oneDNN off"
ONE_THREAD, PRODUCT, PRODUCT_ONE = "fast, 1 thread", "matrix product", "matrix product, 1 thread"


def _jobs(*jobs: Job) -> list[dict[str, Any]]:
    return [job.as_dict() for job in jobs]


def speed(
    name: str, extent: Extent, every: bool, ratios: dict[str, Spread | None]
) -> dict[str, Any]:
    """Loop, engines and matrix product on one setting; fills in the ratios that it gives."""
    key, model, about, short = SETTINGS[name]
    base = Job("plain-loop", model=model, clients=extent.clients)
    processes = min(cores(), extent.clients)
    threads = cores()
    teams = {LOOP: _jobs(base)}
    if every:
        share = replace(base, clients=extent.clients // processes)
        teams[LOOP_ALL] = _jobs(*[share] * processes)
    if every and extent.variants:
        teams[LOOP_OFF] = _jobs(replace(base, kind="plain-loop-onednn-off"))
        teams[PRODUCT_ONE] = _jobs(replace(base, kind="matmul"))
        teams[ONE_THREAD] = _jobs(replace(base, kind="fast"))
    if every or extent.variants:
        teams[PRODUCT] = _jobs(replace(base, kind="matmul", threads=threads))
    for engine in extent.engines if every else ("fast",):
        teams[engine] = _jobs(replace(base, kind=engine, threads=threads))
    found = measuring.measure(teams, extent.repetitions, extent.seconds)
    flops = count_flops(make_model(base), SHAPES[model], base.batch_size)
    ratios[key] = ratio(found["fast"], found[LOOP])
    if name == "mnist":
        ratios["share_of_matmul"] = ratio(found["fast"], found[PRODUCT], flops)
        if every:
            ratios["fast_vs_loop_all_cores"] = ratio(found["fast"], found[LOOP_ALL])
    rows = {who: _row(who, found, flops) for who in _in_order(found)}
    return {
        "about": about,
        "short": short,
        "clients": extent.clients,
        "flops_per_step": flops,
        "rows": rows,
    }


def _in_order(found: Mapping[str, Measured]) -> list[str]:
    order = [LOOP, LOOP_OFF, LOOP_ALL, *ENGINES, ONE_THREAD, PRODUCT_ONE, PRODUCT]
    return sorted(found, key=order.index)


def _row(who: str, found: Mapping[str, Measured], flops: float) -> dict[str, Any]:
    """One contender in numbers; a ratio is None where its other side was not measured."""
    own = found[who]
    if own.unsupported:
        return {"unsupported": own.unsupported}
    row: dict[str, Any] = {"first_start_seconds": own.first_start, "peak_gb": own.peak_gb}
    if who in (PRODUCT, PRODUCT_ONE):
        return row | {"gflops": spread([rate / 1e9 for rate in own.rates]).as_dict()}
    compared = {
        "vs_loop": (LOOP, 1.0),
        "vs_loop_all_cores": (LOOP_ALL, 1.0),
        "share_of_matmul": (PRODUCT, flops),
    }
    row["steps_per_second"] = spread(own.rates).as_dict()
    # Hardly changes when other programs take the cores away: a check on a busy machine.
    pairs = zip(own.units, own.cpu_seconds, strict=True)
    row["steps_per_cpu_second"] = spread([n / max(s, 1e-9) for n, s in pairs]).as_dict()
    for key, (other, factor) in compared.items():
        against = ratio(own, found[other], factor) if other in found else None
        row[key] = against.as_dict() if against else None
    return row


def widths(extent: Extent) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for width in extent.widths:
        base = Job("plain-loop", model="mlp", width=width, clients=extent.clients)
        teams = {
            LOOP: _jobs(base),
            "fast": _jobs(replace(base, kind="fast", threads=cores())),
            PRODUCT: _jobs(replace(base, kind="matmul", threads=cores())),
        }
        found = measuring.measure(teams, extent.repetitions, extent.seconds)
        model = make_model(base)
        flops = count_flops(model, SHAPES["mlp"], base.batch_size)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows[str(width)] = {
            "parameters": parameters,
            "flops_per_step": flops,
            LOOP: _row(LOOP, found, flops),
            "fast": _row("fast", found, flops),
        }
    return rows


def periods(extent: Extent) -> dict[str, Any]:
    """tau1 -> setting -> the fast engine: a client that stays longer is loaded less often."""
    rows: dict[str, Any] = {str(tau1): {} for tau1 in extent.periods}
    for name in ("mnist", "mlp"):
        _, model, _, short = SETTINGS[name]
        for tau1, row in rows.items():
            base = Job("plain-loop", model=model, clients=extent.clients, tau1=int(tau1))
            fast = replace(base, kind="fast", threads=cores())
            teams = {LOOP: _jobs(base), "fast": _jobs(fast)}
            found = measuring.measure(teams, extent.repetitions, extent.seconds)
            row[short] = _row("fast", found, 0.0)
    return rows
