"""Peak memory of a process, from Linux's own count.

``ru_maxrss`` will not do for a child: until it executes its program it is its parent's copy, and
that peak stays in the count. ``VmHWM`` belongs to the program's own memory.
"""

import re
from pathlib import Path


def peak_mb(status: Path = Path("/proc/self/status")) -> float:
    """Largest resident memory so far, in MiB.

    Args:
        status: The process's status file, or a copy of it.

    Raises:
        ValueError: The file has no such line.
    """
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{status} has no VmHWM line: not a Linux process status")
    return int(found[1]) / 1024
