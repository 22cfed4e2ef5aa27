# SPDX-License-Identifier: BSD-3-Clause
"""Values, and the conversions between Python and C."""
import collections
import math
import time

from ._xport import ffi, lib

NULL = ffi.NULL

Event = collections.namedtuple("Event", "type endpoint status value region offset length")
Message = collections.namedtuple("Message", "data tag length endpoint")


def version():
	return ffi.string(lib.xport_version()).decode()


def address_of(pointer):
	return int(ffi.cast("uintptr_t", pointer))


def sized(name, **fields):
	return ffi.new(f"struct {name} *", dict(size=ffi.sizeof(f"struct {name}"), **fields))


def milliseconds(seconds):
	return -1 if seconds is None else int(min(max(0, seconds) * 1000, (1 << 31) - 1))


def end_of(deadline):
	"""When an operation with a deadline of so many seconds must have ended, or None."""
	if deadline is None or deadline == math.inf:
		return None
	if not deadline > 0:  # NaN is not, either
		raise ValueError("a deadline is more than 0 seconds")
	return time.monotonic() + deadline


def left_ms(end):
	left = min((end - time.monotonic()) * 1000, (1 << 31) - 1)
	return max(1, math.ceil(left))
