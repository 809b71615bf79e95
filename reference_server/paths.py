"""Engine paths: 1 to 4 segments of a small alphabet; the operation a path names.

Contract, chapters "Engine paths" and "Metrics" (the known operations).
"""

import re

from .errors import Code, Refusal, refusal

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_MAX_SEGMENTS = 4

OPERATIONS = frozenset(
    "pause_generation continue_generation update_weights_from_disk update_weights_from_tensor"
    " update_weights_from_distributed init_weights_update_group destroy_weights_update_group"
    " update_weight_version flush_cache abort_request release_memory_occupation"
    " resume_memory_occupation pause resume sleep wake_up collective_rpc server_info"
    " get_server_info health".split()
)


def engine_path(decoded: str) -> str:
    """The path without its leading slash; raises `Refusal` (`invalid_engine_path`).

    `decoded` has its percent escapes resolved already, so that `%2e%2e` is seen as `..`.
    """
    path = decoded.removeprefix("/")
    segments = path.split("/")
    if not path:
        raise _invalid("path is empty")
    if "?" in path or "#" in path:
        raise _invalid("path must not contain `?` or `#`")
    if len(segments) > _MAX_SEGMENTS:
        raise _invalid(f"path has more than {_MAX_SEGMENTS} segments")
    for segment in segments:
        if not segment:
            raise _invalid("path has an empty segment")
        if segment in (".", ".."):
            raise _invalid("path must not contain `.` or `..` segments")
        if not _SEGMENT.fullmatch(segment):
            raise _invalid(f"segment `{segment}` contains characters outside [A-Za-z0-9._-]")
    return path


def operation(path: str) -> str:
    """The metric label of a path: its own name when known, else `other`."""
    return path if path in OPERATIONS else "other"


def _invalid(reason: str) -> Refusal:
    return refusal(Code.INVALID_ENGINE_PATH, f"invalid engine path: {reason}")
