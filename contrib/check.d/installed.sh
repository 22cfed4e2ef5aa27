# SPDX-License-Identifier: BSD-3-Clause
# Programs built against an installed library.

# uses_installed ROOT COMMAND... - a program built by pkg-config against what is installed in ROOT works.  The target prints where
# it listens; the initiator gets that as its argument.  COMMAND runs pkg-config --libs: `static` for a static library.
uses_installed() {
	root=$1
	shift
	PKG_CONFIG_PATH=$root/lib/pkgconfig
	export PKG_CONFIG_PATH
	cc -o "$out/uses-installed" "$top/examples/remote_put.c" $(pkg-config --cflags libxport) $("$@" pkg-config --libs libxport) ||
		return
	rm -f "$out/address"
	LD_LIBRARY_PATH=$root/lib timeout 60 "$out/uses-installed" >"$out/address" &
	target=$!
	for i in $(seq 100); do
		[ ! -s "$out/address" ] || break
		sleep 0.1
	done
	LD_LIBRARY_PATH=$root/lib timeout 60 "$out/uses-installed" "$(cat "$out/address")"
	rc=$?
	wait $target && [ $rc = 0 ]
}

static() { "$@" --static; }
