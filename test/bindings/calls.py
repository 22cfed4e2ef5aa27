#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Remote procedure calls with the package xport.

	calls.py serve             the callee, with asyncio; serve_plain: without
	calls.py ADDRESS NAME...   the caller: prints "ok NAME" for each
"""
import asyncio
import gc
import sys
import time
import warnings

import xport
from scenarios import WAIT, pattern, raises


BLOCK = 2  # seconds for which a callee is deaf


class Caller:
	"""One connection to the callee."""

	def __init__(self, address, **options):
		self.x = xport.open(**options)
		self.ep = self.x.connect(address, timeout=WAIT)
		self.rpc = self.x.rpc()

	def __enter__(self):
		return self

	def __exit__(self, kind, *_):
		if kind is None:
			self.rpc.close()
			self.ep.close(WAIT)
			assert (self.x.orphans, self.x.in_flight) == (0, 0), (self.x.orphans, self.x.in_flight)
		self.x.close()

	def call(self, method, payload=b"", timeout=WAIT):
		return self.rpc.call(self.ep, method, payload, timeout)


def failed(kind, call, ran):
	e = raises(kind, call)
	assert e.ran == ran, (e, e.ran)
	return e


def replies(address):
	with Caller(address) as s:
		raises(xport.Error, s.x.rpc)
		for n in (0, 1, 3000, s.rpc.max_payload):
			assert s.call("reverse", pattern(n, n)).wait() == pattern(n, n)[::-1], n
		assert s.call("reverse", bytearray(b"abc")).wait() == b"cba"
		calls = [s.call("reverse", b"%d" % i) for i in range(300)]
		for i, call in enumerate(calls):
			assert call.wait() == (b"%d" % i)[::-1], i


def loans(address):
	"""One-way calls, trace contexts, and regions that a handler may still access after the end of its call."""
	with Caller(address) as s:
		assert s.rpc.call(s.ep, "keep", b"one way", WAIT, one_way=True, trace=b"trace").wait() == b""
		assert s.call("kept").wait() == b"one way|" + b"trace".ljust(24, b"\0") + b"|1"
		s.call("keep", b"two ways").wait()
		assert s.call("kept").wait() == b"two ways|" + bytes(24) + b"|0"
		raises(ValueError, s.rpc.call, s.ep, "keep", trace=bytes(25))
		assert s.call("lent").wait() == b"0"
		region = s.x.alloc(100, xport.REMOTE_WRITE)
		call = s.rpc.call(s.ep, "lent", region.key, WAIT, lent=[region])
		raises(BufferError, region.close)
		assert call.wait() == b"1"
		call.wait_released(WAIT)
		call = s.rpc.call(s.ep, "block", b"", 0.05, lent=[region])
		raises(xport.Timeout, call.wait)
		assert call.lent
		raises(BufferError, region.close)
		raises(xport.Timeout, call.wait_released, 0.001)
		asyncio.run(asyncio.wait_for(call.released(), WAIT))
		assert not call.lent
		raises(xport.Invalid, s.rpc.call, s.ep, "no name", b"", WAIT, lent=[region])
		region.close()


def errors(address):
	with Caller(address) as s:
		no, yes = xport.RPC_RAN_NO, xport.RPC_RAN_YES
		e = failed(xport.Bounds, s.call("fail", b"why not").wait, yes)
		assert e.text == "why not", e.text
		e = failed(xport.Error, s.call("raise").wait, yes)
		assert (e.status, e.text) == (xport.ERR_SYSTEM, "a handler's own"), e
		e = failed(xport.Error, s.call("text").wait, yes)
		assert e.status == xport.ERR_SYSTEM and "no bytes" in e.text, e
		e = failed(xport.Error, s.call("nobody").wait, no)
		assert e.status == xport.ERR_NOT_SUPPORTED, e
		failed(xport.Bounds, lambda: s.call("reverse", bytes(1 << 20)), no)
		failed(xport.Invalid, lambda: s.call("a name with spaces"), no)
		failed(xport.Bounds, s.call("long").wait, yes)
		raises(xport.Invalid, s.rpc.handle, "xport.reserved", len)
		s.rpc.handle("mine", lambda request: b"")
		e = raises(xport.Error, s.rpc.handle, "mine", len)
		assert e.status == xport.ERR_BUSY and e.hint, (e, e.hint)


def deadlines(address):
	with Caller(address) as s:
		begun = time.monotonic()
		e = raises(xport.Timeout, s.call("never", timeout=0.05).wait)
		assert e.ran in (xport.RPC_RAN_UNKNOWN, xport.RPC_RAN_YES), e.ran  # the deadline here, or that of the handler
		raises(xport.Timeout, s.call("never").wait, timeout=0.05)
		call = s.call("never")
		assert call.cancel()
		failed(xport.Canceled, call.wait, xport.RPC_RAN_UNKNOWN)
		s.call("never")  # nobody keeps it
		gc.collect()
		s.x.turn()
		assert s.x.in_flight == 0, s.x.in_flight
		assert time.monotonic() - begun < WAIT / 2
		# The handlers notice that.
		while s.call("waiting").wait() != b"0":
			assert time.monotonic() - begun < WAIT, "handlers whose callers have gone still run"
		queued(s)
		begun = time.monotonic()
		failed(xport.Timeout, s.call("block", timeout=0.05).wait, xport.RPC_RAN_UNKNOWN)
		assert time.monotonic() - begun < BLOCK, "it was the callee that ended the wait"


def queued(s):
	"""Calls that wait until others have ended, which they do not."""
	held = []
	while True:
		try:
			held.append(s.rpc.call(s.ep, "never", b"", WAIT, wait_for_space=False))
		except xport.Again:
			break
	failed(xport.Timeout, s.call("reverse", timeout=0.05).wait, xport.RPC_RAN_NO)
	region = s.x.alloc(100, xport.REMOTE_WRITE)
	call = s.rpc.call(s.ep, "lent", region.key, float("inf"), lent=[region])
	assert call.lent
	raises(BufferError, region.close)
	assert call.cancel() and not call.lent
	failed(xport.Canceled, call.wait, xport.RPC_RAN_NO)
	call.wait_released(WAIT)
	region.close()
	raises(ValueError, s.call, "reverse", timeout=float("nan"))
	for call in held:
		call.cancel()
	end = time.monotonic() + WAIT
	while True:
		try:
			if s.call("waiting").wait() == b"0":
				return
		except xport.Busy:
			assert time.monotonic() < end, "handlers whose callers have gone still run"


def closing(address):
	s = Caller(address)
	call = s.call("never")
	s.rpc.close()
	failed(xport.Closed, call.wait, xport.RPC_RAN_UNKNOWN)
	raises(xport.Closed, s.call, "reverse")
	s.rpc = s.x.rpc()
	assert s.call("reverse", b"again").wait() == b"niaga"
	call = s.call("never")
	s.ep.close(0)
	failed(xport.Closed, call.wait, xport.RPC_RAN_UNKNOWN)
	raises(xport.Closed, s.call, "reverse")
	s.ep = s.x.connect(address, timeout=WAIT)
	call = s.call("never")
	s.x.close()
	failed(xport.Closed, call.result, xport.RPC_RAN_NO)  # the peers had not greeted each other
	raises(xport.Closed, s.call, "reverse")


async def tasks_async(address):
	async with xport.open() as x:
		ep = await x.connect_async(address)
		rpc = x.rpc()

		async def caller(k):
			for i in range(40):
				data = pattern(k * i, 100)
				while True:
					try:
						assert await rpc.call(ep, "reverse", data, WAIT) == data[::-1]
						break
					except xport.Busy as e:
						assert e.ran == xport.RPC_RAN_NO and e.retry_after > 0
						await asyncio.sleep(e.retry_after)

		await asyncio.gather(*(caller(k) for k in range(50)))
		begun = time.monotonic()
		try:
			await rpc.call(ep, "never", timeout=0.05)
			raise AssertionError("no timeout")
		except xport.Timeout:
			pass
		try:
			await asyncio.wait_for(rpc.call(ep, "never", timeout=WAIT), 0.05)
			raise AssertionError("not cancelled")
		except asyncio.TimeoutError:
			pass
		assert time.monotonic() - begun < WAIT / 2 and x.in_flight == 0, x.in_flight
		begun = time.monotonic()
		try:
			await rpc.call(ep, "block", timeout=0.05)
			raise AssertionError("no timeout")
		except xport.Timeout as e:
			assert e.ran == xport.RPC_RAN_UNKNOWN, e.ran
		assert time.monotonic() - begun < BLOCK, "it was the callee that ended the wait"
		# This side is a callee as well, and calls itself back through the peer.
		rpc.handle("here", lambda request: request.payload + b" and back")
		assert await rpc.call(ep, "back", b"there", WAIT) == b"there and back"
		ep.close(WAIT)


def tasks(address):
	asyncio.run(tasks_async(address))


def call(address):
	"""Of scenarios.txt: the callee may be that in C."""
	with Caller(address) as s:
		assert s.call("echo", b"from Python").wait() == b"from Python"
		e = failed(xport.Error, s.call("nothing").wait, xport.RPC_RAN_NO)
		assert e.status == xport.ERR_NOT_SUPPORTED, e
		assert s.call("echo").wait() == b""


def echo(address):
	"""Against rpc_echo.c."""
	with Caller(address) as s:
		assert s.call("echo", b"from Python").wait() == b"from Python"
		assert s.call("length", bytes(12)).wait() == b"12 bytes"


# ---- the callee ----


def methods(rpc, waiting):
	kept = []

	def fail(request):
		raise xport.Bounds(xport.ERR_BOUNDS, "fail", request.payload.decode())

	def own(request):
		raise ValueError("a handler's own")

	rpc.handle("echo", lambda request: request.payload)
	rpc.handle("reverse", lambda request: request.payload[::-1])
	rpc.handle("fail", fail)
	rpc.handle("raise", own)
	rpc.handle("text", lambda request: "not bytes")
	rpc.handle("long", lambda request: bytes(1 << 20))
	rpc.handle("keep", lambda request: kept.append((request.payload, request.trace, request.one_way)))
	rpc.handle("kept", lambda request: b"|".join([kept[-1][0], kept[-1][1], b"%d" % kept[-1][2]]))
	rpc.handle("lent", lambda request: b"%d" % request.lent)
	rpc.handle("block", lambda request: time.sleep(BLOCK))
	rpc.handle("waiting", lambda request: b"%d" % len(waiting))


async def serve():
	async with xport.open() as x:
		rpc, waiting = x.rpc(), []

		async def never(request):
			waiting.append(request)
			try:
				while True:
					assert request.left < WAIT * 2
					await asyncio.sleep(0.005)
			finally:
				waiting.remove(request)

		async def back(request):
			return await rpc.call(request.endpoint, "here", request.payload, WAIT)

		methods(rpc, waiting)
		rpc.handle("never", never)
		rpc.handle("back", back)
		listener = x.listen()
		print(listener.address, flush=True)
		kept = []
		while True:
			kept.append(await listener.accept_async())
			kept = [ep for ep in kept if ep.is_open]


def serve_plain():
	with xport.open() as x:
		rpc, waiting = x.rpc(), []

		def never(request):
			try:
				while request.left > 0:
					time.sleep(0.001)
			except xport.Error:
				pass
			return b""

		async def coroutine(request):
			return b""

		def back(request):  # it waits within a turn
			return rpc.call(request.endpoint, "here", request.payload, WAIT).wait(WAIT)

		methods(rpc, waiting)
		rpc.handle("never", never)
		rpc.handle("coroutine", coroutine)
		rpc.handle("back", back)
		listener = x.listen()
		print(listener.address, flush=True)
		kept = []
		while True:
			kept.append(listener.accept())
			while kept[-1].is_open:
				x.next_event(timeout=0.1)


def plain(address):
	with Caller(address) as s:
		assert s.call("reverse", b"abc").wait() == b"cba"
		s.rpc.handle("here", lambda request: request.payload + b" and back")
		calls = [s.call("back", b"%d" % i) for i in range(20)]
		assert [call.wait(WAIT) for call in calls] == [b"%d and back" % i for i in range(20)]
		e = failed(xport.Error, s.call("coroutine").wait, xport.RPC_RAN_YES)
		assert e.status == xport.ERR_SYSTEM and "event loop" in e.text, e


def main(role, *names):
	warnings.simplefilter("error")
	if role == "serve":
		asyncio.run(serve())
	if role == "serve_plain":
		serve_plain()
	for name in names:
		globals()[name](role)
		print("ok", name, flush=True)


if __name__ == "__main__":
	main(*sys.argv[1:])
