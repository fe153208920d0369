"""The libraries and the versions of glibc symbols that a shared library needs, read from its ELF file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

SHT_DYNAMIC, SHT_GNU_VERNEED = 6, 0x6FFFFFFE
DT_NEEDED, DT_SONAME = 1, 14

# The libraries of glibc. The machine that installs the wheel has them, in the version of the wheel's tag or later.
GLIBC = re.compile(r"(lib(c|m|pthread|dl|rt|util|mvec|resolv|anl)\.so\.\d+|ld-linux.*\.so\.\d+|ld64\.so\.\d+)$")


class Elf:
    """A 64-bit ELF file."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[:5] != b"\x7fELF\x02":
            raise ValueError(f"{path} is not an ELF file of 64 bits")
        self.order = "<" if self.data[5] == 1 else ">"
        (start,) = self.unpack("Q", 0x28)
        size, count = self.unpack("HH", 0x3A)
        # name, type, flags, address, offset, size, link, info, alignment, entry size
        self.sections = [self.unpack("IIQQQQIIQQ", start + i * size) for i in range(count)]

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + form, self.data, offset)

    def text(self, section: int, offset: int) -> str:
        start = self.sections[section][4] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def dynamic(self, tag: int) -> list[str]:
        """The strings of one tag of the dynamic section."""
        found = []
        for section in self.sections:
            if section[1] != SHT_DYNAMIC:
                continue
            for offset in range(section[4], section[4] + section[5], 16):
                own, value = self.unpack("QQ", offset)
                if own == tag:
                    found.append(self.text(section[6], value))
        return found

    def needed(self) -> list[str]:
        """The libraries that it needs."""
        return self.dynamic(DT_NEEDED)

    def versions(self) -> Iterator[str]:
        """The symbol versions that it needs: GLIBC_2.17, GOMP_4.0, …"""
        for section in self.sections:
            if section[1] != SHT_GNU_VERNEED:
                continue
            entry = section[4]
            for _ in range(section[7]):
                _, count, _, first, following = self.unpack("HHIII", entry)
                item = entry + first
                for _ in range(count):
                    _, _, _, name, after = self.unpack("IHHII", item)
                    yield self.text(section[6], name)
                    item += after
                entry += following

    def glibc(self) -> tuple[int, int]:
        """The oldest glibc that has all symbols it needs; (0, 0) if it needs none."""
        newest = (0, 0)
        for version in self.versions():
            match = re.match(r"GLIBC_(\d+)\.(\d+)", version)
            found = (int(match[1]), int(match[2])) if match else (0, 0)
            if version == "GLIBC_ABI_DT_RELR":
                found = (2, 36)
            newest = max(newest, found)
        return newest
