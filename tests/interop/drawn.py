"""Requests and engine answers for the differential test, drawn to be nasty.

What a deviation touches is left out here: a repeated or disguised `selector`, OPTIONS,
redirects with a target, media types in capitals, integers beyond 64 bits.
"""

import base64
import json
from dataclasses import dataclass, field
from urllib.parse import quote

from hypothesis import strategies as st

from tests.conformance.vectors import Reply, Rule, Step

LABELS = {
    "e0": {"role": "policy", "zone": "a b", "uni": "café", "x.y/z-1": "v1", "empty": "", "q": 'say "hi"'},
    "e1": {"role": "critic", "zone": "c", "bs": "a\\b", "paren": "(x)", "eq": "a=b", "num": "10"},
    "v0": {"role": "policy", "tp_size": "8", "comma": "a,b"},
}
ENGINES = {"e0": "sglang", "e1": "sglang", "v0": "vllm"}

KEYS = sorted({key for labels in LABELS.values() for key in labels} | {"engine", "model", "health", "url", "nope"})
VALUES = sorted({value for labels in LABELS.values() for value in labels.values()} | {"sglang", "vllm", "ready"})


@dataclass(frozen=True)
class Case:
    """One request, and what the engines answer should it reach them."""

    step: Step
    rules: dict[str, list[Rule]] = field(default_factory=dict)


# -- selectors

_space = st.sampled_from(["", "", "", " ", "\t", "\u00a0", " \n "])
_key = st.sampled_from(KEYS)


def _written(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_value = st.sampled_from(VALUES).flatmap(lambda v: st.sampled_from([v, _written(v)]))


@st.composite
def _term(draw: st.DrawFn) -> str:
    key, operator = draw(_key), draw(st.sampled_from(["=", "!=", "in", "notin"]))
    before, around, behind = draw(_space), draw(_space), draw(_space)
    if operator in ("=", "!="):
        return f"{before}{key}{around}{operator}{around}{draw(_value)}{behind}"
    values = ",".join(around + draw(_value) + behind for _ in range(draw(st.integers(1, 3))))
    return f"{before}{key} {operator}{around}({values}){behind}"


_valid = st.lists(_term(), min_size=1, max_size=3).map(",".join)
_scraps = st.lists(st.sampled_from([*'=!,()"\\ ', "in", "notin", "role", "a", "é", "==", "\t"]), max_size=12).map(
    "".join
)


@st.composite
def _nearly_valid(draw: st.DrawFn) -> str:
    text = draw(_valid)
    at = draw(st.integers(0, len(text)))
    cut = draw(st.integers(0, 2))
    return text[:at] + draw(_scraps) + text[at + cut :]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
selector_texts = st.one_of(_valid, _nearly_valid(), _scraps, _text)

# -- paths and queries

_good_segment = st.sampled_from(["echo", "flush_cache", "a", "A.b-_9", "...", "x", "health"])
_odd_segment = st.sampled_from(
    ["", ".", "..", "%2e%2e", "a%20b", "%61", "a%2Fb", "%00", "a~b", "é", "%C3%A9", "%zz", "%3F", "%23"]
)
_raw_segment = st.binary(max_size=4).map(lambda raw: quote(raw, safe=""))
_segments = st.one_of(
    st.lists(_good_segment, min_size=1, max_size=4),
    st.lists(st.one_of(_good_segment, _odd_segment, _raw_segment), max_size=6),
)
engine_paths = st.builds(
    lambda slash, segments: slash + "/".join(segments), st.sampled_from(["", "", "", "/"]), _segments
)

_piece = st.one_of(
    st.sampled_from(
        [
            "a=1",
            "a",
            "a=",
            "=a",
            "",
            "a=b+c",
            "a=%20",
            "a=%zz",
            "a=;b",
            "Selector=x",
            "selector[]=x",
            "xselector=1",
            "b=é",
        ]
    ),
    st.text("ab=+%;:@/?!$*,.-_~[]^|\\{}'`", max_size=8).filter(lambda text: "selector" not in text),
)
queries = st.lists(_piece, max_size=4)

# -- the request

_methods = st.one_of(
    st.sampled_from(["GET", "POST", "POST", "HEAD"]), st.sampled_from(["PUT", "DELETE", "PATCH", "get", "FOO"])
)
_header = st.sampled_from(
    [
        ("Content-Type", "application/json"),
        ("content-type", "text/plain; charset=latin-1"),
        ("CONTENT-TYPE", ""),
        ("x-request-id", "r-1"),
        ("x-request-id", "a b;c"),
        ("X-Request-Id", "é"),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "k=v"),
        ("tracestate", ""),
        ("Authorization", "Bearer caller"),
        ("Cookie", "a=b"),
        ("Accept", "text/html"),
        ("Accept-Encoding", "gzip"),
        ("Content-Encoding", "gzip"),
        ("baggage", "x=y"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("x-correlation-id", "c"),
        ("Connection", "close, x-request-id"),
        ("TE", "trailers"),
    ]
)
_bodies = st.one_of(
    st.none(), st.sampled_from([b"", b"{}", b"[1]", b"not json", b'{"a": 1.0 , "a":2}']), st.binary(max_size=40)
)


@st.composite
def _steps(draw: st.DrawFn) -> Step:
    path = draw(engine_paths)
    pieces = draw(queries)
    if draw(st.booleans()):
        target = f"/v1/rl/engine/{path}"
        if draw(st.integers(0, 9)):
            encoded = quote(draw(selector_texts), safe=draw(st.sampled_from(["", "=,()!"])))
            pieces.insert(draw(st.integers(0, len(pieces))), f"selector={encoded}")
    else:
        worker = draw(st.sampled_from(["<<id:e0>>", "<<id:e0>>", "<<id:e1>>", "<<id:v0>>", "nope", "%FF", "a%2Fb", ""]))
        target = f"/v1/rl/workers/{worker}/engine/{path}"
    body = draw(_bodies)
    step = Step(method=draw(_methods), target=target + ("?" + "&".join(pieces) if pieces else ""))
    step["headers"] = draw(st.lists(_header, max_size=4, unique_by=lambda header: header[0].lower()))
    step["show"] = ["x-request-id"]
    if body is not None:
        step["body_b64"] = base64.b64encode(body).decode()
        step["framing"] = draw(st.sampled_from(["length", "length", "chunked"]))
    return step


_discovery = st.sampled_from(
    [
        "/v1/rl/workers",
        "/v1/rl/workers/<<id:e0>>",
        "/v1/rl/workers/<<id:v0>>",
        "/v1/rl/workers/x",
        "/v1/rl/workers/",
        "/v1/rl",
        "/v1/rl/engine",
    ]
)
discovery_steps = st.builds(
    lambda method, target, query: Step(method=method, target=target + query),
    _methods,
    _discovery,
    st.sampled_from(["", "?", "?a=b", "?selector=x"]),
)

# -- what engines answer

_numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1).filter(lambda n: n != 0), st.floats(allow_nan=False, allow_infinity=False)
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_text, inner, max_size=3)),
    max_leaves=8,
)
_json_texts = st.one_of(
    st.builds(json.dumps, _json, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1])),
    st.sampled_from(
        ["", " ", "{", "[NaN]", "[1,]", "\ufeff{}", "01", "1e400", '"\\ud800"', "'a'", "nul", "{} {}", '{"a":1,"a":2}']
    ),
).map(str.encode)
_types = st.sampled_from(
    [
        None,
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "application/problem+json",
        "application/x-ndjson",
        "text/html",
        "",
    ]
)


@st.composite
def _replies(draw: st.DrawFn) -> Reply:
    if draw(st.integers(0, 14)) == 0:
        return Reply(kind=draw(st.sampled_from(["close", "reset", "garbage"])))
    body = draw(st.one_of(_json_texts, _json_texts, st.binary(max_size=30)))
    reply = Reply(body_b64=base64.b64encode(body).decode(), content_type=draw(_types))
    reply["status"] = draw(
        st.one_of(
            st.just(200),
            st.sampled_from([201, 202, 206, 226, 299, 300, 304, 400, 401, 404, 409, 418, 429, 500, 503, 599, 600, 999]),
        )
    )
    if reply["status"] != 304:
        reply["framing"] = draw(st.sampled_from(["length", "length", "chunked", "close"]))
    return reply


_rules = st.lists(_replies(), min_size=1, max_size=1).map(lambda found: [Rule(path="*", reply=found[0])])

cases = st.one_of(
    st.builds(Case, _steps(), st.dictionaries(st.sampled_from(sorted(ENGINES)), _rules, max_size=3)),
    st.builds(Case, _steps()),
    st.builds(Case, discovery_steps),
)
