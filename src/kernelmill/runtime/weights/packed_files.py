"""Packed parameters in files: mapped read-only, so that the processes of a machine share one copy.

    {recipe}_{digest}.packed     the packed buffers, as a sealed file

`recipe` identifies the packing, `digest` the contents of its sources: other contents have another
file, so an old one is never used for a changed weight. When a new file is written, files that no
process has opened for a while are removed.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import DIGEST_BYTES
from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.runtime.weights.contents import memory_of
from kernelmill.store.folder import Folder, OnUntrusted, make_folders
from kernelmill.store.sealed import Damaged, FileKind, SealedFile, write_sealed

SUFFIX = ".packed"
KEPT_SECONDS = 14 * 24 * 3600.0
"""Lifetime of a file that no process opens."""

_KIND = FileKind(b"kernelmill packed\n", "it is packed again")
_log = get_logger("runtime")


_warned: set[str] = set()


@dataclass(frozen=True)
class PackedFiles:
    """Files of packed buffers in one folder, which is made with the first. See `PackPlace`.

    A folder or file that another user could have written is refused (StoreError); a damaged file
    is removed and made again; a folder that cannot be written is one warning, and so is one that is
    refused where `on_untrusted` is "memory".
    """

    path: str
    on_untrusted: OnUntrusted = "error"

    def find(self, recipe: str, sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor] | None:
        """Return the packed contents as bytes, mapped; None if no valid file exists."""
        if self._refused():
            return None
        return self._mapped(self._name(recipe, sources))

    def keep(
        self, recipe: str, sources: Sequence[torch.Tensor], packed: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor] | None:
        """Write a file, and return its mapped contents; None if it cannot be written."""
        if self._refused():
            return None
        name = self._name(recipe, sources)
        pieces = {str(n): [memory_of(tensor)] for n, tensor in enumerate(packed)}
        try:
            make_folders(self.path)
            self._remove_unused()
            write_sealed(os.path.join(self.path, name), _KIND, pieces)
        except OSError as error:
            self._warn(f"{self.path}: packed weights are not kept: {error.strerror}")
            return None
        return self._mapped(name)

    def _refused(self) -> bool:
        """Return whether others can write to the folder. StoreError if that is to be an error."""
        why = Folder(self.path, self.on_untrusted).refused
        if why:
            self._warn(f"packed weights are not kept: {why}")
        return bool(why)

    def _warn(self, message: str) -> None:
        if self.path not in _warned:
            _warned.add(self.path)
            _log.warning("%s", message)

    def _name(self, recipe: str, sources: Sequence[torch.Tensor]) -> str:
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for tensor in sources:
            layout = str((tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())))
            state.update(layout.encode())
            state.update(hashlib.sha256(memory_of(tensor)).digest())
        return f"{recipe}_{state.hexdigest()}{SUFFIX}"

    def _mapped(self, name: str) -> Sequence[torch.Tensor] | None:
        path = os.path.join(self.path, name)
        try:
            file = SealedFile(path, _KIND)
            found = [_bytes(file, section) for section in file.sections]
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.info("%s cannot be read now (%s)", path, error.strerror)
            return None
        except Damaged as error:
            _log.warning("%s", error)
            with suppress(OSError):
                os.unlink(path)
            return None
        except StoreError as error:
            if self.on_untrusted == "error":
                raise
            self._warn(str(error))
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def _remove_unused(self) -> None:
        oldest = time.time() - KEPT_SECONDS
        with os.scandir(self.path) as files:
            for file in files:
                with suppress(OSError):
                    if file.name.endswith(SUFFIX) and file.stat().st_mtime < oldest:
                        os.unlink(file.path)


def _bytes(file: SealedFile, section: str) -> torch.Tensor:
    """Return a section as a tensor over the mapping, which lives as long as the tensor."""
    data = file.section(section)
    if not len(data):
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    with warnings.catch_warnings():
        # That it cannot be written to is the point.
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8)
