"""HTTP: a server, its messages, a router, a log of what arrived. No rules of the gateway."""
