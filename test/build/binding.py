#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A binding of libxport as another language would have it: cffi without a compiler.

All that it knows of the interface is what the preprocessor makes of xport.h.

	binding.py reach LIBRARY HEADER WHOLE   whether a binding to HEADER reaches all that WHOLE, the true header, has
	binding.py target LIBRARY HEADER        prints where it listens; then whatever the initiator does, checked
	binding.py initiator LIBRARY HEADER ADDRESS

The last two write the functions that they called to standard error, a line each.
"""
import os
import re
import subprocess
import sys
import tempfile
import traceback

import cffi

CC = os.environ.get("CC", "cc").split()


def run(*command, **more):
	return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def preprocessed(header):
	"""The declarations: no macro and no attribute is left, and the two headers of libc are what cffi knows itself."""
	with tempfile.TemporaryDirectory() as empty:
		for name in ("stddef.h", "stdint.h"):
			open(os.path.join(empty, name), "w").close()
		return run(*CC, "-x", "c", "-E", "-P", "-nostdinc", "-I", empty, "-U__GNUC__", header)


def bind(library, header):
	ffi = cffi.FFI()
	ffi.cdef(preprocessed(header))
	return ffi, ffi.dlopen(library)


# ---- reach ----


def names(header):
	"""What the header has, by another parser than the binding's: [(kind, name)], members as struct::member."""
	scope = {"member", "enumerator"}
	out = run("ctags", "--languages=C", "--langmap=C:.h", "-I", "XPORT_CHECK", "--kinds-C=+p", "-o", "-",
	          "--_xformat=%K %N %s", "-x", header)
	for line in out.splitlines():
		kind, name, *where = line.split(" ")
		parent = where[-1].split(":")[-1] if where and kind in scope else ""
		yield kind, f"{parent}::{name}" if kind == "member" else name


def values(header, wanted):
	"""What a compiler says: sizes of structs, places and sizes of members, values of enumerators."""
	lines = []
	for kind, name in wanted:
		if kind == "struct":
			lines.append(f'printf("{kind} {name} %zu\\n", sizeof(struct {name}));')
		elif kind == "member":
			struct, member = name.split("::")
			lines.append(f'printf("{kind} {name} %zu+%zu\\n", offsetof(struct {struct}, {member}), '
			             f"sizeof(((struct {struct} *)0)->{member}));")
		elif kind == "enumerator":
			lines.append(f'printf("{kind} {name} %d\\n", (int){name});')
	with tempfile.TemporaryDirectory() as d:
		source, program = os.path.join(d, "values.c"), os.path.join(d, "values")
		with open(source, "w") as f:
			f.write(f'#include "{os.path.abspath(header)}"\n#include <stdio.h>\nint main(void) {{\n')
			f.write("\n".join(lines) + "\nreturn 0;\n}\n")
		run(*CC, "-o", program, source)
		return dict((tuple(line.split(" ")[:2]), line.split(" ")[2]) for line in run(program).splitlines())


def bound(ffi, lib, kind, name):
	"""The binding's answer to the same question; an exception where it has none."""
	if kind == "struct":
		return str(ffi.sizeof(f"struct {name}"))
	if kind == "member":
		struct, member = name.split("::")
		field = dict(ffi.typeof(f"struct {struct}").fields)[member]
		return f"{field.offset}+{ffi.sizeof(field.type)}"
	if kind == "enumerator":
		return str(getattr(lib, name))
	if kind == "prototype":
		assert ffi.typeof(getattr(lib, name)).kind == "function"
	elif kind in ("typedef", "enum"):
		ffi.typeof(name if kind == "typedef" else f"enum {name}")
	return ""


# Macros that carry nothing: the guard, and an attribute.
MACROS = {"XPORT_H", "XPORT_CHECK"}


def reach(library, header, whole):
	ffi, lib = bind(library, header)
	# Opaque structs have a typedef alone, and a name that begins with __ is the parser's own, for an enum without one.
	wanted = [(kind, name) for kind, name in names(whole) if not name.startswith("__")]
	compiled = values(whole, wanted)
	bad = []
	for kind, name in wanted:
		if kind == "macro":
			if name not in MACROS:
				bad.append(f"{name} is a macro: a binding cannot reach it; make it an enumerator or a function")
			continue
		try:
			have = bound(ffi, lib, kind, name)
		except Exception as e:  # cffi has one for each kind
			bad.append(f"{kind} {name}: a binding does not reach it: {e!r}")
			continue
		want = compiled.get((kind, name), "")
		if have != want:
			bad.append(f"{kind} {name}: {want} for a compiler, {have} for a binding")
	exported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()
	            if line.split()[-2] == "T"}
	declared = {name for kind, name in wanted if kind == "prototype"}
	bad += [f"prototype {name}: declared, not exported" for name in sorted(declared - exported)]
	bad += [f"{name}: exported, not declared" for name in sorted(exported - declared)]
	# The library's own opinion of its statuses.
	none = ffi.string(lib.xport_status_name(-1000))
	for status in range(0, -100, -1):
		name = ffi.string(lib.xport_status_name(status))
		if name != none and getattr(lib, name.decode(), None) != status:
			name = name.decode()
			bad.append(f"status {status} is {name} for the library alone")
	count = {kind: sum(1 for k, _ in wanted if k == kind) for kind in sorted({k for k, _ in wanted})}
	print("\n".join(bad + [", ".join(f"{kind} {n}" for kind, n in count.items())]))
	few = count.get("prototype", 0) < 30 or count.get("enumerator", 0) < 50 or count.get("member", 0) < 80
	if few:
		print("so few? the header was not read")
	return 1 if bad or few else 0


# ---- use ----


class Recorder:
	"""The library, and which of its functions were called."""

	def __init__(self, lib):
		self.lib, self.called = lib, set()

	def __getattr__(self, name):
		if name.startswith("xport_"):
			self.called.add(name)
		return getattr(self.lib, name)


class Side:
	"""One of two processes; each lets the other reach `memory`, SIZE bytes."""
	SIZE = 1 << 20

	def __init__(self, library, header):
		self.ffi, lib = bind(library, header)
		self.lib = Recorder(lib)
		self.lines, self.got = [], []
		self.log = self.ffi.callback("void(void *, int, const char *, const char *)",
		                             lambda arg, level, code, line: self.lines.append(self.ffi.string(line)))
		self.x = self.ffi.NULL
		attr = self.struct("xport_attr", log_fn=self.log, log_level=self.lib.XPORT_LOG_DEBUG)
		self.x = self.make("xport", lambda out: self.lib.xport_open(attr, out))
		self.mr = self.make("xport_mr", lambda out: self.lib.xport_mr_alloc(
			self.x, self.SIZE, self.lib.XPORT_REMOTE_READ | self.lib.XPORT_REMOTE_WRITE | self.lib.XPORT_REMOTE_ATOMIC, out))
		self.memory = self.ffi.buffer(self.ask("xport_mr", self.mr).base, self.SIZE)
		length = self.ffi.new("size_t *", 0)
		assert self.lib.xport_rkey_pack(self.mr, self.ffi.NULL, length) == self.lib.XPORT_ERR_BOUNDS
		self.key = self.ffi.new("char[]", length[0])
		self.must(self.lib.xport_rkey_pack_range(self.mr, 0, self.SIZE, 0, self.key, length))
		self.must(self.lib.xport_rkey_revoke(self.x, self.key, length[0]))
		self.must(self.lib.xport_rkey_pack(self.mr, self.key, length))
		self.conn = self.struct("xport_conn_attr", private_data=self.key, private_len=length[0])

	def struct(self, name, **fields):
		return self.ffi.new(f"struct {name} *", dict(size=self.ffi.sizeof(f"struct {name}"), **fields))

	def must(self, status):
		if status < 0:
			e = self.struct("xport_error")
			self.lib.xport_last_error(self.x, e)
			text = self.ffi.string
			raise OSError(f"{self.name(status)}: {text(e.operation)}: {text(e.text)} {text(e.hint)}")
		return status

	def name(self, status):
		return self.ffi.string(self.lib.xport_status_name(status)).decode()

	def make(self, kind, call):
		out = self.ffi.new(f"{kind} **")
		self.must(call(out))
		return out[0]

	def ask(self, kind, handle):
		"""xport_KIND_query, or xport_query."""
		name = "xport_info" if kind == "xport" else f"{kind}_info"
		info = self.struct(name)
		self.must(getattr(self.lib, f"{kind}_query")(handle, info))
		return info

	def meet(self, ep):
		self.ep = ep
		peer = self.ask("xport_ep", ep)
		self.rkey = self.make("xport_rkey",
		                      lambda out: self.lib.xport_rkey_unpack(ep, peer.private_data, peer.private_len, out))
		assert self.ask("xport_rkey", self.rkey).length == self.SIZE

	def reap(self, kind, wait=True):
		"""Until a completion of this type comes; the others are kept."""
		c = self.ffi.new("struct xport_completion[4]")
		while True:
			for i, (t, status, tag, length, context) in enumerate(self.got):
				if t == kind:
					del self.got[i]
					assert status >= 0 or kind == self.lib.XPORT_EVENT_CLOSED, self.name(status)
					return tag, length, context
			ended = [self.name(got[1]) for got in self.got if got[0] in (self.lib.XPORT_EVENT_CLOSED, self.lib.XPORT_EVENT_LOST)]
			assert not ended, ended
			n = self.must(self.lib.xport_wait(self.x, c, 4, 60000) if wait else self.lib.xport_poll(self.x, c, 4))
			if wait and n == 0:
				raise TimeoutError("nothing came in a minute")
			self.got += [(c[i].type, c[i].status, c[i].tag, c[i].length, c[i].context) for i in range(n)]

	def swap(self, mine):
		"""Sends bytes with tag 7 and returns those that the peer sends."""
		lib, buf = self.lib, self.ffi.new("char[]", 1 << 17)
		self.must(lib.xport_recv(self.x, buf, len(buf), 7, (1 << 64) - 1, self.struct("xport_opt", source=self.ep)))
		self.must(lib.xport_send(self.ep, mine, len(mine), 7, self.ffi.NULL))
		self.reap(lib.XPORT_OP_SEND)
		tag, length, _ = self.reap(lib.XPORT_OP_RECV)
		assert tag == 7
		return bytes(self.ffi.buffer(buf, length))

	def swap_lists(self, mine):
		"""The same with lists of two pieces, for messages of the same length."""
		lib, ffi = self.lib, self.ffi
		buf, sent = ffi.new("char[]", len(mine)), ffi.new("char[]", mine)
		into = ffi.new("struct xport_iov[]", [(buf, 3), (buf + 3, len(mine) - 3)])
		pieces = ffi.new("struct xport_iov[]", [(sent, 5), (sent + 5, len(mine) - 5)])
		source = self.struct("xport_opt", source=self.ep)
		self.must(lib.xport_recvv(self.x, into, 2, 8, (1 << 64) - 1, source))
		self.must(lib.xport_sendv(self.ep, pieces, 2, 8, ffi.NULL))
		self.reap(lib.XPORT_OP_SEND)
		tag, length, _ = self.reap(lib.XPORT_OP_RECV)
		assert (tag, length) == (8, len(mine))
		return bytes(ffi.buffer(buf))

	def end(self):
		if self.role == "initiator":
			self.must(self.lib.xport_ep_set_context(self.ep, self.ffi.NULL))
			assert self.lib.xport_ep_peer(self.ep) == self.ask("xport_ep", self.ep).peer_incarnation
			self.must(self.lib.xport_ep_close(self.ep, 5000))
		else:  # the peer has closed it
			assert self.lib.xport_ep_close_start(self.ep, 0) == self.lib.XPORT_ERR_PEER_CLOSED
		self.lib.xport_rkey_destroy(self.rkey)
		if self.role == "initiator":
			self.must(self.lib.xport_ep_destroy_start(self.ep))
			self.reap(self.lib.XPORT_EVENT_DESTROYED)
		else:
			self.lib.xport_ep_destroy(self.ep)
		self.must(self.lib.xport_mr_dereg(self.mr))
		self.lib.xport_dump(self.x)
		self.lib.xport_close(self.x)
		assert any(b"opened" in line or b"connected" in line for line in self.lines), self.lines
		print("\n".join(sorted(self.lib.called)), file=sys.stderr)


def pattern(seed, n):
	return bytes((seed + i * 7 + i // 251) % 256 for i in range(n))


PUT, NOTIFY, GOT, MESSAGE = pattern(1, 300001), pattern(2, 4099), pattern(3, 70001), pattern(4, 100003)


def target(side):
	lib, ffi = side.lib, side.ffi
	listener = side.make("xport_listener", lambda out: lib.xport_listen(side.x, b"127.0.0.1:0", side.conn, out))
	name = ffi.new("char[64]")
	side.must(lib.xport_listener_name(listener, name, len(name)))
	side.must(lib.xport_listener_set_private_data(listener, side.conn.private_data, side.conn.private_len))
	side.memory[500000:500000 + len(GOT)] = GOT
	print(ffi.string(name).decode(), flush=True)
	side.meet(side.make("xport_ep", lambda out: lib.xport_accept(listener, 60000, out)))
	none = ffi.new("xport_ep **")
	assert lib.xport_accept_with(listener, side.conn, 0, none) == lib.XPORT_ERR_TIMEOUT and none[0] == ffi.NULL
	lib.xport_listener_close(listener)
	value, length, _ = side.reap(lib.XPORT_EVENT_NOTIFY)
	assert (value, length) == (0xfeedfacecafebeef, len(NOTIFY)), (value, length)
	assert side.memory[400000:400000 + len(NOTIFY)] == NOTIFY, "the bytes of the notified put"
	assert side.memory[17:17 + len(PUT)] == PUT, "the bytes of the put"
	assert side.swap(MESSAGE) == MESSAGE[::-1], "the bytes of the message"
	side.swap(b"")
	assert side.swap_lists(b"from target") == b"from source", "the bytes of the message from a list"
	counter = ffi.cast("uint64_t *", ffi.from_buffer(side.memory))[900000 // 8]
	assert counter == 42, counter
	side.reap(lib.XPORT_EVENT_CLOSED)


def initiator(side, address):
	lib, ffi = side.lib, side.ffi
	side.meet(side.make("xport_ep", lambda out: lib.xport_connect(side.x, address.encode(), side.conn, -1, out)))
	context = ffi.new_handle("mine")
	side.must(lib.xport_put(side.ep, PUT, len(PUT), side.rkey, 17, side.struct("xport_opt", context=context)))
	assert side.reap(lib.XPORT_OP_PUT, wait=False)[2] == context
	side.must(lib.xport_fence(side.ep))
	side.must(lib.xport_put_notify(side.ep, NOTIFY, len(NOTIFY), side.rkey, 400000,
	                               side.struct("xport_opt", value=0xfeedfacecafebeef)))
	side.reap(lib.XPORT_OP_PUT_NOTIFY)
	room = ffi.new("char[]", len(GOT))
	mr = side.make("xport_mr", lambda out: lib.xport_mr_reg(side.x, room, len(GOT), 0, out))
	side.must(lib.xport_get(side.ep, room, len(GOT), side.rkey, 500000, side.struct("xport_opt", mr=mr)))
	side.reap(lib.XPORT_OP_GET)
	assert bytes(ffi.buffer(room)) == GOT, "the bytes of the get"
	side.must(lib.xport_mr_dereg(mr))
	for op, operand, compare, old in ((lib.XPORT_ATOMIC_ADD, 41, 0, 0), (lib.XPORT_ATOMIC_CAS, 42, 41, 41)):
		result = ffi.new("uint64_t *", 99)
		args = side.struct("xport_atomic_args", op=op, width=8, operand=operand, compare=compare, result=result)
		side.must(lib.xport_atomic(side.ep, args, side.rkey, 900000, ffi.NULL))
		side.reap(lib.XPORT_OP_ATOMIC)
		assert result[0] == old, result[0]
	side.must(lib.xport_flush(side.ep, ffi.NULL))
	side.reap(lib.XPORT_OP_FLUSH)
	n = side.struct("xport_counters")
	side.must(lib.xport_stats(side.x, side.ep, n))
	counted = (n.puts, n.put_notifies, n.gets, n.atomics, n.flushes, n.bytes_out)
	assert counted == (1, 1, 1, 2, 1, len(PUT) + len(NOTIFY)), counted
	assert side.swap(MESSAGE[::-1]) == MESSAGE, "the bytes of the message"
	side.swap(b"")
	assert side.swap_lists(b"from source") == b"from target", "the bytes of the message from a list"
	lists(side)
	alone(side)


def lists(side):
	"""Two pieces to two places, and back in the other order."""
	lib, ffi = side.lib, side.ffi
	room = ffi.new("char[]", b"abcdefgh")
	pieces = ffi.new("struct xport_iov[]", [(room, 5), (room + 5, 3)])
	places = ffi.new("struct xport_riov[]", [(800000, 2), (800100, 6)])
	side.must(lib.xport_putv(side.ep, pieces, 2, side.rkey, places, 2, ffi.NULL))
	side.reap(lib.XPORT_OP_PUT)
	places = ffi.new("struct xport_riov[]", [(800100, 6), (800000, 2)])
	side.must(lib.xport_getv(side.ep, pieces, 2, side.rkey, places, 2, ffi.NULL))
	side.reap(lib.XPORT_OP_GET)
	assert bytes(ffi.buffer(room, 8)) == b"cdefghab", "the bytes of the pieces"


def alone(side):
	"""What needs no peer."""
	lib, ffi = side.lib, side.ffi
	receive = ffi.new("uint64_t *")
	side.must(lib.xport_recv(side.x, ffi.new("char[8]"), 8, 1, 0, side.struct("xport_opt", id=receive)))
	side.must(lib.xport_cancel(side.x, receive[0]))
	c = ffi.new("struct xport_completion *")
	assert lib.xport_wait(side.x, c, 1, 60000) == 1 and c.status == lib.XPORT_ERR_CANCELED
	assert lib.xport_put(side.ep, PUT, 8, side.rkey, side.SIZE - 7, ffi.NULL) == lib.XPORT_ERR_BOUNDS
	e = side.struct("xport_error")
	side.must(lib.xport_last_error(side.x, e))
	assert ffi.string(e.operation) == b"xport_put" and ffi.string(e.text), ffi.string(e.operation)
	assert side.name(e.status) == "XPORT_ERR_BOUNDS"
	assert ffi.string(side.ask("xport", side.x).backend).decode() == os.environ["XPORT_BACKEND"].split(":")[0]
	assert side.must(lib.xport_fd(side.x)) > 2
	assert lib.xport_arm(side.x) in (lib.XPORT_OK, lib.XPORT_ERR_AGAIN)
	assert re.fullmatch(rb"\d+\.\d+\.\d+", ffi.string(lib.xport_version()))
	assert ffi.string(lib.xport_strerror(lib.XPORT_OK))
	size = ffi.sizeof("struct xport_variable")
	n = side.must(lib.xport_variables(ffi.NULL, size, 0))
	variables = ffi.new("struct xport_variable[]", n)
	assert lib.xport_variables(variables, size, n) == n
	assert os.environ["XPORT_BACKEND"].encode() in [ffi.string(v.value) for v in variables if v.value != ffi.NULL]
	n = side.must(lib.xport_list(ffi.NULL, ffi.NULL, ffi.sizeof("struct xport_candidate"), 0))
	candidates = ffi.new("struct xport_candidate[]", n)
	assert lib.xport_list(ffi.NULL, candidates, ffi.sizeof("struct xport_candidate"), n) == n
	assert os.environ["XPORT_BACKEND"].encode() in [ffi.string(c.name) for c in candidates]


def main(role, library, header, *rest):
	if role == "reach":
		return reach(library, header, *rest)
	try:
		side = Side(library, header)
		side.role = role
		{"target": target, "initiator": initiator}[role](side, *rest)
		side.end()
	except Exception:
		traceback.print_exc()
		sys.stderr.flush()
		os._exit(1)  # with an instance open, whose threads would call back into an interpreter that ends
	return 0


if __name__ == "__main__":
	sys.exit(main(*sys.argv[1:]))
