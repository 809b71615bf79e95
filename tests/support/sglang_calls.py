"""Calls as SGLang wants them: its routes need a JSON object."""

from . import asking
from .asking import Answer, Served


def post(engine: Served, path: str, body: object = None) -> Answer:
    return asking.post(engine, path, {} if body is None else body)


def refit(engine: Served, path: str, version: str | None = None, **fields: object) -> Answer:
    return post(engine, "/update_weights_from_disk", {"model_path": path, "weight_version": version, **fields})
