"""Every engine beside a plain PyTorch loop, and 10,000 clients in memory: what `sdfeel bench` does.

    python benchmarks/core.py [--quick]

Prints the ratios of one run as JSON, with their median, least and most.
"""

from __future__ import annotations

import argparse
import json
import sys

from sdfeel.bench.suite import FULL, QUICK, run_bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less, in about a minute")
    chosen = parser.parse_args()
    results = run_bench(
        QUICK if chosen.quick else FULL, say=lambda text: print(text, file=sys.stderr)
    )
    print(json.dumps(results["details"]["ratios"], indent=2))


if __name__ == "__main__":
    main()
