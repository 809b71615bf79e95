"""`python -m tests.model [FAULTS]` explores by hand; `python -m tests.model CASE FAULT,FAULT` replays a run."""

import logging
import sys
import time

from .explore import cases, explore, run
from .world import Fault


def main(words: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    if len(words) == 2:
        (case,) = (case for case in cases() if str(case) == words[0])
        faults = [] if words[1] == "none" else [Fault.parse(text) for text in words[1].split(",")]
        print(run(case, faults).told())
        return 0
    most = int(words[0]) if words else 2
    wrong = 0
    for case in cases():
        started, count = time.monotonic(), 0
        for one in explore(case, most):
            count += 1
            if one.problems():
                wrong += 1
                print(f"{case} | {one.number} | {one.problems()[0]}", flush=True)
        print(f"{case}: {count} runs in {time.monotonic() - started:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
