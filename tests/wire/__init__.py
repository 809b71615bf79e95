"""One end of a connection against the bytes of the other."""
