# SPDX-License-Identifier: BSD-3-Clause
# A directory in an etcd that test/cluster/played.py plays: a part of test/cluster/run, beside directory.sh. What takes seconds runs
# beside the rest.

unset XPORT_GROUP

python3 "$top_srcdir/test/cluster/played.py" $((port + 33)) >"$tmp/played" 2>&1 &
started="$! $started"
wait_for listens $((port + 33))
at_played() { echo "etcd:http://127.0.0.1:$((port + 33))/$1"; }
# played MODE COMMAND... - its output is in $tmp/played.MODE.
played() {
	mode=$1
	shift
	XPORT_DIRECTORY=$(at_played "$mode") timeout $limit "$names" "$@" >"$tmp/played.$mode" 2>&1
	cat "$tmp/played.$mode"
}
has() { grep -q -- "$2" "$tmp/played.$1" || { echo "no line \"$2\""; return 1; }; }
has_not() { ! grep -- "$2" "$tmp/played.$1"; }
# calls MODE PATH - how many of these requests have come.
calls() { grep -c "^$1 $2\$" "$tmp/played"; }

denied() { played denied put a watch pause 3000 find a find b && has denied "find a: XPORT_OK" && has denied "find b: .*no such name" && [ "$(calls denied grant)" = 1 ]; }
full_again() { played full put a pause 1500 find b put c && has full "find b: .*no such name" && has full "put c: XPORT_ERR_SYSTEM: etcd takes no more"; }
poison() { played poison put bad put one put two pause 1500 appears one appears two find b && has poison "appears one: yes" && has poison "appears two: yes" && has poison "find b: .*no such name"; }
slow() { played slow put a pause 2500 find a && has slow "find a: XPORT_OK" && [ "$(calls slow grant)" = 1 ]; }
restored() { played restored put a watch find reset event missed appears a && has restored "event missed" && has restored "appears a: yes"; }
older() { played older put a watch find reset event missed appears a && has older "event missed" && has older "appears a: yes"; }
deaf() { played deaf put a watch put b event b && has deaf "event changed b"; }
# Another process puts: a find shows that the watch does not say so.
deaf_find() {
	XPORT_DIRECTORY=$(at_played deaf_find) "$names" pause 1500 put b pause 15000 >/dev/null &
	other=$!
	played deaf_find watch pause 100 appears b event b && has deaf_find "event changed b"
	r=$?
	kill $other
	return $r
}
for background in denied full_again poison slow restored older deaf deaf_find; do
	$background >"$tmp/background.$background" 2>&1 &
	eval "played_$background=$!"
done

late_put() { played late put x remove x find late find x && has late "remove x: XPORT_OK" && has late "find x: .*no such name"; }
pass "a late repetition of a put is not applied" late_put
strangers() { played long put zz watch event zz && has long "event changed zz" && has long "watch : XPORT_OK"; }
pass "a stranger's long key, and long values" strangers
no_watch() { played nowatch watch all x event x && has nowatch "watch : XPORT_ERR_AUTH" && has nowatch "event changed x"; }
pass "after a failed watch entries for all are heard" no_watch
switched() { played switched all x event x watch event x && has switched "event missed"; }
pass "the switch from one watch to the other is no gap" switched
bad_page() { played badpage both b && has badpage "watch : XPORT_OK" && has badpage "find b: .*no such name"; }
pass "a page that is wrong ends no other request" bad_page
many() { played burst burst 3000 && has burst "burst: 3000 of 3000 asked, 3000 ok"; }
pass "3000 puts at once" many
crowd() { played crowd watch crowd 2000 && n=$(sed -n 's/^crowd: //p' "$tmp/played.crowd") && [ "$n" -ge 1000 ] && [ "$n" -le 1100 ]; }
pass "one line with 5000 events" crowd
stale() { played stale put a watch event a find a find cut pause 300 find a why && has stale "find a: .*no such name" && has stale "why etcd has ended the watch"; }
pass "a watcher without a watch asks etcd" stale
# What it knows is old while events wait: those that it has, and those that the watch was not asked for.
flood() { played flood put a watch event a find a find flood still 1500 find a; has flood "find a: XPORT_OK" && has flood "find a: .*no such name"; }
pass "a watcher whose events wait asks etcd" flood
flood_lines() { played flood_lines put a watch event a find a find flood still 1500 event x0 find a; has flood_lines "find a: .*no such name"; }
pass "a watcher whose watch waits asks etcd" flood_lines
# The kernel looks whether the peer of a watch is there: with 2 a timer for that runs (/proc/net/tcp).
alive() {
	XPORT_DIRECTORY=$(at_played alive) "$names" watch pause 4000 >/dev/null &
	watcher=$!
	wait_for alive_timer
	r=$?
	kill $watcher
	return $r
}
alive_timer() { grep -q "^ *[0-9]*: [0-9A-F:]* 0100007F:$(printf %04X $((port + 33))) 01 [0-9A-F:]* 02:" /proc/net/tcp; }
pass "a dead connection is looked for" alive
token() {
	printf 'secret\n' >"$tmp/played.password"
	(export XPORT_ETCD_USER=job XPORT_ETCD_PASSWORD_FILE="$tmp/played.password" && played token put a watch find die put b event b) && has token "event changed b"
}
pass "a token that its member has forgotten" token
revision() { played revision watch pause 300 find b && has revision "find b: .*no such name"; }
pass "the highest revision there is" revision
for background in denied full_again poison slow restored older deaf deaf_find; do
	eval "wait \$played_$background"
	r=$?
	ended() { cat "$tmp/background.$background"; return $r; }
	pass "played: $background" ended
done
