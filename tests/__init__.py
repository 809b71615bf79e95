"""The tests. `unit` and `laws` open no socket, `wire` is one end against bytes, `flow` is all; `support` is shared."""
