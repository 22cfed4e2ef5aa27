#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""remote_put.py - one process writes into the memory of another.

	remote_put.py             the target: prints its address, then waits for the put
	remote_put.py HOST:PORT   the initiator: puts a text into the target's memory, and gets it back
"""
import sys

import xport


def wait_for(x, kind):
	"""The next event of this kind.  Another event, such as that of the new connection, is skipped."""
	while True:
		event = x.next_event(timeout=60)
		if not event or event.type == xport.EVENT_LOST:
			raise SystemExit("the initiator did not put or was lost")
		if event.type == kind:
			return event


def target():
	with xport.open() as x:  # the variable XPORT_BACKEND selects the transport
		memory = x.alloc(4096, xport.REMOTE_READ | xport.REMOTE_WRITE)
		listener = x.listen(private_data=memory.key)  # each peer gets the key
		print(listener.address, flush=True)
		with listener.accept(timeout=60):
			event = wait_for(x, xport.EVENT_NOTIFY)
			print(f"{event.value} bytes: {bytes(memory.memory[:event.value]).decode()}")
			wait_for(x, xport.EVENT_CLOSED)  # the initiator closes the endpoint


def initiator(address):
	text = b"written by Python"
	with xport.open() as x, x.connect(address, timeout=60) as peer:
		key = peer.unpack(peer.private_data)
		peer.put(text, key, notify=len(text)).wait()
		if bytes(peer.get(len(text), key).wait()) != text:
			raise SystemExit("the target's memory has another text")
		print(f"the target has: {text.decode()}")


if len(sys.argv) > 1:
	initiator(sys.argv[1])
else:
	target()
