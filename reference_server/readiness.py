"""The routes that an orchestrator asks: is the gateway alive, and can it serve?"""

import threading

from .httpd.messages import Reply, Request
from .registry import Registry


class Readiness:
    """Answers from the registry; `stopping` tells that the gateway is about to end."""

    def __init__(self, registry: Registry, stopping: threading.Event) -> None:
        self._registry, self._stopping = registry, stopping

    def alive(self, request: Request) -> Reply:
        return Reply.of_text(200, "OK")

    def ready(self, request: Request) -> Reply:
        workers = self._registry.all()
        ready = sum(worker.health == "ready" for worker in workers)
        if self._stopping.is_set() or not ready:
            reason = "shutting down" if self._stopping.is_set() else "insufficient healthy workers"
            return Reply.of_json(503, {"status": "not ready", "reason": reason})
        return Reply.of_json(200, {"status": "ready", "healthy_workers": ready, "total_workers": len(workers)})
