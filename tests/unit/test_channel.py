"""Messages over real socket pairs, and shared memory, each with a hostile process at the other end."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.core.codec import Malformed
from kernel_harness.ipc.channel import (
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    Channel,
    Closed,
    pair,
)
from kernel_harness.ipc.shared_memory import SharedBuffer, map_shared

Ends = tuple[Channel, socket.socket]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
# How a reader may treat bytes that are no message.
OUTCOMES = (Malformed, Closed, TimeoutError)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A channel and the bare socket at its other end."""
    ours, theirs = pair()
    reader = Channel(ours)
    yield reader, theirs
    reader.close()
    theirs.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def read(data: bytes) -> object:
    """What a reader returns for these bytes, after which the other end is closed."""
    ours, theirs = pair()

    def send() -> None:
        with theirs, suppress(BrokenPipeError, ConnectionResetError):
            theirs.sendall(data)

    sender, reader = threading.Thread(target=send), Channel(ours)
    sender.start()
    try:
        return reader.receive(timeout_s=5)[0]
    finally:
        reader.close()
        sender.join()


# ------------------------------------------------------------------------------------------- messages


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_object_arrives_as_it_was_sent(message):
    ours, theirs = map(Channel, pair())
    theirs.send(message, timeout_s=5)
    assert ours.receive(timeout_s=5) == (message, [])
    ours.close()
    theirs.close()


def test_messages_arrive_one_by_one_and_in_order(ends):
    reader, theirs = ends
    for i in range(3):
        Channel(theirs).send({"number": i})
    assert [reader.receive(timeout_s=5)[0]["number"] for _ in range(3)] == [0, 1, 2]


def test_a_message_as_long_as_allowed_arrives(ends):
    reader, theirs = ends
    message = {"x": "a" * (MAX_MESSAGE_BYTES - len(json.dumps({"x": ""})))}
    sender = threading.Thread(target=Channel(theirs).send, args=(message,))
    sender.start()
    assert reader.receive(timeout_s=20)[0] == message
    sender.join()


def test_a_message_that_is_too_long_is_not_sent(ends):
    reader, theirs = ends
    with pytest.raises(ValueError, match=str(MAX_MESSAGE_BYTES)):
        Channel(theirs).send({"x": "a" * MAX_MESSAGE_BYTES})
    with pytest.raises(TimeoutError):
        reader.receive(timeout_s=0)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_not_sent(ends, number):
    with pytest.raises(ValueError):
        Channel(ends[1]).send({"x": number})


def test_a_message_in_pieces_is_put_together(ends):
    reader, theirs = ends

    def send_bytewise() -> None:
        for byte in framed(b'{"x": 1}'):
            theirs.sendall(bytes([byte]))

    sender = threading.Thread(target=send_bytewise)
    sender.start()
    assert reader.receive(timeout_s=5)[0] == {"x": 1}
    sender.join()


def test_sending_to_a_closed_end_raises_closed(ends):
    reader, theirs = ends
    theirs.close()
    with pytest.raises(Closed):
        reader.send({"x": "a" * 100_000}, timeout_s=5)


def test_sending_to_an_end_that_is_not_read_times_out(ends):
    with pytest.raises(TimeoutError):
        ends[0].send({"x": "a" * (MAX_MESSAGE_BYTES - 100)}, timeout_s=0.01)


# --------------------------------------------------------------------------------------- hostile bytes


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_one_of_three_errors(data):
    with suppress(*OUTCOMES):
        assert isinstance(read(data), dict)


@given(st.binary(max_size=200))
def test_an_arbitrary_body_is_a_message_or_one_of_three_errors(body):
    with suppress(*OUTCOMES):
        assert isinstance(read(framed(body)), dict)


@given(st.text(alphabet='[]{}":,0123456789.eE+-nulltrufasINifty\\', max_size=60))
def test_text_that_resembles_json_is_a_message_or_one_of_three_errors(text):
    with suppress(*OUTCOMES):
        assert isinstance(read(framed(text.encode())), dict)


@pytest.mark.parametrize("length", [MAX_MESSAGE_BYTES + 1, 2**31, 2**32 - 1])
def test_a_length_over_the_limit_is_refused_before_anything_is_read(ends, length):
    reader, theirs = ends
    theirs.sendall(struct.pack("<I", length))
    with pytest.raises(Malformed):
        reader.receive(timeout_s=5)


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 8])
def test_a_message_cut_off_by_the_end_of_the_channel_raises_closed(kept):
    with pytest.raises(Closed):
        read(framed(b'{"x": 1}')[:kept])


@pytest.mark.parametrize("kept", [0, 3, 4, 8])
def test_a_message_that_stops_short_times_out(ends, kept):
    reader, theirs = ends
    theirs.sendall(framed(b'{"x": 1}')[:kept])
    with pytest.raises(TimeoutError):
        reader.receive(timeout_s=0.01)


def test_a_message_that_stops_short_is_received_when_its_rest_arrives(ends, tmp_path):
    reader, theirs = ends
    data = framed(b'{"x": 1}')
    socket.send_fds(theirs, [data[:6]], [0])
    with pytest.raises(TimeoutError):
        reader.receive(timeout_s=0.01)
    theirs.sendall(data[6:] + framed(b'{"x": 2}'))
    message, (received,) = reader.receive(timeout_s=5)
    os.close(received)

    assert message == {"x": 1}
    assert reader.receive(timeout_s=5) == ({"x": 2}, [])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"1", b"null", b'"x"', b'{"x": NaN}', b'{"x": Infinity}', b'{"x": -Infinity}', b"{", b'{"x": 1}}',
        b"\xff\xfe{}", b'{"x": "\xff"}', b"[" * 100_000, b'{"x":' * 100_000, b'{"x": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_malformed(body):
    with pytest.raises(Malformed):
        read(framed(body))


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_too_large_for_a_float_is_malformed(number):
    # Python's json reads it as infinity, which no message may hold.
    with pytest.raises(Malformed):
        read(framed(b'{"x": %s}' % number.encode()))


def test_the_reason_does_not_quote_all_of_a_long_number():
    with pytest.raises(Malformed) as caught:
        read(framed(b'{"x": %se9}' % (b"9" * 100_000)))
    assert len(str(caught.value)) < 100


def test_a_reader_goes_on_after_a_malformed_message(ends):
    reader, theirs = ends
    theirs.sendall(framed(b"[]"))
    Channel(theirs).send({"x": 1})
    with pytest.raises(Malformed):
        reader.receive(timeout_s=5)
    assert reader.receive(timeout_s=5)[0] == {"x": 1}


# ----------------------------------------------------------------------------------------- descriptors


def test_descriptors_travel_with_their_message(ends, tmp_path):
    reader, theirs = ends
    file = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    os.write(file, b"hello")
    Channel(theirs).send({"x": 1}, [file])
    os.close(file)
    message, (received,) = reader.receive(timeout_s=5)
    assert message == {"x": 1} and os.pread(received, 5, 0) == b"hello"
    os.close(received)


@pytest.mark.parametrize(
    "data",
    [framed(b"[]"), framed(b'{"x": 1}')[:6], struct.pack("<I", 2**32 - 1), framed(b"not json")],
    ids=["no object", "cut off", "too long", "no json"],
)
def test_descriptors_beside_something_malformed_are_closed(ends, data):
    reader, theirs = ends
    before = open_descriptors()
    socket.send_fds(theirs, [data], [0, 0, 0])
    with pytest.raises((Malformed, TimeoutError)):
        reader.receive(timeout_s=0.01)
    reader.close()  # until then, the rest of a message may arrive
    assert open_descriptors() == before - 1


@pytest.mark.parametrize("count", [MAX_DESCRIPTORS + 1, 100])
def test_more_descriptors_than_a_message_may_have_do_not_stay_open(ends, count):
    reader, theirs = ends
    before = open_descriptors()
    socket.send_fds(theirs, [framed(b"{}")], [0] * count)
    received: list[int] = []
    with suppress(*OUTCOMES):
        received = reader.receive(timeout_s=5)[1]
    assert len(received) <= MAX_DESCRIPTORS
    for descriptor in received:
        os.close(descriptor)
    assert open_descriptors() == before


def test_descriptors_with_every_byte_of_a_message_are_limited_too(ends):
    reader, theirs = ends
    before = open_descriptors()
    for byte in framed(b'{"x": 1}'):
        socket.send_fds(theirs, [bytes([byte])], [0] * MAX_DESCRIPTORS)
    with pytest.raises(Malformed):
        reader.receive(timeout_s=5)
    assert open_descriptors() == before


def test_received_descriptors_are_not_inherited_by_children(ends):
    reader, theirs = ends
    Channel(theirs).send({}, [0])
    (received,) = reader.receive(timeout_s=5)[1]
    assert not os.get_inheritable(received)
    os.close(received)


# --------------------------------------------------------------------------------------- shared memory


@pytest.fixture
def buffer() -> Iterator[SharedBuffer]:
    buffer = SharedBuffer(5000)
    yield buffer
    buffer.close()


@pytest.mark.parametrize("size", [0, 100, 4999, 5001, 100_000])
def test_no_holder_can_change_its_size(buffer, size):
    with pytest.raises(OSError):
        os.ftruncate(buffer.descriptor, size)
    assert os.fstat(buffer.descriptor).st_size == 5000


def test_no_holder_can_take_the_seals_off_or_add_one(buffer):
    f_add_seals, f_seal_write = 1033, 8  # from linux/fcntl.h
    with pytest.raises(OSError):
        fcntl.fcntl(buffer.descriptor, f_add_seals, f_seal_write)


def test_both_sides_see_what_is_written(buffer):
    theirs = map_shared(buffer.descriptor, 5000)
    theirs[10] = 1
    buffer.bytes[11] = 2

    assert buffer.bytes[10:12].tolist() == theirs[10:12].tolist() == [1, 2]


def test_a_buffer_is_closed_once_and_names_no_descriptor_then():
    buffer = SharedBuffer(8)
    descriptor = buffer.descriptor
    buffer.close()
    other = os.open(os.devnull, os.O_RDONLY)
    buffer.close()
    assert other == descriptor and os.fstat(other)  # the number's new owner keeps it
    assert buffer.descriptor == -1
    os.close(other)


def test_a_buffer_of_no_bytes_can_be_made_and_mapped():
    buffer = SharedBuffer(0)
    assert len(map_shared(buffer.descriptor, buffer.size)) == buffer.size
    buffer.close()


def test_a_closed_buffer_leaves_no_descriptor_open():
    before = open_descriptors()
    for _ in range(3):
        SharedBuffer(100).close()
    assert open_descriptors() == before


def test_a_view_of_a_closed_buffer_stays_readable():
    buffer = SharedBuffer(100)
    buffer.bytes[0:3] = 7
    view = buffer.bytes[0:3]
    buffer.close()

    assert view.tolist() == [7, 7, 7]


def test_a_buffer_takes_only_the_memory_that_was_written():
    buffer = SharedBuffer(1 << 30)
    before = os.fstat(buffer.descriptor).st_blocks
    buffer.bytes[: 1 << 20] = 1
    taken = os.fstat(buffer.descriptor).st_blocks * 512
    buffer.close()

    assert before == 0
    assert 1 << 20 <= taken < 1 << 24
