# SPDX-License-Identifier: BSD-3-Clause
# What the tests in this folder share.  They run with top_srcdir, top_builddir, CC, CXX and sanitizers in the
# environment, and each tests its check as well: a check that cannot fail is none.
set -u
tmp=$(mktemp -d) || exit 99
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
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

# A copy of the tree's sources that may be written.
copy_tree() {
	mkdir "$tmp/tree"
	(cd "$top_srcdir" && tar cf - --exclude=.libs --exclude='*.o' Makefile.am src test examples contrib/examples doc .clang-format) |
		(cd "$tmp/tree" && tar xf -)
	chmod -R u+w "$tmp/tree"
}
