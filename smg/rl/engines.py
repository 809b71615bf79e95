"""What differs by kind of engine, seen from outside: one row an engine, in one table.

The client reads here how to pause an engine and whom to ask for its weights; the gateway
reads what to ask at a registration and what to show as capabilities; a mock engine names
its row. Contract, chapters "Capabilities" and "Discovery row".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class PauseRoutes:
    """The engine's own routes for a pause.

    `pause` and `resume` are engine paths. The mode of a pause goes into the JSON body, or
    with `mode_in_query` into the query; such an engine is sent no body at all. `too_early`:
    the statuses with which it answers a resume that comes while its pause is under way.
    """

    pause: str
    resume: str
    mode_in_query: bool = False
    too_early: tuple[int, ...] = ()

    def pause_call(self, mode: str | None) -> tuple[dict[str, str] | None, Mapping[str, str] | None]:
        """Body and query of the pause."""
        asked = {"mode": mode} if mode else {}
        return (None, asked or None) if self.mode_in_query else (asked, None)

    @property
    def resume_body(self) -> dict[str, str] | None:
        """Body of the resume: SGLang wants one, if only an empty object."""
        return None if self.mode_in_query else {}


SGLANG = PauseRoutes("pause_generation", "continue_generation")
"""SGLang, and TokenSpeed, which speaks the same."""

VLLM = PauseRoutes("pause", "resume", mode_in_query=True, too_early=(500,))
"""vLLM, whose routes exist with VLLM_SERVER_DEV_MODE=1 only."""


class Capabilities(NamedTuple):
    """What a kind of engine can do, as a gateway shows it unless `rl.*` labels say otherwise."""

    pause_modes: tuple[str, ...] = ()
    update_from: tuple[str, ...] = ()
    abort: bool = False
    flush_cache: bool = False
    sleep_wake: bool = False
    reports_weight_version: bool = False


class Question(NamedTuple):
    """What a registration asks an engine: a JSON object, from the first of `paths` that has one.

    `labels`: which of its fields become labels, and the JSON type each must have.
    """

    paths: tuple[str, ...]
    labels: Mapping[str, type]


class Guarded(NamedTuple):
    """Routes that an engine has only when it is started in a certain way; `how` says which."""

    routes: frozenset[str]
    how: str


RUNNING, PAUSED, ASLEEP, UNREACHABLE, UNKNOWN_STATUS = "running", "paused", "asleep", "unreachable", "unknown"
"""The status of an engine: `unknown` where it can't tell, or tells nothing that makes sense."""

StatusAnswers = Sequence[tuple[int, object]]
"""What an engine answered to the routes asked so far: HTTP status and body of each."""


class StatusReading(NamedTuple):
    """How an engine tells whether it runs.

    `routes` are asked with GET, in this order. `judge` makes the status of what has been
    answered so far, or None to ask the next.
    """

    routes: tuple[str, ...]
    judge: Callable[[StatusAnswers], str | None]


def _sglang_status(answers: StatusAnswers) -> str | None:
    """`/ready` is 503 for an engine that is paused, and for one that does not live; then `/model_info` lives."""
    (ready, _), *more = answers
    if ready == 200:
        return RUNNING
    if ready != 503:
        return UNKNOWN_STATUS  # an engine from before this route
    return None if not more else PAUSED if more[0][0] == 200 else UNKNOWN_STATUS


def _offloaded(metrics: object) -> bool:
    """Whether the metrics of a vLLM say that its weights are not where they serve."""
    states = (line for line in str(metrics).splitlines() if line.startswith("vllm:engine_sleep_state{"))
    return any('sleep_state="awake"' not in state and state.rstrip().endswith((" 1", " 1.0")) for state in states)


def _vllm_status(answers: StatusAnswers) -> str | None:
    """`/is_sleeping` is true for one that is only paused as well: then the metrics tell."""
    said = [
        body.get(name) if isinstance(body, dict) else None
        for name, (_, body) in zip(_VLLM_FLAGS, answers, strict=False)
    ]
    if any(not isinstance(flag, bool) for flag in said):
        return UNKNOWN_STATUS
    if len(said) < len(_VLLM_FLAGS):
        return None
    paused, sleeping = said
    if not (paused and sleeping):
        return PAUSED if paused else ASLEEP if sleeping else RUNNING
    if len(answers) == len(_VLLM_FLAGS):
        return None
    status, metrics = answers[-1]
    return ASLEEP if status == 200 and _offloaded(metrics) else PAUSED


_VLLM_FLAGS = ("is_paused", "is_sleeping")


class EngineFacts(NamedTuple):
    """One kind of engine.

    `pause`: how it is paused and resumed, None if it can't be. `status`: how it tells
    whether it runs, None if it can't. `version_routes`: who tells its weight version, in
    the order of asking. `refits`: words in the last segment of the routes that change its
    weights. `sign`: a path that answers with a JSON object on this kind only, by which a
    gateway knows an engine that does not name itself.
    """

    pause: PauseRoutes | None = None
    status: StatusReading | None = None
    version_routes: tuple[str, ...] = ()
    refits: tuple[str, ...] = ()
    capabilities: Capabilities = Capabilities()
    registration: tuple[Question, ...] = ()
    sign: str | None = None
    guarded: Guarded | None = None


_SGLANG_REGISTRATION = (
    Question(
        ("/server_info", "/get_server_info"),
        {
            **dict.fromkeys(("model_path", "served_model_name", "tokenizer_path", "version", "weight_version"), str),
            "load_balance_method": str,
            **dict.fromkeys(("tp_size", "dp_size", "pp_size", "max_running_requests", "max_total_tokens"), int),
            "context_length": int,
            "is_embedding": bool,
        },
    ),
    Question(
        ("/model_info", "/get_model_info"),
        {
            **dict.fromkeys(("model_path", "tokenizer_path", "model_type"), str),
            **dict.fromkeys(("is_generation", "has_image_understanding", "has_audio_understanding"), bool),
            "architectures": list,
        },
    ),
)

# Under whatever prefix: Dynamo, AReaL and others put their own before an engine's routes.
_REFITS = ("update_weights", "load_weights", "reload_weights", "lora_adapter")

ENGINES: dict[str, EngineFacts] = {
    "sglang": EngineFacts(
        pause=SGLANG,
        status=StatusReading(("ready", "model_info"), _sglang_status),
        version_routes=("model_info", "get_weight_version", "get_model_info"),
        refits=(*_REFITS, "begin_weight_update", "end_weight_update", "post_process_weights", "pull_weights"),
        capabilities=Capabilities(
            pause_modes=("abort", "retract", "in_place"),
            update_from=("disk", "tensor", "distributed"),
            abort=True,
            flush_cache=True,
            sleep_wake=True,
            reports_weight_version=True,
        ),
        registration=_SGLANG_REGISTRATION,
        sign="/server_info",
    ),
    "vllm": EngineFacts(
        pause=VLLM,
        version_routes=("weight_info",),
        status=StatusReading((*_VLLM_FLAGS, "metrics"), _vllm_status),
        refits=(*_REFITS, "collective_rpc", "start_weight_update", "start_draft_weight_update", "finish_weight_update"),
        capabilities=Capabilities(
            pause_modes=("abort", "wait", "keep"), update_from=("disk", "distributed"), sleep_wake=True
        ),
        registration=(Question(("/version",), {"version": str}),),
        sign="/version",
        guarded=Guarded(
            frozenset(
                {"pause", "resume", "is_paused", "sleep", "wake_up", "is_sleeping"}
                | {"collective_rpc", "reset_prefix_cache"}
            ),
            "vLLM has this route with VLLM_SERVER_DEV_MODE=1 in its environment only",
        ),
    ),
    "tokenspeed": EngineFacts(
        pause=SGLANG,
        version_routes=("get_weight_version", "model_info"),
        refits=_REFITS,
        registration=_SGLANG_REGISTRATION,
    ),
}
"""Every kind of engine that is known, by the name a gateway gives it."""

UNKNOWN = EngineFacts(version_routes=("model_info", "get_weight_version", "weight_info"))
"""An engine of another kind: it is asked whatever any engine is asked."""


def facts_of(kind: str) -> EngineFacts:
    """The row of a kind, `UNKNOWN` for one that has none."""
    return ENGINES.get(kind, UNKNOWN)
