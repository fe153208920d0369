"""What a shared library needs, read from its ELF file: other libraries, and versions of glibc's symbols."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

SHT_DYNAMIC, SHT_GNU_VERNEED = 6, 0x6FFFFFFE
DT_NEEDED, DT_SONAME = 1, 14

# glibc itself, under every name it has: on the machine of whoever installs the wheel, in the version its tag asks for.
GLIBC = re.compile(r"(lib(c|m|pthread|dl|rt|util|mvec|resolv|anl)\.so\.\d+|ld-linux.*\.so\.\d+|ld64\.so\.\d+)$")


class Elf:
    """One ELF file of 64 bits."""

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
        """The texts of one tag of the dynamic section."""
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
        """The libraries it asks the loader for."""
        return self.dynamic(DT_NEEDED)

    def versions(self) -> Iterator[str]:
        """The symbol versions it asks for: GLIBC_2.17, GOMP_4.0, …"""
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
        """The oldest glibc that has everything it asks for; (0, 0) if it asks for none."""
        newest = (0, 0)
        for version in self.versions():
            match = re.match(r"GLIBC_(\d+)\.(\d+)", version)
            found = (int(match[1]), int(match[2])) if match else (0, 0)
            if version == "GLIBC_ABI_DT_RELR":
                found = (2, 36)
            newest = max(newest, found)
        return newest
