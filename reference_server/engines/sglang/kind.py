"""SGLang as a kind of engine."""

from smg.rl.engines import ENGINES

from ..kind import Kind
from .routes import SGLang

SGLANG = Kind("sglang", ENGINES["sglang"], "0.5.23", SGLang)
