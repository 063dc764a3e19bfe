"""How much protection an experiment can afford: accuracy against leak against cost over the strengths of its protections."""

from covey.audit.frontier.frontier import frontier
from covey.audit.frontier.output import store_frontier, write_frontier

__all__ = ["frontier", "store_frontier", "write_frontier"]
