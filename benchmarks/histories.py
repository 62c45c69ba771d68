"""Random histories of whole deployments in memory, for as many as one likes.

    python benchmarks/histories.py --histories 10000 --seed 739209

Edges and clients are the real ones; the network, the disks, the clocks and the certificates are
not. Nodes die and lose power, links break, are slow or silent, certificates are renewed, end or are
revoked, clocks are hours wrong. Whatever happens, the weighted mean of the models must be kept, all
periods must be made, and what one end of a link calls settled must be on the disk of the other.

History n has the seed SEED * 100,000 + n, as in the suite, where SEED is the day; a failure names
its own, and `--seed NUMBER --histories 1` repeats it. Ends with one JSON object; status 1 if it has
violations.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "deploy"))

import pytest
from twin_world import make_edges_cheap, one_history, run_schedule, run_secured

LARGEST_DAY = 10_000_000  # above it, a number is the seed of a single history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--plain", action="store_true", help="without certificates")
    options = parser.parse_args()
    first = options.seed if options.seed > LARGEST_DAY else options.seed * 100_000
    run = run_schedule if options.plain else run_secured
    start, seen, violations = time.monotonic(), Counter[str](), []
    with pytest.MonkeyPatch.context() as patches:
        make_edges_cheap(patches)
        for seed in range(first, first + options.histories):
            try:
                seen.update(one_history(seed, run).events)
            except Exception as problem:
                violations.append(f"{type(problem).__name__}: {problem}")
                print(violations[-1], file=sys.stderr)
            if seed % 100 == 0:
                gc.collect()
    result = {
        "first_seed": first,
        "histories": options.histories,
        "seconds": round(time.monotonic() - start, 1),
        "violations": violations,
        "events": dict(sorted(seen.items())),
    }
    print(json.dumps(result))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
