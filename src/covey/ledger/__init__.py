"""Privacy spends: events say what happened, accountants price it, statements put it in words. No noise is drawn here."""
