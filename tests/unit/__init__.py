"""Decisions, one test module for a source module, in the same place; no sockets."""
