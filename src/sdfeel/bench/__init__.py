"""How fast every engine is, beside a plain PyTorch loop and the machine's matrix product.

Everything that is compared is measured in one run and in turn, each in a process of its own. What a
first start costs (building, compiling) is reported apart.
"""

from sdfeel.bench.report import bench_tables, write_bench
from sdfeel.bench.suite import FULL, KEYS, QUICK, Extent, run_bench

__all__ = ["FULL", "KEYS", "QUICK", "Extent", "bench_tables", "run_bench", "write_bench"]
