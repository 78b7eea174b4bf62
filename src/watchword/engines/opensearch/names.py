"""The one way an index is named to the cluster: whole, concrete, and nothing that could mean another one.

What is not `[a-z0-9][a-z0-9_-]*` never leaves the process: no wildcard, list, exclusion, `_all`, date math, other
cluster or path can be said with it. Whoever hands over something else has a defect, hence ValueError.
"""

import re

from watchword.domain.tasks import TaskId

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,254}", re.ASCII)
_PART = re.compile(r"[a-z0-9_-]{0,128}", re.ASCII)

EXACT = "expand_wildcards=none&ignore_unavailable=false&allow_no_indices=false"
"""Said with every call that takes it: the name is no pattern, and an index that is not there is an error."""

_INLET = "_INLET"
_TAG = re.compile(r"[!-~]{1,200}", re.ASCII)


def concrete(name: str) -> str:
    """The name itself, for the body of a request."""
    if not is_concrete(name):
        raise ValueError(f"{name!r} does not name one index")
    return name


def is_concrete(name: str) -> bool:
    return bool(_NAME.fullmatch(name))


def path(index: str, call: str = "", **parameters: str | int) -> str:
    """The address of this index, or of a call on it."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"/{concrete(index)}{'/' if call else ''}{call}?{EXACT}{more}"


def bare_path(index: str, call: str = "") -> str:
    """The same for the calls that take no such parameters."""
    return f"/{concrete(index)}{'/' if call else ''}{call}"


def state_path(index: str) -> str:
    return f"/_cluster/state/metadata/{concrete(index)}?{EXACT}&filter_path=metadata.indices.*.routing_num_shards"


def listing(head: str, ending: str, call: str) -> str:
    """The only pattern that is ever sent, by calls that only read: open indices that begin and end so, by alias too."""
    if not _PART.fullmatch(head) or not _PART.fullmatch(ending) or not (head or ending):
        raise ValueError(f"{head!r} and {ending!r} are no head and ending of an index")
    return f"/{head}*{ending}/{call}?expand_wildcards=open&ignore_unavailable=true&allow_no_indices=true"


def task_path(task: TaskId, call: str = "") -> str:
    whole = TaskId.parse(str(task))
    return f"/_tasks/{whole}{'/' if call else ''}{call}"


def inlet(target: str) -> str:
    """The alias by which a copy is filled. No index can be called so, because of its capitals: whatever still writes
    when the copy is gone gets an error, where a name in small letters would make a new index come into being.
    """
    return concrete(target) + _INLET


def tag_header(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} cannot be the tag of a task: 1 to 200 visible ASCII characters")
    return tag
