# SPDX-License-Identifier: BSD-3-Clause
"""Values, and the conversions between Python and C."""
import collections

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
	return -1 if seconds is None else max(0, int(seconds * 1000))
