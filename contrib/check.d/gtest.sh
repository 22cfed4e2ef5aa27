# SPDX-License-Identifier: BSD-3-Clause
# Programs of GoogleTest: run with a limit, in parts, and counted by their JSON.

# filter NAME - the option for the patterns in contrib/check.d/filters/NAME.  A line is a pattern, with "-" before it one that
# is left out, and "#" begins a comment.
filter() {
	left_out=$(sed -n 's/^-//p' "$here/filters/$1" | paste -sd :)
	echo "--gtest_filter=$(sed -n '/^[^#-]/p' "$here/filters/$1" | paste -sd :)${left_out:+-$left_out}"
}

# add_json JSON - adds the numbers that a GoogleTest program wrote; sets `bad` to its number of failures.  With
# --gtest_list_tests it writes JSON too: nothing ran then, and nothing is added.
add_json() {
	all=$(sed -n '2,6s/.*"tests": \([0-9]*\).*/\1/p' "$1" | head -n 1)
	bad=$(sed -n '2,6s/.*"failures": \([0-9]*\).*/\1/p' "$1" | head -n 1)
	[ -n "$bad" ] || { bad=0; return; }
	left=$(($(count "$1" '"result": "SKIPPED"') + $(count "$1" '"result": "SUPPRESSED"')))
	[ "$all" -gt 0 ] || { echo "FAILED: $1 ran no test" | tee -a "$failures"; bad=1 all=1; }
	passed=$((passed + all - bad - left))
	failed=$((failed + bad))
	skipped=$((skipped + left))
	echo "$(basename "$1" .json): $((all - bad - left)) passed, $bad failed, $left skipped"
}

# A line in a report of a sanitizer or of valgrind that is a finding.
problem='==[0-9]+== *(ERROR|Invalid|Conditional|Use of|Syscall|Mismatched|[0-9,]+ (\([^)]*\) )?bytes)|WARNING: Thread|runtime error'

# hung LOG - in short, what contrib/limited printed there, and of which test.
hung() {
	sed -n '/^\[ RUN /h;/^limited: /{x;/./p;x;:l;p;n;b l}' "$1" | head -n 120 >>"$failures"
}

# failed_cases LOG - the failed tests in the log of a GoogleTest program; of another program the end of its log.
failed_cases() {
	sed -n 's/^\[  FAILED  \] \(.*\) (.*ms)$/FAILED: \1/p' "$1" >>"$failures"
	hung "$1"
	if grep -q '^\[ RUN ' "$1"; then
		sed -n '/^\[ RUN /{h;d};H;/^\[  FAILED  \].*ms)/{x;p}' "$1" | head -n 200
	else
		tail -n 60 "$1"
	fi
}

# kernel_said - the last lines of the drivers in the log of the virtual machine: often they alone say why a connection ended.
kernel_said() {
	case $stage in
	vm*) grep -E '(siw|rdma_rxe|rxe[0-9]): ' "$kernel_log" | tail -n 20 ;;
	esac
}

# suite NAME COMMAND... - runs a GoogleTest program and adds its numbers.  If the plan leaves a share, it runs that share of its tests.
suite() {
	name=$stage-$1
	shift
	begun=$(date +%s)
	begin "$name" env GTEST_TOTAL_SHARDS=$((100 / share)) GTEST_SHARD_INDEX=0 "$@"
	wait $!
	judge "$name" $?
	running=
	reports "$name"
	echo "$name took $(($(date +%s) - begun)) s"
}

# parts N NAME COMMAND... - the same as N processes at a time, each with every Nth test and with a /dev/shm of its own, because
# tests check what is left there.  Most tests mainly wait, also under ThreadSanitizer.
parts() {
	parts=$1
	shift
	if ! unshare --mount mount -t tmpfs shm /dev/shm 2>/dev/null; then
		suite "$@"
		return
	fi
	all_of=$stage-$1
	shift
	begun=$(date +%s) part=0 those=
	while [ $part -lt "$parts" ]; do
		begin "$all_of-$part" env GTEST_TOTAL_SHARDS=$((parts * 100 / share)) GTEST_SHARD_INDEX=$part \
			unshare --mount sh -c 'mount -t tmpfs shm /dev/shm && exec "$@"' sh "$@"
		those="$those $part:$!"
		part=$((part + 1))
	done
	for one in $those; do
		wait "${one#*:}"
		judge "$all_of-${one%:*}" $?
	done
	running=
	reports "$all_of"
	echo "$all_of took $(($(date +%s) - begun)) s"
}

# begin NAME COMMAND... - starts it in the background, with a limit.
begin() {
	as=$1
	shift
	"$top/contrib/limited" "${limit:-1500}" env GTEST_OUTPUT="json:$out/$as.json" "$@" >"$out/$as.log" 2>&1 &
	running="$running $!"
}

# judge NAME STATUS - adds its numbers.  A program that failed without naming a failed test is one failure.
judge() {
	name=$1 rc=$2
	bad=0
	if died "$rc" "$out/$name.log"; then
		skip "$name: $(died_of "$out/$name.log")"
		return
	fi
	[ ! -s "$out/$name.json" ] || add_json "$out/$name.json"
	[ "$bad" = 0 ] || { failed_cases "$out/$name.log"; kernel_said; }
	if [ $rc != 0 ] && [ "$bad" = 0 ] || [ ! -s "$out/$name.json" ]; then
		fails "$name: exit status $rc; the end of $out/$name.log:"
		hung "$out/$name.log"
		tail -n 40 "$out/$name.log"
	fi
}

# reports NAME - findings of a sanitizer or of valgrind in $out/NAME.report.* are one failure.
reports() {
	# valgrind also says there which system calls it does not know.
	found=$(find "$out" -name "$1.report.*" -exec grep -lE "$problem" {} +)
	if [ -n "$found" ]; then
		fails "$1: reports:" $found
		grep -hE -A 16 "$problem" $found | head -n 60 >>"$failures"
		cat $found | head -n 150
	fi
}
