"""Decisions, one test module for a source module; no sockets."""
