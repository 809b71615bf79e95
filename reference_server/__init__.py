"""A reference gateway for the `/v1/rl` contract, and mock engines."""
