# SPDX-License-Identifier: BSD-3-Clause
# What the tests of bindings share; they include lib.sh before it.
limit=${LIMIT:-120} # seconds, for a busy machine; more for WAKEUPS=1000000
export UCX_NET_DEVICES=lo FI_TCP_IFACE=lo FI_SOCKETS_IFACE=lo FI_NET_IFACE=lo FI_UDP_IFACE=lo
table=$top_srcdir/test/bindings/scenarios.txt
names=$(sed -n 's/^\([a-z_]*\) .*/\1/p' "$table")

# missing WHAT - ends the test: skipped, and in CI failed.
missing() {
	[ "${CI-}" != true ] || { echo "FAILED: $1 (CI=true: nothing may be left out)"; exit 1; }
	echo "skipped: $1"
	exit 77
}

providers=
[ ! -f "$top_builddir/src/backends/ucx/libxport_ucx.la" ] || providers="ucx:tcp ucx:shm"
[ ! -f "$top_builddir/src/backends/ofi/libxport_ofi.la" ] || providers="$providers ofi:tcp ofi:sockets"

# links CXX OBJECT PROGRAM - with the libraries as tested, which find the modules of the build tree.
links() { (cd "$top_builddir" && ./libtool --quiet --tag=CXX --mode=link $1 $CFLAGS -o "$3" "$2" libxpi_services.la test/libxport_test.la); }

# address FILE - waits until a server has printed its address there, and prints it.
address() {
	for i in $(seq 600); do
		[ ! -s "$1" ] || { head -n 1 "$1"; return; }
		sleep 0.1
	done
	return 1
}

# ran SERVER CLIENT NAME... - the scenarios, beside a server of their own.
ran() {
	server=$1 client=$2
	shift 2
	rm -f "$tmp/address"
	timeout $limit $server >"$tmp/address" &
	server=$!
	timeout $limit $client "$(address "$tmp/address")" "$@" >"$tmp/said"
	rc=$?
	# The server itself, and not timeout, is what the scenarios stop and kill.
	kill $server 2>/dev/null
	wait $server 2>/dev/null
	cat "$tmp/said"
	return $rc
}

# scenarios SERVER CLIENT CALLEE CALLER - all of them, in the order of the table; kill and stop end their server.
scenarios() {
	normal=$(echo "$names" | grep -vx -e call -e kill -e stop)
	ran "$1" "$2" $normal >"$tmp/all" && ran "$3" "$4" call >>"$tmp/all" && ran "$1" "$2" kill >>"$tmp/all" && ran "$1" "$2" stop >>"$tmp/all"
	rc=$?
	cat "$tmp/all"
	[ $rc = 0 ] || return 1
	echo "$names" | sed 's/^/ok /' | cmp -s - "$tmp/all" || { echo "not each scenario of the table ran"; return 1; }
}

# beside WHAT SERVER CLIENT NAME - runs a scenario in the background.  It is for those that mostly wait: for the peer timeout, or
# for another process.  results waits for all of them, and reports each.
in_background=0
beside() {
	in_background=$((in_background + 1))
	mkdir "$tmp/$in_background"
	echo "$1" >"$tmp/$in_background/what"
	(
		shift
		tmp=$tmp/$in_background
		trap - EXIT
		ran "$@" >"$tmp/out" 2>&1
		echo $? >"$tmp/rc"
	) &
}
result() { cat "$tmp/$1/out"; [ "$(cat "$tmp/$1/rc")" = 0 ] && grep -q "^ok " "$tmp/$1/out"; }
results() {
	wait
	for i in $(seq $in_background); do pass "$(cat "$tmp/$i/what")" result "$i"; done
}

# pair SERVER CLIENT LINE - two programs, of which the server prints this line, or the client.
pair() {
	rm -f "$tmp/address"
	timeout $limit $1 >"$tmp/address" &
	server=$!
	timeout $limit $2 "$(address "$tmp/address")" >"$tmp/said"
	rc=$?
	[ $rc = 0 ] || kill $server
	wait $server || rc=1
	cat "$tmp/said" "$tmp/address"
	[ $rc = 0 ] && cat "$tmp/said" "$tmp/address" | grep -qxF "$3"
}

# listings PAGE LANGUAGE - each listing, as the file that its first line names after a comment sign, in $tmp/src.
listings() {
	rm -rf "$tmp/src"
	mkdir "$tmp/src"
	awk -v dir="$tmp/src/" -v mark="\`\`\`$2" '
		$0 == mark { begin = 1; next }
		/^```$/ { file = "" }
		begin { begin = 0; if ($2 !~ /^[a-z]+\.[a-z]+$/) { print "a listing without a name: " $0; exit 1 }; file = dir $2; n++ }
		file != "" { print > file }
		END { exit n == 0 }' "$1"
}

# pc_files - the library as tested, for pkg-config.
pc_files() {
	mkdir -p "$tmp/pc"
	cat >"$tmp/pc/libxport.pc" <<-END
		Name: libxport
		Description: as tested
		Version: 0.1.0
		Cflags: -I$top_srcdir/src/api
		Libs: -L$top_builddir/test/.libs -lxport_shared
	END
	cat >"$tmp/pc/libxport_services.pc" <<-END
		Name: libxport_services
		Description: as tested
		Version: 0.1.0
		Requires: libxport
		Cflags: -I$top_srcdir/src/services
		Libs: -L$top_builddir/.libs -lxpi_services $(sed -n 's/^NUMA_LIBS = //p' "$top_builddir/Makefile")
	END
	export PKG_CONFIG_PATH="$tmp/pc" LD_LIBRARY_PATH="$top_builddir/test/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# cargo_prepare - the crates for Rust in a folder that may be written to, with the library as tested, and with Debian's crates
# alone; `cargo` runs there.
cargo_prepare() {
	work=$tmp/work
	mkdir -p "$work/bindings/measure" "$work/test/bindings" "$tmp/cargo"
	cp -R "$top_srcdir/bindings/rust" "$work/bindings/" && chmod -R u+w "$work" || return 1
	cat >"$tmp/cargo/config.toml" <<-END
		[source.crates-io]
		replace-with = "debian"
		[source.debian]
		directory = "$(sed -n 's/^CARGO_REGISTRY = //p' "$top_builddir/Makefile")"
	END
	RUSTC=$(sed -n 's/^RUSTC = //p' "$top_builddir/Makefile")
	export RUSTC CARGO_HOME="$tmp/cargo" CARGO_TARGET_DIR="$tmp/target" CARGO_INCREMENTAL=0
	pc_files
}
cargo() { (cd "$work/bindings/rust" && RUSTFLAGS="-Dwarnings -Cdebuginfo=0" command "$cargo" "$@" --offline --quiet); }

# go_prepare - the package for Go in $work, a folder that may be written to, with the library as tested; `go` runs there.
go_prepare() {
	work=$tmp/work
	mkdir -p "$work" "$tmp/bin"
	cp -R "$top_srcdir/bindings/go/." "$work/" && chmod -R u+w "$work" || return 1
	pc_files
	# What was compiled stays in the build tree: the next run is faster.
	export GOCACHE="$top_builddir/test/build/go.cache" GOPATH="$tmp/path" GOENV=off GOPROXY=off \
		GOFLAGS=-mod=mod GOTOOLCHAIN=local GO111MODULE=on CGO_ENABLED=1
}
go() { (cd "$work" && command "$go" "$@"); }
