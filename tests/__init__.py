"""The tests. `unit` and `laws` open no socket; `wire` is one end against raw bytes; `flow` is all of it."""
