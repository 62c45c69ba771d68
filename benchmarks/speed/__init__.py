"""How fast every engine is, beside a plain PyTorch loop and the machine's matrix product.

Everything that is compared is measured in one run and in turn, each in a process of its own. What a
first start costs (building, compiling) is reported apart. `suite` measures, `report` writes; the
processes that are measured load neither of them.
"""
