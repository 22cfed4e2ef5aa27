# SPDX-License-Identifier: BSD-3-Clause
# Background jobs.  Whatever takes time runs in the background and is waited for: so a signal is handled at once, and all that
# runs ends with contrib/check.  (timeout has a process group of its own: it would survive Ctrl-C.)

running=   # process ids that contrib/check waits for
ahead=     # process id of the job that builds trees ahead
beside_us= # process id of the job that runs the stages that mostly wait

# stopped PID... - stops these processes and all that they started, and prints them.  What is stopped starts nothing more.
stopped() {
	for p; do
		kill -STOP "$p" 2>/dev/null
		echo "$p"
		stopped $(ps -o pid= --ppid "$p")
	done
}

on_signal() {
	trap '' HUP INT TERM
	echo "check: ended by SIG$1" >&2
	those=$(stopped $running $ahead $beside_us)
	[ -z "$those" ] || kill $those 2>/dev/null
	[ -z "$those" ] || kill -CONT $those 2>/dev/null
	wait
	# A job at idle priority takes long to end on a busy machine.
	for tick in $(seq 300); do
		ps -o stat= -p "$(echo $those)" 2>/dev/null | grep -qv '^Z' || break
		sleep 0.1
	done
	[ -z "$those" ] || kill -KILL $those 2>/dev/null
	trap - "$1"
	kill -s "$1" $$
}
for s in HUP INT TERM; do
	trap "on_signal $s" $s
done

# waited COMMAND... - runs it in the background and returns its exit status.
waited() {
	"$@" &
	running=$!
	wait $running
	set -- $?
	running=
	return "$1"
}

# lane FUNCTION - runs it in a process of its own, which leaves its output and its numbers for join.
lane() {
	(
		passed=0 failed=0 skipped=0 running=
		$1
		echo "$passed $failed $skipped" >"$out/$1.numbers"
	) >"$out/$1.said" 2>&1
}

# join FUNCTION - prints the lane's output, adds its numbers, and says whether nothing failed.
join() {
	cat "$out/$1.said"
	if ! read -r lane_passed lane_failed lane_skipped 2>/dev/null <"$out/$1.numbers"; then
		echo "FAILED: $1 ended without its numbers" | tee -a "$failures"
		lane_passed=0 lane_failed=1 lane_skipped=0
	fi
	passed=$((passed + lane_passed)) failed=$((failed + lane_failed)) skipped=$((skipped + lane_skipped))
	[ "$lane_failed" = 0 ]
}

# beside FUNCTION... - runs all of them at the same time.
beside() {
	for function; do
		lane $function &
		running="$running $!"
	done
	wait $running
	running=
	for function; do join $function; done
}

# set_aside STAGE... - sets aside to the stages of these that mostly wait, if others follow them: they run in a process of their own,
# beside those in after.  What comes first is in before.  A stage says that it waits by waits=yes.
set_aside() {
	before= aside= after=
	for stage; do
		if grep -qx 'waits=yes' "$here/stages/$stage"; then
			aside="$aside $stage"
		elif [ -n "$aside" ]; then
			after="$after $stage"
		else
			before="$before $stage"
		fi
	done
	[ -n "$after" ] || before=$* aside=
}

run_aside() { run_stages $aside; }
