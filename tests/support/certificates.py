"""A private authority, what its servers need, and what its clients do."""

import ssl
from datetime import datetime

import trustme

AUTHORITY = trustme.CA()


def certified(*names: str, by: trustme.CA = AUTHORITY, until: datetime | None = None) -> ssl.SSLContext:
    """What a server of this name needs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    by.issue_cert(*names, not_after=until).configure_cert(context)
    return context


def trusting(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    """What a client needs that trusts this authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
