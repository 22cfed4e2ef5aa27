# SPDX-License-Identifier: BSD-3-Clause
# Counting: what passed, failed and was skipped, and the last lines of contrib/check.

passed=0 failed=0 skipped=0
failures=$out/failures # what failed, in short: repeated at the end
times=$out/times       # "SECONDS WHAT" of each check and test script: the slowest are printed at the end

# fails WHAT... - one more failure.
fails() {
	failed=$((failed + 1))
	echo "FAILED: $*" | tee -a "$failures"
}

# skip REASON...
skip() {
	skipped=$((skipped + 1))
	echo "skipped: $*"
}

# cannot REASON... - a stage or a part of one cannot run here: skipped, and in CI failed.
cannot() {
	if [ "${CI-}" = true ]; then fails "$* (CI=true: nothing may be left out)"; else skip "$@"; fi
}

# check WHAT COMMAND... - one check: it passes if the command succeeds.
check() {
	what=$1
	shift
	log=$out/$(echo "$stage-$what" | tr -c 'A-Za-z0-9\n' -).log
	check_begun=$(date +%s)
	waited "$@" >"$log" 2>&1
	rc=$?
	echo "$(($(date +%s) - check_begun)) $stage: $what" >>"$times"
	if [ $rc = 0 ]; then
		passed=$((passed + 1))
		echo "ok: $what"
	elif died $rc "$log"; then
		skip "$what: $(died_of "$log")"
	else
		fails "$what; the end of $log:"
		tail -n 60 "$log"
		return 1
	fi
}

# expect STATUS PATTERN COMMAND... - succeeds if the command exits with STATUS and prints a line that matches PATTERN.
expect() {
	want=$1 pattern=$2
	shift 2
	said=$out/$stage-expect
	"$@" >"$said" 2>&1
	rc=$?
	cat "$said"
	[ $rc = "$want" ] && grep -q -e "$pattern" "$said"
}

# shown STATUS FILE - prints the file and returns the status.
shown() { cat "$2" && return "$1"; }

# died STATUS LOG - whether a virtual machine died of a known fault of its kernel, so that nothing was tested; died_of prints it.
died() { [ "$1" = 77 ] && [ -n "$(died_of "$2")" ]; }
died_of() { sed -n 's/^rdma-vm: skipped: //p' "$1" | tail -n 1; }

# count FILE PATTERN
count() { grep -c -- "$2" "$1" 2>/dev/null || true; }

# slowest - the ten tests, checks and test scripts that took longest.
slowest() {
	find "$out" -name '*.json' -exec awk -F '"' '
		$2 == "name" { name = $4 }
		$2 == "time" { t = $4; sub(/s$/, "", t) }
		$2 == "classname" { print t, $4 "." name }' {} +
	cat "$times" 2>/dev/null
}

# summary - the last lines.  Details come first, so that the names of failed tests are last.
summary() {
	echo "== slowest ten, in seconds"
	slowest | sort -rn | head -n 10
	if [ $failed != 0 ] && [ -s "$failures" ]; then
		echo "== what failed, in short"
		head -n 200 "$failures"
		if grep -qv '^FAILED: ' "$failures"; then
			echo "== what failed"
			sed -n 's/; the end of .*//; /^FAILED: /p' "$failures" | sort -u
		fi
	fi
	echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
	[ $failed = 0 ] && [ $passed -gt 0 ]
}
