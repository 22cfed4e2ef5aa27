# SPDX-License-Identifier: BSD-3-Clause
"""Listeners, endpoints, keys and regions.  Each belongs to an instance, whose lock is held for each call."""
import collections
import ctypes
import weakref

from ._common import NULL, address_of, end_of, milliseconds, sized
from ._errors import error, last_error
from ._operation import FINISHED
from ._xport import ffi, lib


def exported(obj, writable):
	"""Pointer, length, what holds the object, and the region."""
	if isinstance(obj, Region):
		obj = obj.part(0, obj.length)
	if isinstance(obj, Part):
		region = obj.region
		region._x._open()
		return region._base + obj.offset, obj.length, None, region
	if hasattr(obj, "__cuda_array_interface__"):
		raise TypeError("the memory of a GPU cannot be used: copy it to the host first")
	buffer = ffi.from_buffer("char[]", obj, require_writable=writable)
	return buffer, len(buffer), buffer, None


class Listener:
	"""An address that peers connect to."""

	def __init__(self, x, handle):
		self._x, self._listener = x, handle
		name = ffi.new("char[64]")
		x._must(lib.xport_listener_name(handle, name, 64), "xport_listener_name")
		self.address = ffi.string(name).decode()

	def __enter__(self):
		return self

	def __exit__(self, *_):
		self.close()

	def accept(self, timeout=None):
		"""Waits up to timeout seconds.  A coroutine calls accept_async instead."""
		got = []
		if not self._x._run(lambda: self._take(got), timeout):
			raise error(lib.XPORT_ERR_TIMEOUT, "xport_accept")
		return got[0]

	def _take(self, got):
		x = self._x
		with x._lock:
			x._open()
			out = ffi.new("xport_ep **")
			status = lib.xport_accept(self._listener, 0, out)
			if status == lib.XPORT_ERR_TIMEOUT:
				return False
			x._must(status, "xport_accept")
			got.append(Endpoint(x, out[0]))
			return True

	async def accept_async(self):
		got, others = [], []
		try:
			while not self._take(got):
				e = await self._x.event()
				if e.type != lib.XPORT_EVENT_INCOMING:
					others.append(e)
		finally:
			self._x._events.extendleft(reversed(others))
		return got[0]

	def close(self):
		with self._x._lock:
			if self._listener != NULL and self._x._x != NULL:
				lib.xport_listener_close(self._listener)
			self._listener = NULL


class Key:
	"""The key of a peer's region, on one endpoint."""

	def __init__(self, ep, handle):
		self._x, self._key = ep._x, handle
		info = sized("xport_rkey_info")
		ep._x._must(lib.xport_rkey_query(handle, info), "xport_rkey_query")
		self.length, self.rights = info.length, info.rights

	def close(self):
		with self._x._lock:
			if self._key != NULL and self._x._x != NULL:
				lib.xport_rkey_destroy(self._key)
			self._key = NULL


class Endpoint:
	"""A connection to one peer.  One that goes away is closed by the next turn of its instance, without waiting."""

	def __init__(self, x, handle):
		self._x, self._ep, self._waiting = x, handle, 0
		x._endpoints[address_of(handle)] = self

	def __enter__(self):
		return self

	def __exit__(self, kind, *_):
		self.close(0 if kind else 5)

	def __del__(self):
		if getattr(self, "_ep", NULL) != NULL and self._x._x != NULL:
			# The C handle without the object, which is going away.
			again = Endpoint.__new__(Endpoint)
			again._x, again._ep, again._waiting, self._ep = self._x, self._ep, 0, NULL
			self._x._dropped.append(again)

	def _info(self):
		with self._x._lock:
			self._x._open()
			info = sized("xport_ep_info")
			if self._ep == NULL:
				raise error(lib.XPORT_ERR_CLOSED, "xport_ep_query")
			self._x._must(lib.xport_ep_query(self._ep, info), "xport_ep_query")
			return info

	@property
	def private_data(self):
		info = self._info()
		return bytes(ffi.buffer(info.private_data, info.private_len)) if info.private_len else b""

	@property
	def peer(self):
		return ffi.string(self._info().peer).decode()

	@property
	def peer_pid(self):
		return self._info().peer_pid

	@property
	def transport(self):
		"""What the connection goes over: "ucx:tcp"."""
		info = self._info()
		return ffi.string(info.backend).decode() + ":" + ffi.string(info.provider).decode()

	@property
	def passed_over(self):
		"""With several transports: why no better one is used."""
		return ffi.string(self._info().passed_over).decode()

	@property
	def is_open(self):
		return self._ep != NULL and self._x._x != NULL and self._info().state == lib.XPORT_EP_OPEN

	def close(self, timeout=5):
		"""Flushes and closes.  Waits up to timeout seconds; 0: not at all.  A peer that is gone already is no error."""
		with self._x._lock:
			if self._ep == NULL or self._x._x == NULL:
				return
			status = lib.xport_ep_close(self._ep, milliseconds(timeout))
			failure = None
			ended = (lib.XPORT_ERR_CLOSED, lib.XPORT_ERR_PEER_CLOSED, lib.XPORT_ERR_PEER_LOST)
			if status < 0 and status not in ended:
				failure = last_error(self._x._x, status, "xport_ep_close")
			self._destroy()
			if failure is not None:
				raise failure

	def _destroy(self):
		with self._x._lock:
			if self._ep != NULL and self._x._x != NULL:
				self._x._endpoints.pop(address_of(self._ep), None)
				if self._x._rpc is not None:
					self._x._rpc._forget(self._ep)
				lib.xport_ep_destroy(self._ep)
			self._ep = NULL

	def unpack(self, key):
		with self._x._lock:
			self._x._open()
			out = ffi.new("xport_rkey **")
			self._x._must(lib.xport_rkey_unpack(self._ep, bytes(key), len(key), out), "xport_rkey_unpack")
			return Key(self, out[0])

	def _operation(self, call, buffer=None, region=None, take=None, value=0, key=None, wait_for_space=True, deadline=None,
	               cancelable=False):
		x, end = self._x, end_of(deadline)
		flags, idp = (lib.XPORT_CANCELABLE, x._id) if cancelable else (0, NULL)

		def post(slot):
			if self._ep == NULL or x._x == NULL:
				return lib.XPORT_ERR_CLOSED
			if key is not None and key._key == NULL:
				return lib.XPORT_ERR_STALE_KEY
			status = call(self._ep, x._options(slot.number, region, value, idp=idp, end=end, flags=flags))
			if cancelable:
				slot.id = x._id[0]
			return status

		return x._submit(post, buffer, region, self, take, wait_for_space, end=end)

	def put(self, obj, key, offset=0, notify=None, wait_for_space=True, deadline=None):
		"""Puts the bytes of an object.  With notify the peer gets an event with that value.

		With deadline, here and in other operations, the operation fails with Timeout after so many seconds, and its buffer
		is free.  If the network itself still holds a put, get or atomic then, the endpoint ends: see Deadlines in xport.h.
		"""
		pointer, length, buffer, region = exported(obj, False)
		function = lib.xport_put if notify is None else lib.xport_put_notify

		def call(ep, opt):
			return function(ep, ffi.cast("char *", pointer), length, key._key, offset, opt)

		return self._operation(call, buffer, region, None, notify or 0, key, wait_for_space, deadline)

	def get_into(self, obj, key, offset=0, wait_for_space=True, deadline=None):
		"""Its result is the number of bytes."""
		pointer, length, buffer, region = exported(obj, True)

		def call(ep, opt):
			return lib.xport_get(ep, ffi.cast("char *", pointer), length, key._key, offset, opt)

		return self._operation(call, buffer, region, lambda c: length, 0, key, wait_for_space, deadline)

	def get(self, length, key, offset=0, wait_for_space=True, deadline=None):
		"""Its result is a bytearray."""
		data = bytearray(length)
		operation = self.get_into(data, key, offset, wait_for_space, deadline)
		if operation._slot.state != FINISHED:
			operation._slot.take = lambda c: data
		return operation

	def send(self, obj, tag, wait_for_space=True, deadline=None, cancelable=False):
		"""Sends a message.  If it is cancelable, cancel() and abandon() withdraw it until a receive has matched it."""
		pointer, length, buffer, region = exported(obj, False)

		def call(ep, opt):
			return lib.xport_send(ep, ffi.cast("char *", pointer), length, tag, opt)

		return self._operation(call, buffer, region, wait_for_space=wait_for_space, deadline=deadline, cancelable=cancelable)

	def atomic(self, op, key, offset, operand, compare=0, width=8, deadline=None):
		"""Its result is the old value."""
		old = ffi.new("uint64_t *" if width == 8 else "uint32_t *")
		args = sized("xport_atomic_args", op=op, width=width, operand=operand, compare=compare, result=old)

		def call(ep, opt):
			return lib.xport_atomic(ep, args, key._key, offset, opt)

		return self._operation(call, take=lambda c: old[0], key=key, deadline=deadline)

	def add(self, key, offset, operand, width=8):
		return self.atomic(lib.XPORT_ATOMIC_ADD, key, offset, operand, 0, width)

	def compare_and_swap(self, key, offset, compare, new, width=8):
		return self.atomic(lib.XPORT_ATOMIC_CAS, key, offset, new, compare, width)

	def flush(self, deadline=None):
		return self._operation(lib.xport_flush, deadline=deadline)

	def fence(self):
		with self._x._lock:
			self._x._open()
			self._x._must(lib.xport_fence(self._ep), "xport_fence")


Part = collections.namedtuple("Part", "region offset length")


class Region:
	"""Registered memory.  memory is a view of it; numpy arrays are made of that without a copy."""

	def __init__(self, x, handle, held):
		self._x, self._mr, self._held, self._uses = x, handle, held, 0
		info = sized("xport_mr_info")
		x._must(lib.xport_mr_query(handle, info), "xport_mr_query")
		self._base = ffi.cast("char *", info.base)
		self.length, self.rights = info.length, info.rights
		self._array = lambda: None
		x._regions[address_of(handle)] = self

	def __enter__(self):
		return self

	def __exit__(self, *_):
		self.close()

	def _view(self):
		array = self._array()
		if array is None:
			array = (ctypes.c_ubyte * self.length).from_address(address_of(self._base))
			self._array = weakref.ref(array)
		return array

	def _viewed(self):
		return self._held is None and self._array() is not None

	@property
	def memory(self):
		"""A view of the bytes.  While it or a view of it is alive, close() raises BufferError."""
		if self._mr == NULL:
			raise error(lib.XPORT_ERR_CLOSED, "memory", "The region is closed.")
		return memoryview(self._view()).cast("B")

	def array(self, dtype, shape=-1, offset=0):
		"""A numpy array over the memory."""
		import numpy
		count = -1 if shape == -1 else int(numpy.prod(shape))
		return numpy.frombuffer(self.memory, dtype, count, offset).reshape(shape)

	def part(self, offset, length):
		"""A part of the region as the buffer of an operation."""
		if offset < 0 or length < 0 or offset + length > self.length:
			raise IndexError(f"{length} bytes at {offset} are not in a region of {self.length}")
		return Part(self, offset, length)

	@property
	def key(self):
		"""The packed key, for peers."""
		with self._x._lock:
			self._x._open()
			n = ffi.new("size_t *", 4096)
			buffer = ffi.new("char[]", n[0])
			self._x._must(lib.xport_rkey_pack(self._mr, buffer, n), "xport_rkey_pack")
			return bytes(ffi.buffer(buffer, n[0]))

	def close(self):
		"""Ends the registration.  May wait for peers."""
		with self._x._lock:
			if self._mr == NULL or self._x._x == NULL:
				return
			if self._uses:
				raise BufferError(f"{self._uses} operations in flight use the region")
			if self._viewed():
				raise BufferError("views of the region's memory are alive")
			self._x._must(lib.xport_mr_dereg(self._mr), "xport_mr_dereg")
			del self._x._regions[address_of(self._mr)]
			self._mr = NULL
			if self._held is not None:
				ffi.release(self._held)
				self._held = None
