# SPDX-License-Identifier: BSD-3-Clause
"""Operations in flight."""
import asyncio

from ._errors import Timeout, error, last_error
from ._xport import ffi, lib

WAITING, POSTED, FINISHED = range(3)


class Slot:
	"""What an operation in flight owns.  The instance keeps it until the completion, even if its caller is gone."""
	__slots__ = ("number", "post", "state", "status", "value", "buffer", "region", "queue", "receive", "orphan", "wake",
	             "take", "failure", "id", "reply", "cancel", "end")

	def __init__(self, post, buffer, region, queue, take):
		self.post, self.buffer, self.region, self.queue, self.take = post, buffer, region, queue, take
		self.state, self.status, self.value, self.failure = WAITING, 0, None, None
		self.receive, self.orphan, self.wake, self.id = False, False, None, None
		self.reply, self.cancel, self.end = None, None, None
		if region is not None:
			region._uses += 1

	def release(self):
		"""After the completion: the object of the buffer may be resized and freed again."""
		if self.buffer is not None:
			ffi.release(self.buffer)
		if self.region is not None:
			self.region._uses -= 1
		self.buffer = self.region = self.post = self.take = None


class Operation:
	"""A posted operation: call wait(), or await it.

	If the queue was full, the operation is posted as soon as there is space, behind earlier ones of its endpoint.  If
	the object goes away, or the task that awaits it is cancelled, the operation is an orphan: its buffer stays
	exported until the completion.  An abandoned receive is cancelled.
	"""
	__slots__ = ("_x", "_slot", "__weakref__")

	def __init__(self, x, slot):
		self._x, self._slot = x, slot

	def __del__(self):
		# Perhaps in another thread: the next turn of the instance looks at it.
		slot = getattr(self, "_slot", None)
		if slot is not None and slot.state != FINISHED:
			self._x._dropped.append(slot)

	@property
	def done(self):
		return self._slot.state == FINISHED

	def result(self):
		"""Raises what went wrong."""
		slot = self._slot
		if slot.state != FINISHED:
			raise RuntimeError("the operation is in flight: call wait(), or await it")
		if slot.status < 0:
			raise slot.failure or error(slot.status, "completion")
		return slot.value

	def wait(self, timeout=None):
		"""Runs the instance until the completion; timeout in seconds.  After the timeout the operation is an orphan."""
		if not self._x._run(lambda: self._slot.state == FINISHED, timeout):
			self.abandon()
			raise error(lib.XPORT_ERR_TIMEOUT, "wait")
		return self.result()

	def abandon(self):
		"""Nobody wants the result any more."""
		self._x._abandon(self._slot)

	def cancel(self):
		"""Cancels a receive, a call or a cancelable send, which then fails with Canceled.  False: it has matched already."""
		return self._x._cancel(self._slot)

	def __await__(self):
		x, slot = self._x, self._slot
		loop = asyncio.get_running_loop()
		x._attach(loop)
		if slot.state != FINISHED:
			x._turn()
		if slot.state != FINISHED or x._in_a_row():
			future = loop.create_future()
			slot.wake = future
			if slot.state == FINISHED:
				loop.call_soon(wake, future)
			try:
				yield from future
			finally:
				slot.wake = None
				if slot.state != FINISHED:
					self.abandon()
		return self.result()


def wake(future):
	if not future.done():
		future.set_result(None)


__all__ = ["FINISHED", "Operation", "POSTED", "Slot", "Timeout", "WAITING", "last_error", "wake"]
