# SPDX-License-Identifier: BSD-3-Clause
"""Instances.  The lock of an instance is held for each call and for xport_last_error after it."""
import collections
import select
import threading
import time
import warnings
import weakref

from ._common import NULL, Event, Message, address_of, end_of, left_ms, milliseconds, sized
from ._errors import Error, error, last_error
from ._objects import Endpoint, Listener, Region, exported
from ._operation import FINISHED, POSTED, WAITING, Operation, Slot, wake
from ._rpc import RPC
from ._xport import ffi, lib

ANY = 0
EXACT = (1 << 64) - 1
BATCH = 256


class Instance:
	"""An opened back end.  Use it as a context manager, or call close()."""

	def __init__(self, backend=None, queue_depth=0, peer_timeout=None, progress=None):
		self._lock = threading.RLock()
		self._slots, self._next, self._queued = {}, 1, collections.deque()
		self._events, self._event_waiters = collections.deque(), []
		self._endpoints, self._regions = weakref.WeakValueDictionary(), {}
		self._dropped = collections.deque()
		self._loop, self._loop_thread, self._row, self._waiting = None, None, 0, 0
		self._rpc, self._timer, self._rpc_loans = None, None, {}
		self._queue_end = None  # no queued operation has an earlier deadline
		self._x = NULL
		strings = [ffi.new("char[]", s.encode()) if s is not None else NULL for s in (backend, progress)]
		attr = sized("xport_attr", backend=strings[0], progress=strings[1], queue_depth=queue_depth)
		attr.peer_timeout_ms = 0 if peer_timeout is None else milliseconds(peer_timeout)
		out = ffi.new("xport **")
		self._must(lib.xport_open(attr, out), "xport_open")
		self._x = out[0]
		self._list = ffi.new("struct xport_completion[]", BATCH)
		self._opt = sized("xport_opt")
		self._id = ffi.new("uint64_t *")
		self._fd = lib.xport_fd(self._x)
		self._poll = select.poll()
		self._poll.register(self._fd, select.POLLIN)

	def __enter__(self):
		return self

	def __exit__(self, *_):
		self.close()

	async def __aenter__(self):
		return self

	async def __aexit__(self, *_):
		self.close()

	def __del__(self):
		if getattr(self, "_x", NULL) != NULL:
			warnings.warn("an xport.Instance was not closed", ResourceWarning, stacklevel=2)

	def close(self):
		"""Ends all that belongs to the instance, without waiting.  Operations in flight fail with Closed.

		With an RPC it may take a second.  While a view of a region's memory is alive, that memory stays.  The connections
		end nevertheless.
		"""
		with self._lock:
			if self._x == NULL:
				return
			self._detach()
			for ep in list(self._endpoints.values()):
				ep._destroy()
			if self._rpc is not None:
				try:
					self._rpc.close(1)
				except Error:
					pass  # its calls have ended nevertheless
			x, self._x = self._x, NULL
			views = [r for r in self._regions.values() if r._viewed()]
			for r in self._regions.values():
				r._mr = NULL
			left = [len(views)]
			# After xport_close nothing accesses these.
			buffers = [slot.buffer for slot in self._slots.values() if slot.buffer is not None]

			def ended():
				left[0] -= 1
				if left[0] <= 0:
					lib.xport_close(x)
					for buffer in buffers:
						ffi.release(buffer)

			for r in views:
				weakref.finalize(r._view(), ended).atexit = False
			if not views:
				ended()
			for slot in list(self._slots.values()):
				slot.buffer = None
				self._finish(slot, lib.XPORT_ERR_CLOSED)
			for loan in self._rpc_loans.values():
				loan.end(self)
			self._rpc_loans.clear()
			self._slots.clear()
			self._queued.clear()
			for waiter in self._event_waiters:
				self._wake(waiter)

	# ---- calls ----

	def _must(self, status, operation):
		if status < 0:
			raise last_error(self._x, status, operation)
		return status

	def _open(self):
		if self._x == NULL:
			raise error(lib.XPORT_ERR_CLOSED, "xport", "The instance is closed.")
		return self._x

	def _options(self, number, region, value=0, source=NULL, idp=NULL, end=None, flags=0):
		opt = self._opt
		opt.flags, opt.deadline_ms = flags, 0 if end is None else left_ms(end)
		opt.context = ffi.cast("void *", number)
		opt.mr = NULL if region is None else region._mr
		opt.value, opt.source, opt.id = value, source, idp
		return opt

	def _submit(self, post, buffer=None, region=None, queue=None, take=None, wait_for_space=True, receive=False,
	            reply=None, cancel=None, kind=Operation, end=None):
		with self._lock:
			self._open()
			slot = Slot(post, buffer, region, queue or self, take)
			slot.number, slot.receive, slot.reply, slot.cancel, slot.end = self._next, receive, reply, cancel, end
			self._next += 1
			try:
				status = lib.XPORT_ERR_AGAIN if slot.queue._waiting else post(slot)
			except BaseException:
				slot.state = FINISHED
				slot.release()
				raise
			if status == lib.XPORT_ERR_AGAIN and wait_for_space:
				slot.queue._waiting += 1
				self._queued.append(slot)
				self._expires(slot)
			elif status < 0:
				slot.state = FINISHED
				slot.release()
				raise self._failure(slot, status)
			else:
				slot.state = POSTED
			self._slots[slot.number] = slot
			return kind(self, slot)

	def _failure(self, slot, status):
		"""Why it was not posted."""
		if slot.reply is None:
			return last_error(self._x, status, "xport")
		failure = last_error(None, status, "xport_rpc_call")
		failure.ran = lib.XPORT_RPC_RAN_NO
		return failure

	# ---- completions ----

	def _turn(self):
		"""Makes progress.  Returns the number of completions and events."""
		with self._lock:
			x = self._open()
			while self._dropped:
				dropped = self._dropped.popleft()
				dropped._destroy() if isinstance(dropped, Endpoint) else self._abandon(dropped)
			if self._queued:
				self._post_queued()
			n = self._must(lib.xport_poll(x, self._list, BATCH), "xport_poll")
			for i in range(n):
				c = self._list + i
				if self._rpc is None or not self._rpc._step(c):
					self._dispatch(c)
			if self._rpc is None and not self._queued:
				return n
			if self._rpc is not None:
				n += self._rpc._take()
		self._after_turn()
		return n

	turn = _turn

	def _dispatch(self, c):
		if c.type < lib.XPORT_EVENT_NOTIFY:
			slot = self._slots.pop(address_of(c.context), None)
			if slot is not None:
				self._finish(slot, c.status, c)
		else:
			self._event(c)

	def _after_turn(self):
		"""Handlers run without the lock, and may use the instance.  The loop looks again when a time has passed."""
		rpc = self._rpc
		if rpc is not None:
			rpc._serve()
		if self._loop is not None and self._loop_thread == threading.get_ident():
			if self._timer is not None:
				self._timer.cancel()
			left = self._left()
			self._timer = None if left is None else self._loop.call_later(left, self._readable)

	def _left(self):
		"""Seconds until the instance must make a turn, or None."""
		rpc, end = self._rpc, self._queue_end
		left = None if rpc is None else rpc._left()
		if end is None:
			return left
		queue = max(0, end - time.monotonic())
		return queue if left is None else min(left, queue)

	def _expires(self, slot):
		if slot.end is not None and (self._queue_end is None or slot.end < self._queue_end):
			self._queue_end = slot.end

	def _post_queued(self):
		refused, left, now = set(), collections.deque(), time.monotonic()
		self._queue_end = None
		while self._queued:
			slot = self._queued.popleft()
			if slot.state == FINISHED:  # cancelled
				continue
			if slot.end is not None and slot.end <= now:
				why = "the deadline expired while the operation waited for space in the queue"
				self._end_queued(slot, error(lib.XPORT_ERR_TIMEOUT, "xport", why))
				continue
			status = lib.XPORT_ERR_AGAIN if slot.queue in refused else slot.post(slot)
			if status == lib.XPORT_ERR_AGAIN:
				refused.add(slot.queue)
				left.append(slot)
				self._expires(slot)
			elif status < 0:
				self._end_queued(slot, self._failure(slot, status))
			else:
				slot.queue._waiting -= 1
				slot.state = POSTED
		self._queued = left

	def _end_queued(self, slot, failure):
		slot.queue._waiting -= 1
		slot.failure = failure
		del self._slots[slot.number]
		if slot.reply is not None:
			self._end_loan(slot.number)
		self._finish(slot, failure.status)

	def _end_loan(self, number, status=0):
		loan = self._rpc_loans.pop(number, None)
		if loan is not None:
			loan.end(self, status)

	def _finish(self, slot, status, c=None):
		slot.status = status
		if status >= 0 and slot.take is not None:
			slot.value = slot.take(c)
		slot.state = FINISHED
		slot.release()
		if slot.wake is not None:
			self._wake(slot.wake)

	def _wake(self, future):
		if self._loop_thread == threading.get_ident():
			wake(future)
		else:
			self._loop.call_soon_threadsafe(wake, future)

	def _event(self, c):
		ep = self._endpoints.get(address_of(c.ep)) if c.ep != NULL else None
		region = self._regions.get(address_of(c.mr)) if c.mr != NULL else None
		self._events.append(Event(c.type, ep, c.status, c.tag, region, c.offset, c.length))
		waiters, self._event_waiters = self._event_waiters, []
		for waiter in waiters:
			self._wake(waiter)

	def _abandon(self, slot):
		with self._lock:
			if slot.state != FINISHED:
				slot.orphan = True
				self._cancel(slot)

	def _cancel(self, slot):
		with self._lock:
			if self._x == NULL or slot.state == FINISHED:
				return False
			if slot.state == WAITING:
				self._end_queued(slot, error(lib.XPORT_ERR_CANCELED, "xport"))
				return True
			if slot.cancel is not None:
				return slot.cancel(slot)
			if not slot.id:
				return False
			return lib.xport_cancel(self._x, slot.id) == lib.XPORT_OK

	@property
	def orphans(self):
		"""Operations in flight that nobody waits for any more."""
		return sum(slot.orphan for slot in self._slots.values())

	@property
	def in_flight(self):
		return len(self._slots)

	# ---- waiting ----

	def fileno(self):
		return self._fd

	def _run(self, until, timeout):
		end = None if timeout is None else time.monotonic() + timeout
		idle = 0
		while True:
			n = self._turn()
			if until():
				return True
			left = 0.1 if end is None else end - time.monotonic()
			if left <= 0:
				return False
			idle = 0 if n > 0 else idle + 1
			if idle > 20:  # another thread may reap what this one waits for: it does not sleep for longer
				timer = self._left()
				self._poll.poll(min(left, 0.1 if timer is None else timer, 0.1) * 1000)

	def next_event(self, timeout=None):
		"""The next event, or None after the timeout in seconds."""
		self._run(lambda: self._events, timeout)
		return self._events.popleft() if self._events else None

	async def event(self):
		import asyncio
		loop = asyncio.get_running_loop()
		self._attach(loop)
		while not self._events:
			self._open()
			future = loop.create_future()
			self._event_waiters.append(future)
			await future
		return self._events.popleft()

	def _attach(self, loop):
		"""The loop calls _readable from now on.  Level-triggered: nothing need be armed."""
		if self._loop is not loop:
			self._detach()
			self._open()
			loop.add_reader(self._fd, self._readable)
			self._loop, self._loop_thread = loop, threading.get_ident()

	def _detach(self):
		if self._loop is not None and not self._loop.is_closed():
			self._loop.remove_reader(self._fd)
			if self._timer is not None:
				self._timer.cancel()
		self._loop, self._timer = None, None

	def _readable(self):
		try:
			self._turn()
		except Error:
			self._detach()  # each operation has its error by now
			raise

	def _in_a_row(self):
		"""Now and then an operation that is complete waits for the loop nevertheless, so that other tasks run."""
		self._row = (self._row + 1) % 32
		return self._row == 0

	# ---- connections and memory ----

	def _conn_attr(self, private_data, transports, backlog=0):
		data = bytes(private_data)
		held = ffi.new("char[]", data) if data else NULL
		names = ffi.new("char[]", transports.encode()) if transports is not None else NULL
		attr = sized("xport_conn_attr", private_data=held, private_len=len(data), backlog=backlog, transports=names)
		return attr, (held, names)

	def listen(self, address="127.0.0.1:0", private_data=b"", backlog=0, transports=None):
		"""transports: the only ones that connections may use, "A+B"; None: all of the instance."""
		with self._lock:
			attr, _held = self._conn_attr(private_data, transports, backlog)
			out = ffi.new("xport_listener **")
			self._must(lib.xport_listen(self._open(), address.encode(), attr, out), "xport_listen")
			return Listener(self, out[0])

	def connect(self, address, private_data=b"", timeout=None, transports=None):
		"""Waits up to timeout seconds.  A coroutine calls connect_async instead."""
		with self._lock:
			attr, _held = self._conn_attr(private_data, transports)
			out = ffi.new("xport_ep **")
			status = lib.xport_connect(self._open(), address.encode(), attr, max(1, milliseconds(timeout)) if timeout is not None else -1, out)
			self._must(status, "xport_connect")
			return Endpoint(self, out[0])

	async def connect_async(self, address, private_data=b"", transports=None):
		with self._lock:
			attr, _held = self._conn_attr(private_data, transports)
			out = ffi.new("xport_ep **")
			self._must(lib.xport_connect(self._open(), address.encode(), attr, 0, out), "xport_connect")
			ep = Endpoint(self, out[0])
		others = []
		try:
			while True:
				e = await self.event()
				if e.endpoint is not ep:
					others.append(e)
				elif e.type == lib.XPORT_EVENT_CONNECTED:
					return ep
				else:
					why = ffi.string(ep._info().why).decode(errors="replace")
					ep.close(0)
					raise error(e.status, "xport_connect", why)
		finally:
			self._events.extendleft(reversed(others))

	def alloc(self, length, rights=0):
		"""Zeroed, registered memory, the fastest that the back end offers."""
		with self._lock:
			out = ffi.new("xport_mr **")
			self._must(lib.xport_mr_alloc(self._open(), length, rights, out), "xport_mr_alloc")
			return Region(self, out[0], None)

	def register(self, obj, rights=0):
		"""Registers the memory of a writable object, which is exported until the registration ends."""
		buffer = ffi.from_buffer("char[]", obj, require_writable=True)
		with self._lock:
			out = ffi.new("xport_mr **")
			self._must(lib.xport_mr_reg(self._open(), buffer, len(buffer), rights, out), "xport_mr_reg")
			return Region(self, out[0], buffer)

	def rpc(self, max_payload=0):
		"""The remote procedure calls of the instance, which has one RPC at a time.  0: payloads of up to 3900 bytes."""
		with self._lock:
			if self._rpc is not None:
				raise error(lib.XPORT_ERR_BUSY, "Instance.rpc", "the instance has an RPC already", hint="Use that one.")
			self._rpc = RPC(self, max_payload)
			return self._rpc

	def recv_into(self, buffer, tag, mask=EXACT, source=None, deadline=None):
		"""Its result is a Message without data."""
		return self._receive(buffer, tag, mask, source, None, deadline)

	def recv(self, length, tag, mask=EXACT, source=None, deadline=None):
		"""Its result is a Message with data, a bytearray."""
		data = bytearray(length)
		return self._receive(data, tag, mask, source, data, deadline)

	def _receive(self, obj, tag, mask, source, data, deadline):
		end = end_of(deadline)
		pointer, length, buffer, region = exported(obj, True)

		def post(slot):
			if source is not None and source._ep == NULL:
				return lib.XPORT_ERR_CLOSED
			opt = self._options(slot.number, region, source=NULL if source is None else source._ep, idp=self._id,
			                    end=end)
			status = lib.xport_recv(self._x, pointer, length, tag, mask, opt)
			slot.id = self._id[0]
			return status

		def take(c):
			got = data if data is None or c.length == length else data[:c.length]
			return Message(got, c.tag, c.length, self._endpoints.get(address_of(c.ep)))

		return self._submit(post, buffer, region, source, take, receive=True, end=end)


def open(backend=None, **options):
	return Instance(backend, **options)
