"""TokenSpeed as a kind of engine."""

from smg.rl.engines import ENGINES

from ..kind import Kind
from .routes import TokenSpeed, traits

# It succeeds once a trainer has joined, whom a rehearsal does not have.
_REHEARSALS = {
    "/init_weights_update_group": {"success": True, "message": "Succeeded to initialize custom process group."}
}

TOKENSPEED = Kind("tokenspeed", ENGINES["tokenspeed"], "0.1.0", TokenSpeed, traits, rehearsals=_REHEARSALS)
