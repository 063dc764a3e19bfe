"""What the fields of messages carry, in one vocabulary: generic code asks for a role, never for a field by its spelling.

    @message
    @dataclass(frozen=True)
    class ClusterUpdate:
        model: Annotated[Tensor, roles.Model]
        cluster: Annotated[int, roles.Identity]
        samples: Annotated[int, roles.Count]

Admission checks a reply field by field, attacks read what they can use of a message, the audit finds out what a party is
handed and whether anything of it is sealed. A role of one's own is a subclass of `Role` with words and a check.
"""

# All that these files define: a role that is added to one of them needs no line here.
from covey.roles.asking import *  # noqa: F403
from covey.roles.plain import *  # noqa: F403
from covey.roles.role import *  # noqa: F403
from covey.roles.sealed import *  # noqa: F403
