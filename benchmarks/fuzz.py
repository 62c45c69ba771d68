"""Hostile inputs for every parser, for as long as one likes.

    python benchmarks/fuzz.py --seconds 3600 --seed 1

Files (TOML of runs and deployments, latency profiles, graphs, checkpoints, stores, archives, run
folders), `--set` and messages on the wire, in turn. Nothing but the named errors may come out, and
no input may take longer than HANG seconds. Ends with one JSON object; status 1 if it has
violations.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "deploy"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "deployment"))

from fuzzing import Parser, parsers, quick_folder

HANG = 30.0
SLICE = 0.5  # seconds of one parser before the next has its turn
TOLD = 20  # violations of one parser that are told in full


class Hang(BaseException):
    """No parser may catch it."""


def _alarm(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
    raise Hang


def attack(parser: Parser, data: bytes) -> str | None:
    """What came out that must not; None if nothing did."""
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        return parser.try_one(data)
    except Hang:
        return f"no end within {HANG:g} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="one parser by its name")
    given = options.parse_args()
    signal.signal(signal.SIGALRM, _alarm)
    counts: dict[str, int] = {}
    violations: list[dict[str, object]] = []
    with quick_folder() as folder:
        chosen = [p for p in parsers(folder) if given.only in ("", p.name)]
        streams = [(parser, parser.inputs(given.seed)) for parser in chosen]
        end = time.monotonic() + given.seconds
        for parser, inputs in itertools.cycle(streams):
            if time.monotonic() >= end:
                break
            turn = time.monotonic() + SLICE
            for number, data in inputs:
                escaped = attack(parser, data)
                counts[parser.name] = number + 1
                if escaped and sum(v["parser"] == parser.name for v in violations) < TOLD:
                    violations.append({"parser": parser.name, "input": number, "what": escaped})
                if time.monotonic() >= turn:
                    break
    found = {"seed": given.seed, "inputs": counts, "violations": violations}
    print(json.dumps(found, indent=2))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
