"""Canaries: the ledger's ε tested from below, by samples that are planted and guessed. No mechanism is copied here: it is run."""

from covey.audit.canaries.ledger import audit_ledger
from covey.audit.canaries.verdict import LedgerTest

__all__ = ["LedgerTest", "audit_ledger"]
