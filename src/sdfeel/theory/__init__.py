"""The theory room: Theorem 1, its constants, and how far models drift apart."""

from sdfeel.theory.bound import Constants, Lemma2, Theorem1
from sdfeel.theory.on_network import NetworkBound, bound_on
from sdfeel.theory.participation import ParticipationTerms, participation

__all__ = [
    "Constants",
    "Lemma2",
    "NetworkBound",
    "ParticipationTerms",
    "Theorem1",
    "bound_on",
    "participation",
]
