"""Weights handed over to an SGLang: by a process group, or as tensors in a request."""

import re
import threading
from collections.abc import Mapping
from typing import Any

from ...httpd.messages import Reply
from ..fastapi import validation
from ..fastapi.routing import Call
from ..fastapi.validation import REQUIRED, Fields, boolean, integer, list_of, optional, string
from ..options import EngineOptions
from ..state.machine import EngineState

_NAME = "weight_update_group"
_INIT: Fields = {
    "master_address": (string, REQUIRED),
    "master_port": (integer, REQUIRED),
    "rank_offset": (integer, REQUIRED),
    "world_size": (integer, REQUIRED),
    "group_name": (string, _NAME),
    "backend": (string, "nccl"),
}
_DESTROY: Fields = {"group_name": (string, _NAME)}
_HANDED: Fields = {
    "flush_cache": (boolean, True),
    "abort_all_requests": (boolean, False),
    "weight_version": (optional(string), None),
}
_BROADCAST: Fields = {
    "names": (list_of(string), REQUIRED),
    "dtypes": (list_of(string), REQUIRED),
    "shapes": (list_of(list_of(integer)), REQUIRED),
    "group_name": (string, _NAME),
    **_HANDED,
}
_TENSORS: Fields = {"serialized_named_tensors": (list_of(string), REQUIRED), **_HANDED}

# The first version that takes handed weights only between a begin and an end.
_FRAMED_SINCE = (0, 5, 16)


class SGLangWeights:
    """Answers the routes of handed weights.

    A group's `init` and each broadcast block until the trainer does its part (`join`), and
    so does the real engine, for ever if it must. The weights serve from the answer on. In a
    pause, a broadcast that blocks holds up the resume as well.
    """

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._options, self._state = options, state
        self._lock = threading.Lock()
        self._groups: set[str] = set()
        self._begun = False
        self._transfers = 0
        self.framed = _numbers(options.version) >= _FRAMED_SINCE

    def init_group(self, call: Call) -> Reply:
        name = str(validation.body(call, _INIT)["group_name"])
        need_one_rank(self._options)
        self._state.wait_for_trainer(call.gone)
        with self._lock:
            self._groups.add(name)
        return _said(True, "Succeeded to initialize custom process group.")

    def destroy_group(self, call: Call) -> Reply:
        name = str(validation.body(call, _DESTROY)["group_name"])
        need_one_rank(self._options)
        with self._lock:
            if name not in self._groups:
                return _said(False, "The group to be destroyed does not exist.")
            self._groups.remove(name)
        return _said(True, "Succeeded to destroy custom process group.")

    def begin(self, call: Call) -> Reply:
        return self._frame(True)

    def end(self, call: Call) -> Reply:
        return self._frame(False)

    def from_group(self, call: Call) -> Reply:
        body = validation.body(call, _BROADCAST)
        need_one_rank(self._options)
        with self._state.handing_over():
            if problem := self._outside_frame("update_weights_from_distributed") or self._without_group(body):
                return problem
            self._state.wait_for_trainer(call.gone)
            return self._load(body)

    def from_tensors(self, call: Call) -> Reply:
        body = validation.body(call, _TENSORS)
        need_one_rank(self._options)
        with self._state.handing_over():
            return self._outside_frame("update_weights_from_tensor") or self._load(body)

    def _frame(self, begun: bool) -> Reply:
        with self._state.handing_over(), self._lock:
            self._begun = begun
        return _said(True, "Success")

    def _without_group(self, body: Mapping[str, Any]) -> Reply | None:
        name = str(body["group_name"])
        with self._lock:
            if name in self._groups:
                return None
            known = f"Group {name} not in {sorted(self._groups)}."
        return _said(False, f"Failed to receive weights: {known} Please call `init_weights_update_group` first.")

    def _outside_frame(self, route: str) -> Reply | None:
        with self._lock:
            if self._begun or not self.framed:
                return None
        return _said(False, f"{route} must run between begin_weight_update() and end_weight_update()")

    def _load(self, body: Mapping[str, Any]) -> Reply:
        # No path says what came: it is named for how often something came.
        with self._lock:
            self._transfers += 1
            path = f"transfer-{self._transfers}"
        version = body["weight_version"]
        self._state.refit(path, version, flush=body["flush_cache"], abort=body["abort_all_requests"], handed=True)
        named = "" if version is None else f" Weight version updated to {version}."
        return _said(True, f"Succeeded to update parameter online.{named}")


class AssertionFailed(Exception):
    """What a real engine asserts does not hold: a bare 500."""


def need_one_rank(options: EngineOptions) -> None:
    """Assert, as a real engine does, that there is one data parallel rank."""
    if options.dp_size != 1:
        raise AssertionFailed


def _said(success: bool, message: str) -> Reply:
    return Reply.of_json(200 if success else 400, {"success": success, "message": message})


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version; one that cannot be read is new."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else _FRAMED_SINCE
