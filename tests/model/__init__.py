"""A model that tries everything: the client unchanged, over a gateway and engines in memory."""
