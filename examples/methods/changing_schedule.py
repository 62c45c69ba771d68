"""tau1, tau2 and alpha as functions of the round: few uploads at first, exact averages at last."""

import sdfeel


def schedule(warm: int = 5) -> sdfeel.Schedule:
    """Ten local steps a period in the first rounds, then two; one exchange, then five."""
    return sdfeel.Schedule(
        tau1=lambda number: 10 if number < warm else 2,
        tau2=lambda number: 2 if number < warm else 1,
        alpha=lambda number: 1 if number < warm else 5,
    )
