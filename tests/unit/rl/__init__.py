"""The modules of `smg/rl`."""
