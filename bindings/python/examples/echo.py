#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""echo.py - a server and a client of messages, with asyncio.

	echo.py             the server: prints its address, and ends after its first client
	echo.py HOST:PORT   the client: sends three lines, and prints the answers
"""
import asyncio
import sys

import xport

REQUEST, ANSWER = 1, 2


async def server():
	async with xport.open() as x:
		listener = x.listen()
		print(listener.address, flush=True)
		peer = await listener.accept_async()
		try:
			while True:
				request = await x.recv(100, REQUEST, source=peer)
				await peer.send(request.data, ANSWER)
		except xport.PeerClosed:
			pass


async def client(address):
	async with xport.open() as x:
		with await x.connect_async(address) as peer:
			for line in (b"one", b"two", b"three"):
				answer = x.recv(100, ANSWER, source=peer)
				await peer.send(line, REQUEST)
				print((await answer).data.decode())


asyncio.run(client(sys.argv[1]) if len(sys.argv) > 1 else server())
