"""A process of the benchmark: `python -m speed.worker JOB`, with JOB as JSON.

At a first line it gets ready and says how long that took; then it answers every line with a number
of segments by a line with what it did and how long it took. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from processes import memory

__all__ = ["main"]


def _say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


def main() -> None:
    """Serve one job."""
    began = time.perf_counter()
    import torch

    from sdfeel.engines.choose import Unsupported
    from speed.jobs import Job, make_contender

    imported = time.perf_counter() - began
    sys.stdin.readline()
    began = time.perf_counter()
    job = Job(**json.loads(sys.argv[1]))
    torch.set_num_threads(job.threads)
    try:
        contender = make_contender(job)
    except Unsupported as reason:
        _say(unsupported=str(reason))
        return
    built = time.perf_counter()
    if contender.warms_up:
        contender.run(1)
    _say(
        engine=contender.engine,
        import_seconds=imported,
        build_seconds=built - began,
        first_seconds=time.perf_counter() - built,
    )
    for line in sys.stdin:
        began = time.process_time()
        units, parts = contender.run(int(line))
        _say(
            units=units,
            parts=parts,
            cpu_seconds=time.process_time() - began,
            peak_gb=memory(peak=True) / 1e9,
        )


if __name__ == "__main__":
    main()
    # Nothing is left to do, and to take torch down takes longer than a measurement.
    os._exit(0)
