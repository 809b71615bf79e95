"""`RL`: arguments -> request, answer -> value or exception.

Contract, chapter "The Python client".
"""

import contextlib
import copy
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from . import answers, chunks, encoding, quarantine
from .encoding import Headers, Params
from .engines import UNKNOWN_STATUS
from .errors import RlError
from .messages import Failure
from .results import CallResult, FanoutFailure, FanoutResult, Worker
from .selectors import Selector

if TYPE_CHECKING:
    import ssl

    from .messages import Sender

Report = Callable[[list[CallResult], list[FanoutFailure]], None]
"""Takes the answers and the failures of a call that changes weights."""

_PARTS_AT_ONCE = 8


class RL:
    """A client of one gateway's `/v1/rl` control plane.

    `base_url`: `http(s)://host[:port][/prefix]`. `api_key`: sent as a bearer token to
    the gateway, never further. `timeout`: seconds for a whole call, from connecting to
    the last byte; make it longer than the gateway's own (600 s by default), or the
    gateway cannot tell you who failed. `ssl_context`: for a private CA or mTLS.
    `trust_env`: use the environment's proxies. `headers`: sent with every request, a
    mapping or a function that gives one (`x-request-id`, `traceparent`). `sender`: sends
    the requests instead of urllib, `messages.Sender` tells how; it never sees the API key.
    `verify`: every `paused` of this client reads the status of its engines, unless it says
    otherwise.

    Raises `ValueError` for an argument that cannot work. May be shared by threads and,
    without an `ssl_context`, pickled; opens a new connection for every call and keeps none.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 600.0,
        *,
        ssl_context: "ssl.SSLContext | None" = None,
        trust_env: bool = False,
        headers: Headers | Callable[[], Headers] | None = None,
        sender: "Sender | None" = None,
        verify: bool = False,
    ) -> None:
        self.base_url = encoding.base_url(base_url)
        self.timeout = _seconds(timeout)
        self._api_key = encoding.api_key(api_key)
        self._ssl_context, self._trust_env = ssl_context, trust_env
        self._headers = headers if callable(headers) else encoding.headers(headers)
        self.verify = verify
        self._given = sender
        self._sender = sender

    def workers(self, *, timeout: float | None = None) -> list[Worker]:
        """Every engine the gateway manages, sorted by address."""
        listing = self._send("GET", "/v1/rl/workers", timeout=timeout).expect("workers")
        rows = listing["workers"]
        return [Worker.of(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def worker(self, worker_id: str, *, timeout: float | None = None) -> Worker:
        """One engine; raises `RlError` with code `worker_not_found` for an unknown id."""
        path = f"/v1/rl/workers/{encoding.part(worker_id, 'worker_id')}"
        return Worker.of(self._send("GET", path, timeout=timeout).expect("id"))

    def call(
        self,
        worker_id: str,
        path: str,
        body: object = None,
        *,
        method: str = "POST",
        params: Params | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """Call one engine's own route and return what it answered, 4xx and 5xx included.

        `body` is sent as JSON; None sends none (`{}` is a body). `params` is the
        engine's query: lists become repeated keys, booleans `true` and `false`.
        Raises `RlError` for what the gateway refuses or cannot reach.
        """
        where = f"/v1/rl/workers/{encoding.part(worker_id, 'worker_id')}/engine/{encoding.engine_path(path)}"
        started = time.monotonic()
        with self._refit(path, worker_id) as report:
            answer = self._send(method, where, encoding.query(params), body, timeout)
            if answer.bodiless:
                # HTTP has no body for these statuses, so the envelope is lost on the way.
                elapsed = int((time.monotonic() - started) * 1000)
                result = CallResult(worker_id, "", answer.status, elapsed, "")
            else:
                result = CallResult.of(answer.envelope())
            report([result], [])
        return result

    def fanout(
        self,
        path: str,
        body: object = None,
        *,
        selector: str | Selector,
        method: str = "POST",
        params: Params | None = None,
        timeout: float | None = None,
        allow_partial: bool = False,
    ) -> FanoutResult:
        """Call the same route of every engine that matches, and wait for all of them.

        Raises `FanoutError` when any target failed, unless `allow_partial`; its
        `result` is what would have been returned. Arguments as for `call`.
        """
        query = [pair for pair in encoding.query(params) if pair[0] != "selector"]
        where = f"/v1/rl/engine/{encoding.engine_path(path)}"
        parts = chunks.pieces(selector, self._room(method, where, query))
        seconds = self.timeout if timeout is None else _seconds(timeout)
        with self._refit(path, quarantine.EVERYBODY) as report:
            statuses: list[int] = []

            def send(part: str) -> FanoutResult:
                answer = self._send(method, where, [*query, ("selector", part)], body, seconds)
                statuses.append(answer.status)
                return FanoutResult.of(answer.report())

            result = self._fanned_out(parts, send)
            report(list(result.results.values()), result.failed)
        if result.failed and not allow_partial:
            raise answers.partial(max(statuses), result, path, self._hide, without_body=body is None)
        return result

    def _room(self, method: str, where: str, query: Sequence[tuple[str, str]]) -> int:
        """Bytes that a request line has left for a selector."""
        line = f"{method} {encoding.path_of(self.base_url)}{where}?{urlencode([*query, ('selector', '')])} HTTP/1.1"
        return chunks.LONGEST_LINE - len(line)

    def _fanned_out(self, parts: list[str], send: Callable[[str], FanoutResult]) -> FanoutResult:
        """One fan-out for each part, all at once, and one report; raises the first error."""
        if len(parts) == 1:
            return send(parts[0])
        results: list[FanoutResult] = []
        errors: list[RlError] = []

        def work() -> None:
            with contextlib.suppress(IndexError):
                while True:
                    part = waiting.popleft()
                    try:
                        results.append(send(part))
                    except RlError as error:
                        errors.append(error)

        from .parallel import in_parallel

        waiting = deque(parts)
        in_parallel(work, min(len(parts), _PARTS_AT_ONCE))
        merged = FanoutResult.merged(results)
        # A part whose engines have all left is no failure while others are there.
        errors = [error for error in errors if not (results and error.code == "no_workers_match")]
        if errors:
            errors[0].answered = merged
            raise errors[0]
        return merged

    def match(self, selector: str | Selector, *, timeout: float | None = None) -> list[Worker]:
        """The workers that a fan-out with this selector would call, without calling any.

        Raises `SelectorError` for a selector that does not parse.
        """
        chosen = selector if isinstance(selector, Selector) else Selector.parse(selector)
        return [worker for worker in self.workers(timeout=timeout) if chosen.matches(worker.lookup)]

    def weight_versions(self, selector: str | Selector, *, timeout: float | None = None) -> dict[str, str | None]:
        """The weight version that each engine reports now, by worker id; None: it reports none.

        Read from the engines in their own dialects. Raises `FanoutError` for engines that
        do not answer.
        """
        from . import versions

        return versions.read(self, selector, timeout)

    def expect_weight_version(self, selector: str | Selector, version: str, *, timeout: float | None = None) -> None:
        """Raise `WeightVersionError`, which names them, unless every engine reports this version.

        Raises `TypeError` for a version that is no text: what counts steps says `str(step)`.
        """
        if not isinstance(version, str):
            raise TypeError(f"version must be a str, as engines report it: pass {str(version)!r}, not {version!r}")
        from . import versions

        versions.expect(self, selector, version, timeout)

    @contextlib.contextmanager
    def _refit(self, path: str, worker_id: str | None) -> Iterator[Report]:
        """Within its `with`, a call that changes weights is watched; what is yielded takes its report."""
        watching = quarantine.watchers() if quarantine.changes_weights(path) else []
        for watcher in watching:
            watcher.began(self.base_url, worker_id)

        def report(results: list[CallResult], failed: list[FanoutFailure]) -> None:
            for watcher in watching:
                watcher.ended(self.base_url, results, failed)

        try:
            yield report
        except BaseException:
            for watcher in watching:
                watcher.lost(self.base_url, worker_id)
            raise

    def status(self, selector: str | Selector, *, timeout: float | None = None) -> dict[str, str]:
        """Whether each matching engine runs, by worker id: `running`, `paused`, `asleep`,
        `unreachable`, or `unknown` for one that can't tell.

        Read from the engines in their own dialects, `timeout` seconds for each request.
        """
        from . import status

        kinds = status.kinds_of(self.match(selector, timeout=timeout))
        return {**dict.fromkeys(kinds, UNKNOWN_STATUS), **status.read(self, kinds, timeout)}

    def _send(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        body: object = None,
        timeout: float | None = None,
    ) -> answers.Answer:
        given = encoding.headers(self._headers()) if callable(self._headers) else self._headers
        request = encoding.request(method, self.base_url + path, query, body, given)
        seconds = self.timeout if timeout is None else _seconds(timeout)
        sent = self.sender.send(request, seconds)
        asked = f"{request.method} {self.base_url}{path}"
        # Raised here, not where it was noticed: no frame below holds a header.
        if isinstance(sent, Failure):
            raise answers.failure(sent, asked, self._hide)
        return answers.Answer.of(sent, asked, self._hide)

    @property
    def sender(self) -> "Sender":
        """What its requests are sent through; urllib, unless it was given another."""
        if self._sender is None:
            # The first call pays for importing urllib, `import smg.rl` does not.
            from .deadline import Secret
            from .transport import Transport

            self._sender = Transport(
                tls=self.base_url.startswith("https:"),
                ssl_context=self._ssl_context,
                trust_env=self._trust_env,
                secret=Secret(self._api_key) if self._api_key else None,
            )
        return self._sender

    def through(self, sender: "Sender") -> "RL":
        """The same client, which sends through something else."""
        other = copy.copy(self)
        other._given = other._sender = sender
        return other

    def carried(self) -> dict[str, object]:
        """The arguments that make it anew in another process, as JSON; raises `ValueError` for what can't go there."""
        if self._given is not None:
            raise ValueError("guard: a `sender` cannot go to another process: use a client without one")
        if self._ssl_context is not None:
            raise ValueError(
                "guard: an `ssl_context` cannot go to another process: name a private CA in the environment's"
                " SSL_CERT_FILE instead; client certificates work without a guard only"
            )
        given = encoding.headers(self._headers()) if callable(self._headers) else self._headers
        return {
            "base_url": self.base_url,
            "api_key": self._api_key,
            "timeout": self.timeout,
            "trust_env": self._trust_env,
            "headers": given,
            "verify": self.verify,
        }

    def _hide(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key else text

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_sender": self._given}

    def __repr__(self) -> str:
        return f"RL({self.base_url!r}, authenticated={bool(self._api_key)}, timeout={self.timeout:g})"

    def close(self) -> None:
        """Nothing to do: no connection outlives its call."""

    def __enter__(self) -> "RL":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _seconds(timeout: object) -> float:
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool):
        raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
    try:
        seconds = float(timeout)
    except OverflowError:
        seconds = math.inf
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"timeout must be > 0 seconds and finite, got {timeout!r}"[:200])
    return seconds
