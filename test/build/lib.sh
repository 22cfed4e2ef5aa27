# SPDX-License-Identifier: BSD-3-Clause
# What the tests in this folder share.  They run with top_srcdir, top_builddir, CC, CXX and sanitizers in the
# environment, and each tests its check as well: a check that cannot fail is none.
set -u
tmp=$(mktemp -d) || exit 99
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
# Else dash, ended by a signal, leaves out what is to be done at the end.
trap 'exit 99' HUP INT TERM
failed=0

# pass WHAT COMMAND... - the command must succeed.
pass() {
	what=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then echo "ok: $what"; else
		echo "FAILED: $what"
		cat "$tmp/out"
		failed=1
	fi
}

# fail WHAT PATTERN COMMAND... - the command must exit with 1 and print a line that has PATTERN.
fail() {
	what=$1 pattern=$2
	shift 2
	"$@" >"$tmp/out" 2>&1
	rc=$?
	if [ $rc = 1 ] && grep -q -- "$pattern" "$tmp/out"; then echo "ok: $what"; else
		echo "FAILED: $what: exit status $rc, and"
		cat "$tmp/out"
		failed=1
	fi
}

# reap SECONDS PID - waits for a process in the background, whose exit status it has; one that takes longer is killed.
reap() {
	for tick in $(seq $(($1 * 20))); do
		grep -q '^State:.[^Z]' "/proc/$2/status" 2>/dev/null || { wait "$2"; return; }
		sleep 0.05
	done
	echo "process $2 does not end within $1 s"
	kill -KILL "$2"
	wait "$2"
}

# Whether another user than root may run what was built: not below a directory that is root's alone, as /root is.
others_may() {
	command -v setpriv >/dev/null &&
		setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$top_builddir/src/backends" 2>/dev/null
}

# builds PROGRAM.C - compiles it into $tmp/PROGRAM, with the library as tested, which finds the modules of the build tree.
builds() {
	o=$tmp/$(basename "$1" .c)
	flags=$CFLAGS
	[ "$sanitizers" = no ] || flags="$flags -fsanitize=$sanitizers"
	$CC $flags -std=c11 -Wall -Wextra -Werror -pedantic -I"$top_srcdir/src/api" -I"$top_srcdir/src/services" -c -o "$o.o" "$1" || return 1
	(cd "$top_builddir" && ./libtool --quiet --tag=CC --mode=link $CC $flags -o "$o" "$o.o" libxpi_services.la test/libxport_test.la) || return 1
}

# parts HEADER - it, and the headers beside it that it includes.
parts() {
	echo "$1"
	sed -n "s|^#include \"\(xport_[a-z]*\.h\)\"|${1%/*}/\1|p" "$1"
}

# A copy of the tree's sources that may be written.
copy_tree() {
	mkdir "$tmp/tree"
	(cd "$top_srcdir" && tar cf - --exclude=.libs --exclude='*.o' Makefile.am src test examples bindings contrib/examples doc .clang-format) |
		(cd "$tmp/tree" && tar xf -)
	chmod -R u+w "$tmp/tree"
}
