#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The scenarios of scenarios.txt with the package xport.

	scenarios.py serve             the target, as peer.c
	scenarios.py ADDRESS NAME...   the initiator: prints "ok NAME" for each

Not in the table: wakeups, WAKEUPS messages and answers under asyncio, with pauses; cancels, 10,000 operations that are
dropped or cancelled beside a stopped peer; arrays, numpy arrays over regions.
"""
import asyncio
import gc
import glob
import os
import random
import signal
import struct
import sys
import time
import warnings

import xport

WAIT = float(os.environ.get("WAIT_S", "60"))
REGION, MESSAGE = 1 << 20, 1 << 18
ALL = xport.REMOTE_READ | xport.REMOTE_WRITE | xport.REMOTE_ATOMIC


def pattern(seed, n):
	return bytes((seed + i * 7 + i // 251) % 256 for i in range(n))


def raises(kind, call, *args, **named):
	try:
		call(*args, **named)
	except kind as e:
		return e
	raise AssertionError(f"no {kind.__name__}")


class Side:
	"""One connection to the target."""

	def __init__(self, address, **options):
		self.x = xport.open(**options)
		self.ep = self.x.connect(address, timeout=WAIT)
		self.key = self.ep.unpack(self.ep.private_data)

	def __enter__(self):
		return self

	def __exit__(self, kind, *_):
		if kind is None:
			self.ep.close(WAIT)
			assert (self.x.orphans, self.x.in_flight) == (0, 0), (self.x.orphans, self.x.in_flight)
		self.x.close()

	def ask(self, message):
		answer = self.x.recv(MESSAGE, 2, source=self.ep)
		self.ep.send(message, 1).wait(WAIT)
		return answer.wait(WAIT)


def connect(address):
	with Side(address) as s:
		assert s.ep.is_open and s.ep.peer_pid > 1 and s.key.length == REGION
		assert ":" in s.ep.transport and s.ep.passed_over == ""
		e = raises(xport.Refused, s.x.connect, "127.0.0.1:1", timeout=WAIT)
		assert isinstance(e, ConnectionRefusedError) and e.hint and e.operation == "xport_connect" and e.text in str(e), e
		ep = s.ep
	assert not ep.is_open
	raises(xport.Closed, ep.put, b"1", s.key)
	raises(xport.Closed, s.x.listen)
	asyncio.run(connect_async(address))


async def connect_async(address):
	async with xport.open() as x:
		ep = await x.connect_async(address)
		assert ep.is_open
		try:
			await x.connect_async("127.0.0.1:1")
			assert False, "connected to nobody"
		except xport.Refused as e:
			assert "xport_connect" in str(e)
		ep.close(WAIT)


def put(address):
	with Side(address) as s:
		s.ep.put(pattern(1, 300001), s.key, 17).wait(WAIT)
		memory = bytearray(pattern(2, 8))
		region = s.x.register(memory)
		raises(BufferError, memory.append, 1)
		s.ep.fence()
		operation = s.ep.put(region, s.key, 400000)
		if not operation.done:
			raises(BufferError, region.close)
		operation.wait(WAIT)
		region.close()
		memory.append(1)
		s.ep.flush().wait(WAIT)
		assert s.ep.get(300001, s.key, 17).wait(WAIT) == pattern(1, 300001)
		assert s.ep.get(8, s.key, 400000).wait(WAIT) == pattern(2, 8)
		raises(TypeError, s.ep.put, "text", s.key)
		raises(Exception, s.ep.put, memoryview(b"12345678")[::2], s.key)
		asyncio.run(put_async(s))


async def put_async(s):
	data = bytearray(pattern(9, 5000))
	await asyncio.gather(*(s.ep.put(data, s.key, 5000 * i) for i in range(50)))
	data.append(0)  # exported no more
	for i in range(100):
		await s.ep.put(struct.pack("q", i), s.key, 8)
	assert struct.unpack("q", await s.ep.get(8, s.key, 8)) == (99,)


def get(address):
	with Side(address) as s:
		data = pattern(3, 70001)
		s.ep.put(data, s.key, 5).wait(WAIT)
		room = bytearray(len(data))
		operation = s.ep.get_into(room, s.key, 5)
		assert operation.wait(WAIT) == len(data) and room == data
		raises(Exception, s.ep.get_into, b"12345678", s.key)  # cannot be written
		with s.x.alloc(100000) as region:
			s.ep.get_into(region.part(7, len(data)), s.key, 5).wait(WAIT)
			view = region.memory
			assert view[7:7 + len(data)] == data
			raises(BufferError, region.close)
			del view
		raises(xport.Closed, lambda: region.memory)


def notify(address):
	with Side(address) as s:
		s.ep.put(pattern(4, 4099), s.key, 1000, notify=0xfeedfacecafebeef).wait(WAIT)
		assert s.ask(b"N").data == struct.pack("Q", 0xfeedfacecafebeef)


def atomics(address):
	with Side(address) as s:
		s.ep.put(struct.pack("Q", 100), s.key, 800).wait(WAIT)
		s.ep.fence()
		assert s.ep.add(s.key, 800, 41).wait(WAIT) == 100
		assert s.ep.compare_and_swap(s.key, 800, 141, 7).wait(WAIT) == 141
		assert s.ep.add(s.key, 800, 1, width=4).wait(WAIT) == 7
		assert s.ep.add(s.key, 804, 1, width=4).wait(WAIT) == 0


def messages(address):
	with Side(address) as s:
		for n in (1, 100, 0, 5000, 200003):
			data = pattern(5, n)
			m = s.ask(data)
			assert (m.data, m.tag, m.length, m.endpoint) == (data[::-1], 2, n, s.ep)


async def cancel_async(s):
	task = asyncio.ensure_future(receive(s))
	await asyncio.sleep(0)
	await asyncio.sleep(0)
	task.cancel()
	try:
		await task
		assert False, "cancelled"
	except asyncio.CancelledError:
		pass
	try:
		await asyncio.wait_for(receive(s), 0.01)
		assert False, "timed out"
	except asyncio.TimeoutError:
		pass
	await s.ep.flush()


async def receive(s):
	return await s.x.recv(100, 2, source=s.ep)


def cancel(address):
	with Side(address) as s:
		data = bytearray(100)
		operation = s.x.recv_into(data, 99)
		raises(BufferError, data.append, 1)
		assert operation.cancel()
		raises(xport.Canceled, operation.wait, WAIT)
		data.append(1)
		assert not operation.cancel()
		# None of these takes the answer below.
		raises(TimeoutError, s.x.recv(100, 2, source=s.ep).wait, 0.001)
		asyncio.run(cancel_async(s))
		forgotten = s.x.recv(100, 2, source=s.ep)
		del forgotten
		gc.collect()
		s.x.turn()
		assert s.ask(b"ab").data == b"ba"
		s.ep.flush().wait(WAIT)


def deadline(address):
	"""Operations that the peer never matches."""
	with Side(address) as s:
		data = bytearray(3 << 20)  # longer than eager_max
		raises(xport.Timeout, s.x.recv_into(data, 99, deadline=0.05).wait, WAIT)
		data.append(1)
		begun = time.monotonic()
		raises(xport.Timeout, s.ep.send(data, 99, deadline=0.05).wait, WAIT)
		assert time.monotonic() - begun >= 0.05
		data.append(1)
		s.ep.put(b"x", s.key, 0, deadline=WAIT).wait(WAIT)
		assert s.ep.get(1, s.key, 0, deadline=WAIT).wait(WAIT) == b"x"
		raises(ValueError, s.ep.flush, 0)
		send = s.ep.send(data, 99, cancelable=True)
		assert send.cancel()
		raises(xport.Canceled, send.wait, WAIT)
		s.ep.send(data, 99, cancelable=True).abandon()
		end = time.monotonic() + WAIT
		while s.x.in_flight:
			assert time.monotonic() < end, "a send without a caller is not cancelled"
			s.x.turn()
		assert s.ep.is_open
		asyncio.run(deadline_async(s))
	queued_deadline(address)


def queued_deadline(address):
	"""Operations that wait for space, which never comes."""
	with xport.open(queue_depth=4) as x:
		ep = x.connect(address, timeout=WAIT)
		held = [ep.send(bytearray(3 << 20), 99) for _ in range(8)]
		data = bytearray(100)
		begun = time.monotonic()
		raises(xport.Timeout, ep.send(data, 99, deadline=0.05).wait, WAIT)
		assert time.monotonic() - begun >= 0.05
		data.append(1)

		async def awaits():
			await asyncio.sleep(0.02)
			try:
				await asyncio.wait_for(ep.send(data, 99, deadline=0.05), WAIT)
				assert False, "sent"
			except xport.Timeout:
				data.append(1)

		asyncio.run(awaits())
		send = ep.send(data, 99)
		assert send.cancel()
		raises(xport.Canceled, send.wait, WAIT)
		data.append(1)
		region = x.alloc(64)
		far = ep.send(region, 99, deadline=float("inf"))
		raises(ValueError, ep.send, region, 99, deadline=float("nan"))
		assert far.cancel()
		region.close()  # nothing uses it
		del held


async def deadline_async(s):
	try:
		await s.x.recv(8, 99, deadline=0.05)
		assert False, "timed out"
	except xport.Timeout:
		pass
	await s.ep.flush(deadline=WAIT)


def wrong_key(address):
	with Side(address) as s:
		e = raises(xport.BadKey, s.ep.unpack, bytes(64))
		assert e.text and e.status == xport.ERR_BAD_KEY and e.name == "XPORT_ERR_BAD_KEY"
		e = raises(IndexError, s.ep.put, bytes(8), s.key, REGION - 7)
		assert e.status == xport.ERR_BOUNDS and e.text


def again(address):
	with Side(address, queue_depth=4) as s:
		posted = []

		def post():
			posted.append(s.ep.put(b"x", s.key, 8, wait_for_space=False))

		e = raises(BlockingIOError, lambda: [post() for _ in range(100)])
		assert e.status == xport.ERR_AGAIN and len(posted) == 4
		posted += [s.ep.put(struct.pack("q", i), s.key, 8) for i in range(200)]
		for operation in posted:
			operation.wait(WAIT)
		assert s.ep.get(8, s.key, 8).wait(WAIT) == struct.pack("q", 199)
		asyncio.run(again_async(s))


async def again_async(s):
	await asyncio.gather(*(s.ep.put(bytes(8), s.key, 8) for _ in range(200)))


def fork(address):
	with Side(address) as s:
		child = os.fork()
		if child == 0:
			try:
				e = raises(xport.Forked, s.ep.put, b"1", s.key)
				assert "spawn" in e.hint
				os._exit(0)
			finally:
				os._exit(1)
		assert os.waitpid(child, 0)[1] == 0


def lost(address, number):
	s = Side(address)
	pid = s.ep.peer_pid
	waiting = s.x.recv(100, 2, source=s.ep)
	data = bytearray(100)
	os.kill(pid, number)
	count = int(os.environ.get("ABANDONED", "100"))
	for _ in range(count):
		s.ep.get_into(data, s.key).abandon()
	assert s.x.orphans == count
	raises(BufferError, data.append, 1)  # memory in flight is neither moved nor freed
	e = raises(ConnectionError, waiting.wait, WAIT)
	assert isinstance(e, xport.PeerLost), e
	s.x._run(lambda: s.x.orphans == 0, WAIT)
	data.append(1)
	event = s.x.next_event(WAIT)
	assert (event.type, event.endpoint) == (xport.EVENT_LOST, s.ep)
	assert s.x.in_flight == 0
	raises(xport.PeerLost, s.ep.put, b"1", s.key)
	s.ep.close()
	s.x.close()
	os.kill(pid, signal.SIGKILL)


def kill(address):
	try:
		lost(address, signal.SIGKILL)
	except ProcessLookupError:
		pass


def stop(address):
	lost(address, signal.SIGSTOP)


# ---- many operations beside a stopped peer ----

PIECE = 4099
BYTES = pattern(6, 1 << 14)


def piece(i):
	"""The bytes of message or put i."""
	return BYTES[i % 8192:i % 8192 + PIECE]


def stops(pid):
	"""Waits until each thread of a process has stopped: kill only asks for it."""
	end = time.monotonic() + WAIT
	while True:
		stats = []
		for name in glob.glob(f"/proc/{pid}/task/*/stat"):
			with open(name) as f:
				stats.append(f.read().rpartition(")")[2].split()[0])
		if stats and set(stats) == {"T"}:
			return
		assert time.monotonic() < end, "the process does not stop"


def give_up(operation, way):
	"""The caller goes away; way 0: the object is dropped."""
	if way == 1:
		operation.abandon()
	elif way == 2:
		operation.cancel()
	elif way == 3:
		try:
			operation.wait(0)
		except (TimeoutError, xport.Canceled):
			pass


def batch(s, each, cancelable=False):
	"""Gives up operations of each kind beside a stopped peer.

	Returns the buffers of gets, and bytearrays that have the memory that is free again.
	"""
	before, fetched = s.x.orphans, []
	for i in range(each):
		out, get = bytearray(piece(i)), bytearray(PIECE)
		give_up(s.ep.put(out, s.key, i % 250 * PIECE), i % 4)
		give_up(s.ep.send(out, 1, cancelable=cancelable), i // 2 % 4)
		give_up(s.ep.get_into(get, s.key), i // 4 % 4)
		give_up(s.x.recv(PIECE, 2, source=s.ep), i // 8 % 4)
		if i % 2:
			fetched.append(get)
	s.x.turn()
	del out, get
	# Memory of a get is neither moved nor freed until its completion.
	assert s.x.orphans - before >= each, s.x.orphans - before
	for get in fetched:
		raises(BufferError, get.append, 1)
	return fetched, [bytearray(b"\xdd" * PIECE) for _ in range(2 * each)]


def intact(others):
	return all(other == b"\xdd" * PIECE for other in others)


def cancels(address):
	# Else a get from memory that is mapped here completes beside a stopped peer.
	if os.environ.get("XPORT_BACKEND", "").endswith("shm"):
		os.environ["XPORT_EMULATE"] = "get"
	s = Side(address)
	pid, longest = s.ep.peer_pid, float(os.environ["XPORT_PEER_TIMEOUT"].rstrip("s")) * 1.5
	for i in range(4):
		os.kill(pid, signal.SIGSTOP)
		stops(pid)
		fetched, others = batch(s, 125)
		os.kill(pid, signal.SIGCONT)
		# The operations go on with the bytes that they had, and the late ones change nothing else.
		for j in range(125):
			assert s.x.recv(PIECE, 2, source=s.ep).wait(WAIT).data == piece(j)[::-1], j
		s.ep.flush().wait(WAIT)
		assert s.x._run(lambda: s.x.in_flight == 0, WAIT), s.x.orphans
		got = s.ep.get(125 * PIECE, s.key).wait(WAIT)
		assert all(got[j * PIECE:(j + 1) * PIECE] == piece(j) for j in range(125)) and intact(others)
	os.kill(pid, signal.SIGSTOP)
	stops(pid)
	fetched, others = batch(s, 2000, cancelable=True)
	begun = last = time.monotonic()
	gap = 0
	while s.x.in_flight:
		s.x._run(lambda: s.x.in_flight == 0, 0.05)
		gap, last = max(gap, time.monotonic() - last), time.monotonic()
		assert last - begun < WAIT, (s.x.in_flight, s.x.orphans)
	# Longer, if this process itself did not run.
	assert last - begun <= longest * (1 if gap < 0.5 else 2), (last - begun, gap)
	assert s.x.orphans == 0
	os.kill(pid, signal.SIGCONT)
	s.x._run(lambda: False, 0.2)
	for get in fetched:
		get.append(1)
	assert intact(others)
	assert s.x.next_event(0).type == xport.EVENT_LOST
	s.x.close()
	os.kill(pid, signal.SIGKILL)


# ---- numpy ----


def place(array):
	return array.__array_interface__["data"][0]


def arrays(address):
	"""A numpy array over a region has the memory of the region, and keeps it."""
	import numpy
	with Side(address) as s:
		region = s.x.alloc(8000)
		base = xport._common.address_of(region._base)
		array = region.array("i8", (10, 100))
		assert place(array) == base and array.flags.writeable, "not the memory of the region"
		assert place(region.array("u4", 4, offset=64)) == base + 64
		array[:] = numpy.arange(1000).reshape(10, 100)
		assert region.memory[8:16] == struct.pack("q", 1)
		region.memory[16:24] = struct.pack("q", 77)
		assert array[0, 2] == 77
		# A peer gets what is in the array, and a get changes the array.
		s.ep.put(region, s.key, 0).wait(WAIT)
		got = numpy.zeros(1000, "i8")
		s.ep.get_into(got, s.key, 0).wait(WAIT)
		assert (got == array.reshape(1000)).all()
		s.ep.put(numpy.arange(50), s.key, 0).wait(WAIT)
		s.ep.fence()
		s.ep.get_into(region.part(800, 400), s.key, 0).wait(WAIT)
		assert (array[1, :50] == numpy.arange(50)).all() and array[1, 50] == 150
		s.ep.get_into(array[9], s.key, 0).wait(WAIT)
		assert struct.unpack("2q", region.memory[7200:7216]) == (0, 1)
		# An array of a part keeps the region, too.
		part = array[5, 10:20]
		del array
		gc.collect()
		raises(BufferError, region.close)
		assert part[3] == 513
		del part
		region.close()
		raises(xport.Closed, region.array, "i8")
		# An array that is registered is not copied.
		own = numpy.zeros(100, "i8")
		region = s.x.register(own)
		same = region.array("i8")
		assert place(same) == place(own), "not the memory of the region"
		s.ep.get_into(region.part(0, 400), s.key, 0).wait(WAIT)
		assert (own[:50] == numpy.arange(50)).all() and (own == same).all()
		region.close()
		last = s.x.alloc(8000).array("i8")
	# The region has no other owner, and the instance is closed.
	gc.collect()
	last[:] = numpy.arange(1000)
	assert (last == numpy.arange(1000)).all()


def wakeups(address):
	"""A wake-up that is lost shows as a message without an answer."""
	asyncio.run(wakeups_async(address, int(os.environ.get("WAKEUPS", "10000"))))


async def wakeups_async(address, n):
	chance = random.Random(1)
	async with xport.open() as x:
		ep = await x.connect_async(address)

		async def exchange(i):
			answer = x.recv(8, 2, source=ep)
			await ep.send(struct.pack("<Q", i), 1)
			assert (await answer).data == struct.pack(">Q", i)

		for i in range(n):
			what = chance.randrange(16)
			if what == 0:
				await asyncio.sleep(chance.random() / 2000)
			elif what == 1:
				time.sleep(chance.random() / 8000)
			elif what < 5:
				await asyncio.sleep(0)
			try:
				await asyncio.wait_for(exchange(i), WAIT)
			except asyncio.TimeoutError:
				raise AssertionError(f"no answer to message {i}")
		ep.close(WAIT)


# ---- the target ----


async def serve():
	async with xport.open() as x:
		region = x.alloc(REGION, ALL)
		listener = x.listen(private_data=region.key)
		print(listener.address, flush=True)
		while True:
			ep = await listener.accept_async()
			answering = asyncio.ensure_future(answer(x, ep))
			while True:
				e = await x.event()
				if e.type == xport.EVENT_NOTIFY:
					values.put_nowait(e.value)
				elif e.endpoint is ep and e.type in (xport.EVENT_CLOSED, xport.EVENT_LOST):
					break
			await answering
			ep.close(0)


values = asyncio.Queue()


async def answer(x, ep):
	try:
		while True:
			m = await x.recv(MESSAGE, 1, source=ep)
			reply = struct.pack("Q", await values.get()) if m.data == b"N" else m.data[::-1]
			await ep.send(reply, 2)
	except ConnectionError:
		pass


def main(role, *names):
	warnings.simplefilter("error")
	if role == "serve":
		asyncio.run(serve())
	for name in names:
		globals()[name](role)
		print("ok", name, flush=True)


if __name__ == "__main__":
	main(*sys.argv[1:])
