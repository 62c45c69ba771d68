"""What `sdfeel bench` measures, and the numbers that it answers with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speed import growth, kinds
from speed.auto import auto_against_loop
from speed.engines import SETTINGS, periods, speed, widths
from speed.extent import FULL, QUICK, Extent
from speed.machine import describe_machine, load
from speed.measuring import Spread, spread
from speed.ranks import ranks_against_one

__all__ = ["FULL", "KEYS", "QUICK", "RATIOS", "run_bench"]

RATIOS = (
    "fast_vs_loop",
    "fast_vs_loop_all_cores",
    "cifar_fast_vs_loop",
    "mlp_fast_vs_loop",
    "growth_10000",
    "rss_gb_10000",
    "ranks_2_vs_1",
    "share_of_matmul",
)
# Objects: a ratio for each name.
KINDS = ("losses_vs_softmax", "adam_vs_sgd")
KEYS = (*RATIOS, "auto_vs_loop", *KINDS, "layers_vs_loop")


def run_bench(extent: Extent = FULL, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Measure all of `extent`: the keys of `KEYS`, and `details`. What was not measured is None."""
    machine = describe_machine()
    ratios: dict[str, Spread | None] = dict.fromkeys(RATIOS)
    details: dict[str, Any] = {"machine": machine, "settings": {}}
    for number, name in enumerate(extent.settings):
        say(f"{SETTINGS[name][2]}: loop, engines, matrix product")
        every = extent.all_engines_everywhere or number == 0
        details["settings"][name] = speed(name, extent, every, ratios)
    objects = _beside_softmax(extent, details, say)
    auto: dict[str, float | None] | None = None
    if extent.zoo:
        details["zoo"] = {}
        for name in extent.zoo:
            say(f"{name}: auto against the loop on all cores")
            details["zoo"][name] = auto_against_loop(name, extent)
        found = {name: own["ratio"] for name, own in details["zoo"].items()}
        auto = {name: own["median"] if own else None for name, own in found.items()}
    objects["layers_vs_loop"] = None
    if extent.layers:
        say("layers of the fast engine against the loop on all cores")
        details["layers"] = {name: auto_against_loop(name, extent) for name in extent.layers}
        ratios_of = {name: own["ratio"] for name, own in details["layers"].items()}
        objects["layers_vs_loop"] = {n: own["median"] for n, own in ratios_of.items() if own}
    if extent.growth:
        say("growth with clients")
        details["clients"], ratios["growth_10000"] = growth.clients(extent)
    if extent.servers:
        say("growth with servers")
        details["servers"] = growth.servers(extent)
    if extent.topologies:
        details["topology"] = {
            str(count): growth.topology_seconds(count) for count in extent.topologies
        }
    if extent.widths:
        say("growth with the model's size")
        details["widths"] = widths(extent)
    if extent.periods:
        say("growth with tau1")
        details["periods"] = periods(extent)
    if extent.memory:
        say("memory")
        details["memory"], ratios["rss_gb_10000"] = growth.memory(*extent.memory)
    if extent.rank_steps:
        say("two ranks against one")
        details["ranks"] = ranks_against_one(extent.rank_steps, min(extent.repetitions, 5))
        ratios["ranks_2_vs_1"] = spread(details["ranks"]["ratios"])
    if extent.profile_steps:
        say("what a run with 1,000 clients spends its time on")
        details["profile"] = growth.profile(extent.profile_steps)
    machine["load_after"] = round(load(), 2)
    details["ratios"] = {key: found.as_dict() for key, found in ratios.items() if found}
    numbers = {key: found.median if found else None for key, found in ratios.items()}
    return {**numbers, "auto_vs_loop": auto, **objects, "details": details}


def _beside_softmax(
    extent: Extent, details: dict[str, Any], say: Callable[[str], None]
) -> dict[str, dict[str, float] | None]:
    """Return the ratios of `KINDS`, by name."""
    objects: dict[str, dict[str, float] | None] = dict.fromkeys(KINDS)
    asked = dict(zip(KINDS, (extent.losses, extent.optimizers), strict=True))
    if any(asked.values()):
        say("losses and optimizers beside softmax with SGD")
        found = kinds.kinds_against_softmax([*extent.losses, *extent.optimizers], extent)
        for key, names in asked.items():
            details[key] = {name: found[name].as_dict() for name in names}
            objects[key] = {name: found[name].median for name in names}
    return objects
