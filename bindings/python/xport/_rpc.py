# SPDX-License-Identifier: BSD-3-Clause
"""Remote procedure calls: the caller and the callee of an instance."""
import asyncio
import collections
import inspect

from ._common import NULL, address_of, end_of, left_ms, milliseconds, sized
from ._errors import Error, error, last_error
from ._operation import POSTED, Operation
from ._xport import ffi, lib


class Request:
	"""A call of a peer.  endpoint is None if it is not accepted yet.  trace is the trace context of the caller, 24 bytes.

	one_way: the caller expects no reply.  lent: the payload has keys of memory that was lent for this call.
	"""
	__slots__ = ("endpoint", "method", "payload", "trace", "one_way", "lent", "_rpc", "_id")

	def __init__(self, rpc, e):
		self._rpc, self._id = rpc, e.id
		self.endpoint = rpc._x._endpoints.get(address_of(e.ep))
		self.method = ffi.string(e.method).decode()
		self.payload = bytes(ffi.buffer(e.payload, e.len)) if e.len else b""
		self.trace = bytes(ffi.buffer(e.trace))
		self.one_way, self.lent = bool(e.flags & lib.XPORT_RPC_ONE_WAY), bool(e.flags & lib.XPORT_RPC_LENT)

	@property
	def left(self):
		"""Seconds until the deadline.  Raises Canceled if the caller no longer waits, and why the endpoint has ended."""
		rpc = self._rpc
		with rpc._x._lock:
			return rpc._must(lib.xport_rpc_left(rpc._open(), self._id), "xport_rpc_left") / 1000


class Reply:
	"""What a call owns beside its slot: the memory of the reply, and what XPORT_RPC_DONE says."""
	__slots__ = ("memory", "ran", "retry_after", "why", "length", "released")

	def __init__(self, length):
		self.memory, self.length, self.why, self.released = ffi.new("char[]", length), 0, "", 0
		self.ran, self.retry_after = lib.XPORT_RPC_RAN_NO, 0.0

	def bytes(self):
		return bytes(ffi.buffer(self.memory, min(self.length, len(self.memory))))


class Call(Operation):
	"""A call in progress: call wait(), or await it.  A call that is given up is cancelled."""
	__slots__ = ()

	def result(self):
		"""The reply, as bytes.  An error has ran and retry_after as well."""
		try:
			return super().result()
		except Error as e:
			reply = self._slot.reply
			if reply is not None:
				e.ran, e.retry_after = reply.ran, reply.retry_after
			raise

	@property
	def lent(self):
		"""Whether the regions that were lent are lent still: the callee may access them, or the call waits for space."""
		return self._slot.number in self._x._rpc_loans

	def wait_released(self, timeout=None):
		"""Runs the instance until the callee has confirmed that it accesses them no longer; timeout in seconds.

		Raises why the callee cannot be heard.  With the statuses ERR_PROTOCOL, ERR_NO_MEMORY and ERR_PEER_CLOSED a handler
		may still access the regions: close them before their memory is used again.
		"""
		if not self._x._run(lambda: not self.lent, timeout):
			raise error(lib.XPORT_ERR_TIMEOUT, "wait_released")
		self._check_released()

	def _check_released(self):
		status = self._slot.reply.released
		if status < 0:
			raise error(status, "xport_rpc_call", hint="Close the regions that were lent before their memory is used again.")

	async def released(self):
		"""The same for asyncio."""
		self._x._attach(asyncio.get_running_loop())
		self._x._turn()
		while self.lent:
			future = asyncio.get_running_loop().create_future()
			self._x._rpc_loans[self._slot.number].append(future)
			await future
		self._check_released()


class Loan(list):
	"""The futures of those who wait for the end of a loan.  Its regions cannot be closed before."""

	def __init__(self, regions, reply):
		super().__init__()
		self.regions, self.reply = regions, reply
		for region in regions:
			region._uses += 1

	def end(self, x, status=0):
		self.reply.released = status
		for region in self.regions:
			region._uses -= 1
		for future in self:
			x._wake(future)


class RPC:
	"""The calls of an instance.  Made by Instance.rpc()."""

	def __init__(self, x, max_payload):
		self._x, self._handlers, self._requests, self._waiting = x, [], collections.deque(), 0
		self._serving, self._timer, self._tasks = False, None, set()
		self._rpcs = NULL
		self._event, self._id = sized("xport_rpc_event"), ffi.new("uint64_t *")
		self._args = sized("xport_rpc_args", id=self._id)
		out = ffi.new("xport_rpcs **")
		self._must(lib.xport_rpcs_create(x._open(), sized("xport_rpcs_attr", max_payload=max_payload), out), "xport_rpcs_create")
		self._rpcs = out[0]
		info = sized("xport_rpcs_info")
		self._must(lib.xport_rpcs_query(self._rpcs, info), "xport_rpcs_query")
		self.max_payload = info.max_payload

	def __enter__(self):
		return self

	def __exit__(self, *_):
		self.close()

	def _must(self, status, operation):
		if status < 0:
			raise last_error(None, status, operation)
		return status

	def _open(self):
		self._x._open()
		if self._rpcs == NULL:
			raise error(lib.XPORT_ERR_CLOSED, "RPC", "The calls are closed.")
		return self._rpcs

	# ---- the caller ----

	def call(self, ep, method, payload=b"", timeout=60, wait_for_space=True, one_way=False, trace=b"", lent=()):
		"""Calls a method of a peer.  The deadline of timeout seconds travels with the call.  Its result is the reply.

		A one_way call has no reply: it is done when the callee has handed it to its application.  trace, at most 24 bytes,
		is for the handler.  lent has regions whose keys are in the payload: they cannot be closed until the callee
		accesses them no longer, which may be after the end of the call, see Call.wait_released.
		"""
		payload, name, trace, lent = bytes(payload), method.encode(), bytes(trace), list(lent)
		if len(trace) > 24:
			raise ValueError("a trace context has at most 24 bytes")
		flags = (lib.XPORT_RPC_ONE_WAY if one_way else 0) | (lib.XPORT_RPC_LENT if lent else 0)
		end = end_of(timeout if timeout is None else max(timeout, 0.001))

		def post(slot):
			if ep._ep == NULL or self._rpcs == NULL:
				return lib.XPORT_ERR_CLOSED
			args = self._args
			data = ffi.from_buffer(payload)
			args.payload, args.len = data, len(payload)
			args.reply, args.reply_max = (NULL, 0) if one_way else (slot.reply.memory, len(slot.reply.memory))
			args.flags, args.trace = flags, trace.ljust(24, b"\0")
			args.deadline_ms = lib.XPORT_RPC_DEADLINE_MAX if end is None else min(left_ms(end), lib.XPORT_RPC_DEADLINE_MAX)
			args.context = ffi.cast("void *", slot.number)
			status = lib.xport_rpc_call(self._rpcs, ep._ep, name, args)
			if status == lib.XPORT_OK:
				slot.id, slot.reply.ran = self._id[0], lib.XPORT_RPC_RAN_UNKNOWN
			return status

		with self._x._lock:
			self._open()
			call = self._x._submit(post, queue=self, take=lambda e: e.bytes(), wait_for_space=wait_for_space,
			                       reply=Reply(0 if one_way else self.max_payload), cancel=self._cancel, kind=Call, end=end)
			if lent:
				self._x._rpc_loans[call._slot.number] = Loan(lent, call._slot.reply)
			return call

	def _cancel(self, slot):
		if self._rpcs == NULL or lib.xport_rpc_cancel(self._rpcs, slot.id) != lib.XPORT_OK:
			return False
		self._take()
		return True

	def _done(self, e):
		x = self._x
		slot = x._slots.pop(address_of(e.context), None)
		if slot is None:
			return
		reply = slot.reply
		reply.ran, reply.retry_after, reply.length = e.ran, e.retry_after_ms / 1000, e.len
		if e.status < 0:
			text = ffi.string(e.why).decode() or reply.bytes().decode(errors="replace")
			slot.failure = error(e.status, "xport_rpc_call", text)
		x._finish(slot, e.status, reply)

	# ---- the callee ----

	def handle(self, method, handler):
		"""Registers a method.  handler(request) returns the reply, or is a coroutine function, which runs as a task.

		An exception goes to the caller: the status of an xport.Error, else ERR_SYSTEM, and its text.
		"""
		with self._x._lock:
			name, number = method.encode(), ffi.cast("void *", len(self._handlers))
			self._must(lib.xport_rpc_register(self._open(), name, NULL, number), "xport_rpc_register")
			self._handlers.append(handler)

	def _serve(self):
		"""Runs the handlers of the requests that there are.  A handler may wait for operations, but starts no other handler."""
		with self._x._lock:
			if self._serving:
				return
			self._serving = True
		try:
			while True:
				with self._x._lock:
					if not self._requests or self._rpcs == NULL:
						return
					handler, request, left = self._requests.popleft()
				try:
					reply = handler(request)
					if inspect.isawaitable(reply):
						self._start(reply, request, left)
						continue
				except Exception as e:
					self._fail(request, e)
				else:
					self._reply(request, lib.XPORT_OK, reply)
		finally:
			self._serving = False

	def _start(self, awaitable, request, left):
		async def run():
			try:
				try:
					reply = await asyncio.wait_for(awaitable, left)
				except asyncio.TimeoutError as e:
					if isinstance(e, Error):
						raise
					raise error(lib.XPORT_ERR_TIMEOUT, "RPC", "the deadline of the call expired in its handler") from e
			except asyncio.CancelledError:
				self._reply(request, lib.XPORT_ERR_CANCELED, b"the handler was cancelled")
				raise
			except Exception as e:
				self._fail(request, e)
			else:
				self._reply(request, lib.XPORT_OK, reply)

		try:
			loop = asyncio.get_running_loop()
		except RuntimeError:
			if inspect.iscoroutine(awaitable):
				awaitable.close()
			raise
		task = loop.create_task(run())
		self._tasks.add(task)
		task.add_done_callback(self._tasks.discard)

	def _fail(self, request, e):
		status = e.status if isinstance(e, Error) and e.status < 0 else lib.XPORT_ERR_SYSTEM
		text = getattr(e, "text", "") or str(e) or type(e).__name__
		self._reply(request, status, text.encode()[:self.max_payload])

	def _reply(self, request, status, payload):
		with self._x._lock:
			if self._rpcs == NULL:
				return
			try:
				payload = bytes(memoryview(payload)) if payload is not None else b""
			except TypeError as e:
				status, payload = lib.XPORT_ERR_SYSTEM, f"the handler returned no bytes: {e}".encode()
			got = lib.xport_rpc_reply(self._rpcs, request._id, status, ffi.from_buffer(payload), len(payload))
			# These leave the request as it is.  If the caller has gone, the request has ended.
			if got in (lib.XPORT_ERR_BOUNDS, lib.XPORT_ERR_NO_MEMORY):
				lib.xport_rpc_reply(self._rpcs, request._id, got, NULL, 0)
			elif got == lib.XPORT_ERR_INVALID:
				lib.xport_rpc_reply(self._rpcs, request._id, lib.XPORT_ERR_SYSTEM, NULL, 0)

	# ---- progress: the instance calls these with its lock held ----

	def _step(self, c):
		return self._rpcs != NULL and lib.xport_rpcs_step(self._rpcs, c) == 1

	def _take(self):
		"""Takes the events that there are.  Returns their number."""
		n, e = 0, self._event
		if self._rpcs != NULL and lib.xport_rpcs_timeout(self._rpcs) == 0:
			self._step(NULL)
		while self._rpcs != NULL and lib.xport_rpcs_next(self._rpcs, e) == 1:
			n += 1
			if e.type == lib.XPORT_RPC_DONE:
				self._done(e)
			elif e.type == lib.XPORT_RPC_RELEASED:
				self._x._end_loan(address_of(e.context), e.status)
			elif e.type == lib.XPORT_RPC_REQUEST:
				self._requests.append((self._handlers[address_of(e.context)], Request(self, e), e.left_ms / 1000))
		return n

	def _left(self):
		"""Seconds until the instance must make a turn, or None."""
		ms = lib.xport_rpcs_timeout(self._rpcs) if self._rpcs != NULL else -1
		return None if ms < 0 else (ms + 1) / 1000

	def _forget(self, ep):
		if self._rpcs != NULL:
			lib.xport_rpcs_forget(self._rpcs, ep)
			self._take()

	def close(self, timeout=5):
		"""Ends all calls.  Those in progress fail with Closed.  Replies are sent: that may take timeout seconds.

		If a peer does not take them, it raises Timeout, and the instance can have no other RPC.
		"""
		x = self._x
		with x._lock:
			if self._rpcs == NULL:
				return
			rpcs, self._rpcs = self._rpcs, NULL
			self._requests.clear()
			for task in self._tasks:
				task.cancel()
			others = []

			@ffi.callback("void(void *, const struct xport_completion *)")
			def other(_, c):
				others.append(ffi.new("struct xport_completion *", c[0]))

			status = lib.xport_rpcs_destroy(rpcs, other, NULL, milliseconds(timeout))
			if status >= 0:
				x._rpc = None
			for c in others:
				x._dispatch(c)
			for slot in [s for s in x._slots.values() if s.reply is not None and s.state == POSTED]:
				del x._slots[slot.number]
				x._finish(slot, lib.XPORT_ERR_CLOSED)
			if status >= 0:
				for number in list(x._rpc_loans):
					x._end_loan(number)
			self._must(status, "xport_rpcs_destroy")
