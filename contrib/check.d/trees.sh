# SPDX-License-Identifier: BSD-3-Clause
# Build trees: those that are built ahead of their stage, and `make check` in one.

# go_ahead STAGE... - builds the trees of these stages in the background while earlier stages run.  It takes only idle
# processor time: many tests wait for time to pass.  A stage with a tree of its own has a function builds_STAGE.
go_ahead() {
	later=
	for stage; do
		! grep -q "^builds_$stage() " "$here/stages/$stage" || later="$later $stage"
	done
	[ -n "$later" ] || return 0
	(
		self=$(exec sh -c 'echo $PPID')
		chrt --idle --pid 0 "$self" 2>/dev/null || renice 19 "$self" >/dev/null 2>&1 || :
		for stage in $later; do
			. "$here/stages/$stage"
			lane builds_$stage
		done
	) &
	ahead=$!
}

# hurry PID - what it started runs at idle priority no more.
hurry() {
	for p in $(ps -eo pid=,ppid=,cls= | awk -v from="$1" '
		{ parent[$1] = $2; cls[$1] = $3 }
		END { for (p in parent) { for (q = parent[p]; q > 1 && q != from; q = parent[q]); if (q == from && cls[p] == "IDL") print p } }'); do
		chrt --other --pid 0 "$p" 2>/dev/null || :
	done
}

# built - builds the stage's tree, or waits until it is built: then it takes more than idle processor time.
built() {
	case " ${later-} " in
	*" $stage "*)
		while [ ! -s "$out/builds_$stage.numbers" ] && kill -0 $ahead 2>/dev/null; do
			hurry $ahead
			waited sleep 1
		done
		join builds_$stage
		;;
	*)
		before=$failed
		builds_$stage
		[ $failed = $before ]
		;;
	esac
}

# installed_once - make install from build/main, by the first stage of a run that asks: a later one may not replace a module while
# another stage loads it.
installed_once() {
	flock "$top/build/main" sh -c '[ -e "$2" ] || { make -C "$1" install && : >"$2"; }' sh "$top/build/main" "$out/root-is-installed"
}

# builds_sanitized SANITIZERS [PROGRAM...] - the modules and the programs of tests: no tool, example or manual.
builds_sanitized() {
	dir=$top/build/$stage sanitizers=$1
	shift
	check "build" env TARGETS=modules "$top/contrib/build" "$dir" --enable-sanitizers=$sanitizers --enable-werror CFLAGS="-g -O1" CXXFLAGS="-g1 -O0" &&
		check "build the tests" make -C "$dir" -j2 "LIBTOOL=$top/contrib/quick-libtool $dir/libtool" \
			test/unit_tests test/conform_check test/services_check "$@"
}

# make_check DIR [TESTS=... check_PROGRAMS=... check_LTLIBRARIES=...] - runs make check there, with a limit for each test, and
# adds the numbers of its scripts and of its GoogleTest programs.  make check first builds all that check_PROGRAMS and
# check_LTLIBRARIES name, whatever TESTS is.
make_check() {
	waited "$top/contrib/limited" "${limit:-3000}" env GTEST_OUTPUT="json:$out/$stage-json/" \
		LIMITED_TIMES="$times" make -j2 -k check LOG_COMPILER="$top/contrib/limited ${limit:-1500}" -C "$@" >"$out/$stage-make.log" 2>&1
	rc=$?
	before=$failed
	for log in "$1"/test/build/*.log "$1"/contrib/examples/*/*.log; do
		[ -f "$log" ] || continue
		passed=$((passed + $(count "$log" '^ok:* ')))
		failed=$((failed + $(count "$log" '^FAILED:* ')))
		skipped=$((skipped + $(count "$log" '^skipped: ')))
		grep -q '^FAILED:* ' "$log" && grep -v '^ok:* ' "$log" | head -n 100 | tee -a "$failures"
	done
	for json in "$out/$stage-json"/*.json; do
		[ ! -f "$json" ] || add_json "$json"
	done
	if [ $rc != 0 ]; then
		grep -E '^(FAIL|ERROR): |Error ' "$out/$stage-make.log"
		[ $rc != 124 ] && [ $rc != 137 ] || echo "make check took longer than ${limit:-3000} s"
		for trs in "$1"/test/*.trs "$1"/test/build/*.trs "$1"/contrib/examples/*/*.trs; do
			[ -f "$trs" ] && ! grep -qE 'test-result: (PASS|SKIP)' "$trs" || continue
			failed_cases "${trs%.trs}.log"
			grep -q '^FAILED: ' "${trs%.trs}.log" || echo "FAILED: ${trs%.trs}" | sed "s|$1/||" >>"$failures"
		done
		[ "$failed" != "$before" ] || { fails "make check; the end of $out/$stage-make.log:"; tail -n 40 "$out/$stage-make.log"; }
	fi
}
