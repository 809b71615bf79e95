"""The modules of `reference_server/engines`."""
