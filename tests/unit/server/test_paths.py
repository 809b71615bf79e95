"""Engine paths, operations, and the selector in a query."""

from hypothesis import given
from hypothesis import strategies as st

from reference_server.httpd.messages import Refusal
from reference_server.paths import OPERATIONS, engine_path, operation, selectors_in, without_selector


@given(st.text(max_size=40))
def test_a_path_is_refused_or_has_one_to_four_clean_segments(text: str) -> None:
    try:
        path = engine_path(text)
    except Refusal as refused:
        assert refused.reply.status == 400
        return
    segments = path.split("/")
    assert 1 <= len(segments) <= 4
    assert all(segment.isascii() and segment not in ("", ".", "..") for segment in segments)
    assert path in (text, text[1:])


def test_only_known_operations_become_metric_labels() -> None:
    assert len(OPERATIONS) == 20
    assert [operation(p) for p in ("flush_cache", "Flush_cache", "a/flush_cache")] == ["flush_cache", "other", "other"]


@given(st.lists(st.sampled_from(["a=1", "selector=x", "%73elector=x", "", "b", "c=%zz&d", "Selector=y"])))
def test_what_goes_to_the_engine_never_holds_a_selector(pieces: list[str]) -> None:
    kept = without_selector("&".join(pieces))
    assert selectors_in(kept) == []
    wanted = [p for piece in pieces for p in piece.split("&") if p and "elector=x" not in p]
    assert kept == "&".join(wanted)
