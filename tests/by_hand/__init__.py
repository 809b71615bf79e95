"""Long runs over real sockets, started by hand; each prints its counts and exits 1 when one is wrong."""
