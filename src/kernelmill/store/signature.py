"""Signatures of a remote store's values: write access to the remote is not enough to run code here.

    kernelmill-signed 1 {HMAC-SHA256, in hexadecimal}
    the value

The code is over the entry's name and the value, with the key that all hosts share, so that a value
is good under its own name only. Source of the code: RFC 2104.
"""

from __future__ import annotations

import hashlib
import hmac

from kernelmill.store.entry import BadEntry

_MARK = b"kernelmill-signed 1 "
_HEAD_BYTES = len(_MARK) + 2 * hashlib.sha256().digest_size + 1


def sign(key: bytes, name: str, value: bytes) -> bytes:
    """Return the signed value, for the remote to keep under `name`."""
    return _MARK + _code(key, name, value) + b"\n" + value


def verified(key: bytes, name: str, signed: bytes) -> bytes:
    """Return the value that was signed. BadEntry unless it was, with this key and name."""
    head, value = signed[:_HEAD_BYTES], signed[_HEAD_BYTES:]
    if not head.startswith(_MARK):
        raise BadEntry(f"{name} is not signed")
    if not hmac.compare_digest(head, _MARK + _code(key, name, value) + b"\n"):
        raise BadEntry(f"the signature of {name} is not one by the key of KERNELMILL_REMOTE_KEY")
    return value


def _code(key: bytes, name: str, value: bytes) -> bytes:
    state = hmac.new(key, name.encode() + b"\0", hashlib.sha256)
    state.update(value)
    return state.hexdigest().encode()
