"""URLs of stores: known schemes, validation, and display without passwords."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import urlsplit

REDIS = ("redis", "rediss", "unix")
_OF_HOSTS = ("redis", "rediss", "http", "https", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs")
"""Schemes of URLs that may have a port; others have a bucket in its place."""

_EXPECTED = "expected a URL such as redis://host:6379/0, s3://bucket/folder or file:///folder"


def is_redis(url: str) -> bool:
    """Return whether the URL is one of a Redis server."""
    return url.partition("://")[0] in REDIS


def check_url(url: str) -> str:
    """Return the same URL. ValueError if its scheme, port or database is invalid for any store."""
    if url.startswith("/"):
        return url
    fsspec: Any = importlib.import_module("fsspec")
    for part in url.split("::"):  # fsspec's way to have one file system in another
        scheme, separator, _ = part.partition("://")
        if not separator and "::" not in url:
            raise ValueError(_EXPECTED)
        if scheme not in (*REDIS, *fsspec.available_protocols()):
            raise ValueError(f"no store has URLs with {scheme}://; {_EXPECTED}")
        if scheme in _OF_HOSTS and separator:
            _check_host(part)
    return url


def _check_host(url: str) -> None:
    try:
        parts = urlsplit(url)
        port, database = parts.port, parts.path.strip("/")
    except ValueError:  # whose text may have a part of the password
        port, database = 0, ""
    if port == 0:
        raise ValueError("its port is no number from 1 to 65535; in a password, / is %2F, # is %23")
    if is_redis(url) and database and not database.isdecimal():
        raise ValueError(f"its database {database!r} is no number")


def without_password(url: str) -> str:
    """Return the URL for display, without name and password in front of the host."""
    scheme, separator, rest = url.partition("://")
    authority = rest if scheme in _OF_HOSTS else rest.partition("/")[0]
    secret, at, _ = authority.rpartition("@")
    return f"{scheme}{separator}{'...@' if at else ''}{rest[len(secret + at) :]}"
