"""Every attack that applies, from every vantage, in one matrix: what runs, what a cell says, its page. No attack lives here."""

from covey.audit.runs import audit, store, survey, write

__all__ = ["audit", "store", "survey", "write"]
