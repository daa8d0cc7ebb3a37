"""The record format in plain Python, for what aiokafka's compiled codec cannot read or write.

Header names are bytes to brokers and most clients; aiokafka takes them for UTF-8. Its builder takes
the timestamp -1 of a first record for "not set yet". Both are rare, so this is short instead of
quick: about a tenth of the compiled codec's speed, and only for the batches that need it. Batches
that expand to very much are read here, too, because no more than one record is in memory at a time.

A header name is a `str` everywhere. Bytes that are not UTF-8 are lone surrogates in it
(``surrogateescape``), which are written as the bytes that they were; `shown` is for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from heliograph.batch.codecs import stream
from heliograph.batch.crc import crc32c
from heliograph.batch.header import HEADER, HEADER_BYTES, crc_matches, header_at

#: The timestamp of a record that has none, as of all records of magic 0.
NO_TIMESTAMP = -1
_MAGIC = 2
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12
_CHECKED_FROM = 21
_VARLONG_BITS = 70
_VARINT_BYTES = 10
#: A record that is larger than this is not read: it would have to be in memory several times.
RECORD_BYTES = 64 << 20
#: A record's attributes and deltas are within its first bytes.
_NAME_BYTES = 32
_READ_BYTES = 64 << 10
_WRAP, _HALF = 1 << 64, 1 << 63


class Record(NamedTuple):
    """One record with the offset it had where it was read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Oversized(NamedTuple):
    """A record of ``size`` bytes, more than RECORD_BYTES, of which only the place was read."""

    offset: int
    timestamp: int
    size: int


class PlainBatch:
    """A batch of magic 2, read as aiokafka's `DefaultRecordBatch` is; its records are `Record`."""

    def __init__(self, data: memoryview | bytes) -> None:
        self._data = memoryview(data)
        self._header = header_at(self._data, 0)
        self.base_offset = self._header.base_offset
        self.next_offset = self._header.last_offset + 1
        self.attributes = self._header.attributes
        self.producer_id = self._header.producer_id
        self.is_control_batch = self._header.control

    def validate_crc(self) -> bool:
        """Whether the batch is what its producer wrote."""
        return crc_matches(self._header, self._data)

    def __iter__(self) -> Iterator[Record | Oversized]:
        """Raises ValueError or IndexError, or what codecs raise, if it cannot be read."""
        header = self._header
        window = _Window(stream(header.codec, self._data[HEADER_BYTES:]))
        for _ in range(header.record_count):
            length = window.varint()
            size = max(length, 0)
            data = window.take(min(size, _NAME_BYTES if size > RECORD_BYTES else size))
            # One byte of attributes, which no version of Kafka uses.
            delta, position = _read_varint(data, 1)
            timestamp = _int64(header.base_timestamp + delta)
            if header.log_append_time:
                timestamp = header.max_timestamp
            delta, position = _read_varint(data, position)
            if size > RECORD_BYTES:
                window.skip(size - len(data))
                yield Oversized(header.base_offset + delta, timestamp, size)
                continue
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            headers, position = _read_headers(data, position)
            if position != length:
                raise ValueError(f"a record of {length} bytes ends at its byte {position}")
            yield Record(header.base_offset + delta, timestamp, key, value, headers)
        if window.more():
            raise ValueError("there is more behind the last record")


class _Window:
    """What was read of a stream of records and not taken yet."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._data = b""
        self._position = 0

    def _fill(self, least: int) -> None:
        """Have so many bytes, if there are as many."""
        if len(self._data) - self._position >= least:
            return
        parts = [self._data[self._position :]]
        have = len(parts[0])
        while have < least and (more := self._source.read(max(least - have, _READ_BYTES))):
            parts.append(more)
            have += len(more)
        self._data, self._position = b"".join(parts), 0

    def more(self) -> bool:
        """Whether the stream goes on."""
        self._fill(1)
        return len(self._data) > self._position

    def varint(self) -> int:
        """The next number."""
        self._fill(_VARINT_BYTES)
        value, self._position = _read_varint(self._data, self._position)
        return value

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        self._fill(size)
        taken = self._data[self._position : self._position + size]
        if len(taken) < size:
            raise ValueError(f"{size} bytes of a record, and {len(taken)} are there")
        self._position += size
        return taken

    def skip(self, size: int) -> None:
        """Leave the next ``size`` bytes out."""
        while size > 0:
            size -= len(self.take(min(size, _READ_BYTES)))


class PlainBuilder:
    """Builds an uncompressed batch of magic 2, with the methods of aiokafka's builder."""

    def __init__(self) -> None:
        self._data = bytearray(HEADER_BYTES)
        self._base_timestamp: int | None = None
        self._max_timestamp = 0
        self._last = self._count = 0

    def append(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        """Add a record at ``offset``, counted from 0."""
        if self._base_timestamp is None:
            self._base_timestamp = self._max_timestamp = timestamp
        self._data += self._encoded(offset, timestamp, key, value, headers)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._last = offset
        self._count += 1

    def size(self) -> int:
        """How large the batch is by now."""
        return len(self._data)

    def size_in_bytes(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        """How much larger a record would make it."""
        return len(self._encoded(offset, timestamp, key, value, headers))

    def build(self) -> bytearray:
        """The batch, without a producer."""
        data = self._data
        HEADER.pack_into(
            data, 0, 0, len(data) - _PREFIX_BYTES, -1, _MAGIC, 0, 0, self._last,
            self._base_timestamp or 0, self._max_timestamp, -1, -1, -1, self._count,
        )  # fmt: skip
        data[17:_CHECKED_FROM] = crc32c(memoryview(data)[_CHECKED_FROM:]).to_bytes(4, "big")
        return data

    def _encoded(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> bytes:
        base = timestamp if self._base_timestamp is None else self._base_timestamp
        out = bytearray(1)
        _put_varint(out, _int64(timestamp - base))
        _put_varint(out, offset)
        _put_bytes(out, key)
        _put_bytes(out, value)
        _put_varint(out, len(headers))
        for name, content in headers:
            _put_bytes(out, name.encode("utf-8", "surrogateescape"))
            _put_bytes(out, content)
        length = bytearray()
        _put_varint(length, len(out))
        return bytes(length + out)


def _int64(value: int) -> int:
    """As Java adds: a difference of two timestamps may be more than 64 bits hold."""
    return (value + _HALF) % _WRAP - _HALF


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it); zigzag, as all numbers within records are."""
    value = shift = 0
    while shift < _VARLONG_BITS:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return _int64(value >> 1 ^ -(value & 1)), position
        shift += 7
    raise ValueError(f"a number without an end at byte {position}")


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    if size > len(data) - position:
        raise ValueError(f"{size} bytes at byte {position} of {len(data)}")
    return data[position : position + size], position + size


def _read_headers(data: bytes, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = _read_varint(data, position)
    if count < 0:
        raise ValueError(f"{count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise ValueError("a header without a name")
        content, position = _read_bytes(data, position)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return headers, position


def _put_varint(out: bytearray, value: int) -> None:
    rest = value << 1 ^ value >> 63
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        _put_varint(out, -1)
    else:
        _put_varint(out, len(content))
        out += content
