# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions: one for each status that a program may want to handle."""
from ._xport import ffi, lib


class Error(Exception):
	"""A call or an operation failed.  status is its number, and hint says what to do about it.

	Of a remote procedure call, ran is one of RPC_RAN_NO, _YES and _UNKNOWN, and retry_after, in seconds, belongs to Busy.
	"""
	ran, retry_after = None, 0.0

	def __init__(self, status, operation="", text="", hint="", peer="", native=0):
		self.status, self.operation, self.text, self.hint, self.peer, self.native = status, operation, text, hint, peer, native
		self.name = ffi.string(lib.xport_status_name(status)).decode()
		super().__init__(f"{operation}: {text or ffi.string(lib.xport_strerror(status)).decode()} {hint}".rstrip())

	def __str__(self):
		return self.args[0]


class Again(Error, BlockingIOError):
	"""The queue is full."""


class Invalid(Error, ValueError):
	"""An argument that is never allowed."""


class NoMemory(Error, MemoryError):
	"""Out of memory, or over the limit of locked memory."""


class Bounds(Error, IndexError):
	"""Outside the remote region."""


class Access(Error, PermissionError):
	"""The region does not grant the right."""


class StaleKey(Error, LookupError):
	"""The registration of the key has ended."""


class BadKey(Error, ValueError):
	"""The bytes are no key."""


class Closed(Error, ConnectionError):
	"""This side closed the endpoint or the instance."""


class PeerClosed(Error, ConnectionError):
	"""The peer closed the endpoint."""


class PeerLost(Error, ConnectionError):
	"""The peer died, was suspended for too long, or is cut off."""


class Timeout(Error, TimeoutError):
	"""A time limit expired."""


class Refused(Error, ConnectionRefusedError):
	"""Nobody listens at the address."""


class Canceled(Error):
	"""The receive or the remote procedure call was cancelled."""


class Busy(Error):
	"""The callee is overloaded: call again after retry_after seconds."""


class Truncated(Error, ValueError):
	"""The message is longer than the buffer."""


class Forked(Error, RuntimeError):
	"""The process was forked from the one that opened the instance: use the start method spawn."""


_classes = {
	lib.XPORT_ERR_AGAIN: Again, lib.XPORT_ERR_INVALID: Invalid, lib.XPORT_ERR_NO_MEMORY: NoMemory,
	lib.XPORT_ERR_BOUNDS: Bounds, lib.XPORT_ERR_ACCESS: Access, lib.XPORT_ERR_STALE_KEY: StaleKey,
	lib.XPORT_ERR_BAD_KEY: BadKey, lib.XPORT_ERR_CLOSED: Closed, lib.XPORT_ERR_PEER_CLOSED: PeerClosed,
	lib.XPORT_ERR_PEER_LOST: PeerLost, lib.XPORT_ERR_TIMEOUT: Timeout, lib.XPORT_ERR_REFUSED: Refused,
	lib.XPORT_ERR_CANCELED: Canceled, lib.XPORT_ERR_TRUNCATED: Truncated, lib.XPORT_ERR_FORK: Forked,
	lib.XPORT_ERR_BUSY: Busy,
}


def error(status, operation, text="", **more):
	if status == lib.XPORT_ERR_FORK:
		more["hint"] = "Use multiprocessing's start method spawn, and open an instance in each process."
	return _classes.get(status, Error)(status, operation, text, **more)


def last_error(x, status, operation):
	"""Makes the exception for a call on the instance x that failed.  x is None for a call of libxport_services."""
	e = ffi.new("struct xport_error *")
	e.size = ffi.sizeof("struct xport_error")
	if (lib.xport_services_last_error(e) if x is None else lib.xport_last_error(x, e)) < 0 or e.status != status:
		return error(status, operation)
	text = [ffi.string(s).decode(errors="replace") for s in (e.operation, e.text, e.hint, e.peer)]
	return error(status, text[0], text[1], hint=text[2], peer=text[3], native=e.native_code)
