"""How long a node's certificate still counts: told before it ends, and by the node that has it."""

from __future__ import annotations

import datetime
import math

from cryptography import x509

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.facts.facts import Fact
from sdfeel.deploy.facts.metrics import ClientMetrics, Metrics
from sdfeel.deploy.facts.stream import Tell
from sdfeel.deploy.trust.identity import Credentials

__all__ = ["Lifetime"]

# Of a certificate's whole life: a timer that renews it has failed by then.
SOON = 0.25


class Lifetime:
    """Looked at now and then; tells what is news."""

    def __init__(
        self, credentials: Credentials, tell: Tell, metrics: Metrics | ClientMetrics | None = None
    ) -> None:
        self._credentials, self._tell, self._metrics = credentials, tell, metrics
        self._told: dict[type[Fact], str] = {}

    @property
    def hours(self) -> float:
        """Until the certificate ends; infinite in plain text."""
        certificate = self._credentials.certificate
        if certificate is None:
            return math.inf
        return _hours(certificate.not_valid_after_utc - _now())

    def look(self) -> list[Concern]:
        """Return what an operator should know; news is also told, and the days go to the metric."""
        certificate = self._credentials.certificate
        if self._metrics is not None:
            self._metrics.certificate.set(self.hours / 24)
        if certificate is None:
            return []
        texts = {"certificate": self._end(certificate), "revocation-list": self._list()}
        return [Concern(kind, text) for kind, text in texts.items() if text]

    def _end(self, certificate: x509.Certificate) -> str:
        end = certificate.not_valid_after_utc
        until = f"{end:%Y-%m-%d %H:%M} UTC"
        left = self.hours / _hours(end - certificate.not_valid_before_utc)
        renew = f"`sdfeel provision node FILE {self._credentials.name}` renews it"
        if left <= 0:
            self._news(
                str(certificate.serial_number), facts.CertificateExpired(until=until, remedy=renew)
            )
            return f"the certificate ended on {until}; {renew}"
        if left > SOON:
            if self._told.keys() & {facts.CertificateEnds, facts.CertificateExpired}:
                self._told.clear()
                self._tell(facts.CertificateRenewed(until=until))
            return ""
        # Again at each half of what was left: rarely, and more often when it matters.
        level = f"{certificate.serial_number} {math.floor(math.log2(SOON / left))}"
        hours = round(self.hours, 2)
        self._news(level, facts.CertificateEnds(until=until, hours=hours, remedy=renew))
        return f"the certificate ends in {self.hours:.1f} h; {renew}"

    def _list(self) -> str:
        problem = self._credentials.list_problem()
        self._news(problem, facts.RevocationList(reason=problem))
        return problem

    def _news(self, what: str, fact: Fact) -> None:
        if what != self._told.get(type(fact), ""):
            self._told[type(fact)] = what
            if what:
                self._tell(fact)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _hours(span: datetime.timedelta) -> float:
    return span.total_seconds() / 3600
