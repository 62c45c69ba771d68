"""Whether a reshaping changed a number: a table of runs, recorded before and compared after.

    python benchmarks/same_bits.py record FOLDER     # before the first change
    python benchmarks/same_bits.py compare FOLDER    # after it: runs all again

Every engine with every scheme and averager, robust rules, participation below 1, two ranks, and a
run that was resumed after it had ended with a shorter period. What is compared are the bytes of
`metrics.csv` and of the models; where they differ, by how much.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

COMMON = [
    "steps=12", "batch_size=7", "lr=0.05", "network.servers=4", "evaluation.every=4",
    "network.clients_per_server=[3, 1, 4, 2]", "schedule.tau1=2", "schedule.tau2=2",
    "schedule.alpha=2", "evaluation.train_samples=300", "evaluation.test_samples=300",
    "clock.profile=paper",
]  # fmt: skip
ENGINES = ("reference", "vectorised", "fast")
SCHEMES = ("sd-feel", "hierfavg", "fedavg", "feel", "feel-all", "sync-sgd")
AVERAGERS = ("metropolis", "chebyshev", "finite-time", "all-reduce", "exact")
FILES = ("metrics.csv", "model.safetensors", "servers.safetensors")

# The settings of each run, and the options of its command line.
Run = tuple[list[str], list[str]]


def table() -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for engine in ENGINES:
        own = [f"engine={engine}"]
        for scheme in SCHEMES:
            runs[f"{engine}-{scheme}"] = ([*own, f"scheme={scheme}"], [])
        for averager in AVERAGERS:
            runs[f"{engine}-{averager}"] = ([*own, f"averager={averager}"], [])
        for rule in ("clip", "trimmed", "median"):
            runs[f"{engine}-{rule}"] = ([*own, f"averaging_rule.name={rule}"], [])
        runs[f"{engine}-absent"] = ([*own, "schedule.participation=0.6"], [])
        runs[f"{engine}-mlp"] = ([*own, "model.name=mlp"], [])
        for averager in ("paper", "all-reduce"):
            several = [*own, f"averager={averager}", "schedule.participation=0.7"]
            runs[f"{engine}-{averager}-2-ranks"] = (several, ["--ranks", "2"])
        runs[f"{engine}-resumed"] = (own, ["--resume"])
    return runs


def carry_out(name: str, run: Run, folder: Path) -> None:
    settings, options = run

    def start(*more: str) -> None:
        words = [word for setting in (*COMMON, *settings, *more) for word in ("--set", setting)]
        command = [sys.executable, "-m", "sdfeel", "run", "mnist-5k", "--out", str(folder / name)]
        whole = [*command, *words, *options]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr[-1000:]}")

    if "--resume" in options:
        start("steps=3")  # which ends with a shorter period
    start()


def difference(one: Path, other: Path) -> float:
    """The largest difference between two tables or two files of models."""
    if one.suffix == ".csv":
        here, there = pd.read_csv(one), pd.read_csv(other)
        if list(here) != list(there) or len(here) != len(there):
            return float("inf")
        return float(np.nanmax(np.abs(here.to_numpy() - there.to_numpy())))
    here, there = load_file(one), load_file(other)
    return max(float(np.abs(here[key] - there[key]).max()) for key in there)


def compare(before: Path, after: Path, name: str) -> bool:
    same = True
    for file in FILES:
        one, other = before / name / file, after / name / file
        if one.read_bytes() != other.read_bytes():
            same = False
            print(f"{name}: {file} differs by up to {difference(other, one):.1e}")
    return same


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    wanted = sys.argv[3] if len(sys.argv) > 3 else ""
    runs = {name: run for name, run in table().items() if wanted in name}
    if verb == "record":
        folder.mkdir(parents=True)
        for name, run in runs.items():
            carry_out(name, run, folder)
        print(f"{len(runs)} runs recorded in {folder}")
        return
    with tempfile.TemporaryDirectory() as fresh:
        for name, run in runs.items():
            carry_out(name, run, Path(fresh))
        same = sum([compare(folder, Path(fresh), name) for name in runs])
    print(f"{same} of {len(runs)} runs are the same bit for bit")


if __name__ == "__main__":
    main()
