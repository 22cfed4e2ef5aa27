#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""generate.py OUT.c CC... HEADER - writes the extension module that reaches all of the header, by cffi.

The declarations are what the preprocessor makes of the header.  No list of functions is kept by hand.
"""
import os
import subprocess
import sys
import tempfile

import cffi


def declarations(cc, header):
	"""Without macros and attributes.  cffi knows what is in the two headers of libc."""
	with tempfile.TemporaryDirectory() as empty:
		for name in ("stddef.h", "stdint.h"):
			open(os.path.join(empty, name), "w", encoding="ascii").close()
		command = [*cc, "-x", "c", "-E", "-P", "-nostdinc", "-I", empty, "-U__GNUC__", header]
		return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(out, *rest):
	*cc, header = rest
	ffi = cffi.FFI()
	ffi.cdef(declarations(cc, header))
	ffi.set_source("xport._xport", "#include <xport_services.h>")
	ffi.emit_c_code(out)


if __name__ == "__main__":
	main(*sys.argv[1:])
