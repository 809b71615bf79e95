"""The `smg` package: the version, and nothing that costs an import."""

__version__ = "1.11.0"
