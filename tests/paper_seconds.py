"""The paper's own latency formulas (section IV-B), beside the event clock that replaces them."""

from __future__ import annotations

import math

__all__ = ["fedavg_round", "feel_round", "hierfavg_round", "paper_latency", "sdfeel_round"]


def sdfeel_round(
    tau1: int, tau2: int, alpha: int, t_cmp: float, t_ct_sr: float, t_sr_sr: float
) -> float:
    """tau2 (tau1 t_cmp + t_ct-sr) + alpha t_sr-sr: one round of tau1 tau2 iterations."""
    return tau2 * (tau1 * t_cmp + t_ct_sr) + alpha * t_sr_sr


def hierfavg_round(tau1: int, tau2: int, t_cmp: float, t_ct_sr: float, t_sr_cd: float) -> float:
    """As SD-FEEL, with one upload from the servers to the cloud in place of the exchanges."""
    return tau2 * (tau1 * t_cmp + t_ct_sr) + t_sr_cd


def fedavg_round(tau: int, t_cmp: float, t_ct_cd: float) -> float:
    """Tau t_cmp + t_ct-cd, tau = tau1 tau2."""
    return tau * t_cmp + t_ct_cd


def feel_round(tau: int, t_cmp: float, t_ct_sr: float) -> float:
    """Tau t_cmp + t_ct-sr."""
    return tau * t_cmp + t_ct_sr


def paper_latency(iterations: int, tau1: int, tau2: int, seconds_per_round: float) -> float:
    """t_tot = ceil(K / (tau1 tau2)) rounds, as printed in the paper.

    The ceiling charges for steps, uploads and exchanges that do not happen when K is not a
    multiple of tau1 tau2; the event clock counts what happens. At multiples the two agree.
    """
    return math.ceil(iterations / (tau1 * tau2)) * seconds_per_round
