"""Every attack that applies, from every vantage, in one matrix: what runs, what a cell says, its page. No attack lives here."""

from covey.audit.runs import audit, store, write
from covey.audit.surveys import survey

__all__ = ["audit", "store", "survey", "write"]
