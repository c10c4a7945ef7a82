"""Seeds that differ in names only: of a fleet one is read back in full, and stands for the others.

Reading a seed as its readers will takes longer than making it. What was read of one holds for
another if both, their specs included, are the same text once each node's own words are replaced
by signs: its id, its addresses, its certificate and key. Those words are of a kind that is written
as it is, without quotes or between the same ones; any other seed is read in full.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from generator import emit, render, spec, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.render import Seed
    from generator.spec import Spec

_OWN = (*render.IDENTITY, render.DIGESTS)  # files that each node has its own text of
_LINES = re.compile(r"(?:[A-Za-z0-9/+=.-]+(?: +[A-Za-z0-9/+=.-]+)*\n)+")
_NAME = re.compile(r"[a-z0-9./:-]+")
_ADDRESS = re.compile(r"[0-9a-f]+(?:[.:][0-9a-f]*){3,19}(?:/[0-9]+)?")  # IP or MAC
_LONG = 2000  # characters of a file that is the same on many nodes
_MOST = 1000  # seeds that are remembered


class Checker:
    """Checks seeds as `verify.verify` does, and remembers those that were right."""

    def __init__(self) -> None:
        self._right: set[bytes] = set()

    def check(self, seed: Seed, asked: Spec) -> None:
        """Raise `Refused` where the seed is not what the spec asks for."""
        key = _key(seed, asked)
        if key in self._right:
            return
        verify.verify(seed, asked)
        if key and len(self._right) < _MOST:
            self._right.add(key)


def _key(seed: Seed, asked: Spec) -> bytes | None:
    """Return what two seeds share that differ in names only; None where it cannot be told."""
    names = (seed.instance_id, asked.node_id, asked.mgmt_addr, *_addresses(asked.network))
    if not all(map(_NAME.fullmatch, names)) or emit.inline(asked.node_id) != asked.node_id:
        return None
    user_data = seed.user_data.decode()
    texts = [seed.meta_data.decode(), (seed.network_config or b"").decode(), spec.text(asked)]
    # The long ones first: what is left of user-data is searched for the others.
    for number, file in sorted(enumerate(seed.files), key=lambda pair: -len(pair[1].content)):
        texts.append(f"{file.path} {file.mode} {file.baked}")
        # As it stands in user-data; what does not stand there stays, and is nobody else's.
        user_data = _cut(user_data, _indented(file.content), f"\0{number}\1")
        if file.path not in _OWN:
            texts.append(file.content if len(file.content) < _LONG else str(hash(file.content)))
        elif not _LINES.fullmatch(file.content):
            return None
    texts.append(user_data)
    whole = "\0\0".join(texts)
    for number, name in enumerate(names):
        whole = whole.replace(name, f"\0{number}\2")
    return hashlib.sha256(whole.encode()).digest()


def _addresses(network: Any) -> Iterator[str]:
    """Give the addresses in a network: no two nodes have the same."""
    if isinstance(network, str):
        if _ADDRESS.fullmatch(network):
            yield network
    elif isinstance(network, dict | list | tuple):
        for part in network.values() if isinstance(network, dict) else network:
            yield from _addresses(part)


def _cut(text: str, block: str, sign: str) -> str:
    """Return the text with a sign in the place of a block; looks for its beginning only.

    Looking for something long takes longer than all else here.
    """
    at = text.find(block[:80])
    if at < 0 or not text.startswith(block, at):
        return text
    return f"{text[:at]}{sign}{text[at + len(block) :]}"


@lru_cache(maxsize=32)
def _indented(content: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in content.split("\n")[:-1])
