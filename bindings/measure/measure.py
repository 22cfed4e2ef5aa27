# SPDX-License-Identifier: BSD-3-Clause
"""measure.py ADDRESS ROUNDS [plain] - the program of bindings/measure/run in Python, with asyncio or plain."""
import asyncio
import resource
import sys
import time

import xport

DEPTH, MIB = 64, 1 << 20


class Plain:
	"""The steps, each up to its completion."""

	def __init__(self, x, ep):
		self.x, self.ep, self.key, self.small = x, ep, ep.unpack(ep.private_data), bytes(8)
		self.memory = x.alloc(MIB)

	def put(self):
		self.ep.put(self.small, self.key).wait()

	def echo(self):
		answer = self.x.recv(8, 2, source=self.ep)
		sent = self.ep.send(self.small, 1)
		answer.wait()
		sent.wait()

	def deep(self):
		for operation in [self.ep.put(self.small, self.key) for _ in range(DEPTH)]:
			operation.wait()

	def big(self):
		self.ep.get_into(self.memory, self.key).wait()

	async def seconds(self, step, rounds):
		for _ in range(rounds // 10 + 1):
			step()
		begin = time.perf_counter()
		for _ in range(rounds):
			step()
		return (time.perf_counter() - begin) / rounds


class Async(Plain):
	async def put(self):
		await self.ep.put(self.small, self.key)

	async def echo(self):
		answer = self.x.recv(8, 2, source=self.ep)
		sent = self.ep.send(self.small, 1)
		await answer
		await sent

	async def deep(self):
		for operation in [self.ep.put(self.small, self.key) for _ in range(DEPTH)]:
			await operation

	async def big(self):
		await self.ep.get_into(self.memory, self.key)

	async def seconds(self, step, rounds):
		for _ in range(rounds // 10 + 1):
			await step()
		begin = time.perf_counter()
		for _ in range(rounds):
			await step()
		return (time.perf_counter() - begin) / rounds


async def main(address, rounds, kind):
	async with xport.open() as x:
		ep = x.connect(address)
		side = kind(x, ep)
		print(f"{await side.seconds(side.put, rounds) * 1e6:.2f}", end=" ")
		print(f"{await side.seconds(side.echo, rounds) * 1e6:.2f}", end=" ")
		print(f"{DEPTH / await side.seconds(side.deep, rounds // DEPTH + 1) / 1e3:.0f}", end=" ")
		print(f"{1 / await side.seconds(side.big, rounds // 50 + 1) / 1024:.2f}", end=" ")
		print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}")
		ep.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), Plain if "plain" in sys.argv else Async))
