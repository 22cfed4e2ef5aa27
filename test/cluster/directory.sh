# SPDX-License-Identifier: BSD-3-Clause
# A directory in etcd: a part of test/cluster/run, after etcd.sh has started three members and has not ended any.

names=$top_builddir/test/cluster_names
export names
unset XPORT_GROUP
export XPORT_DIRECTORY="etcd:$urls"

# The scenarios of the embedded directory, in etcd: names, watches, versions, and a process that dies.
scenarios() {
	timeout $((2 * limit)) "$top_builddir/test/services_check" \
		--gtest_filter='*directory_use*:*directory_watch*:*directory_anew*:*directory_owner_dies*' ucx:tcp >"$tmp/scenarios" 2>&1 &&
		grep -q 'PASSED.* 6 tests' "$tmp/scenarios" || { cat "$tmp/scenarios"; return 1; }
}
pass "the scenarios of a directory in etcd" scenarios

# holder NAME COMMAND... - a process that stays: $holder ends by closing descriptor 8. Its output is in $tmp/NAME.
holder() {
	name=$1
	shift
	rm -f "$tmp/$name.in"
	mkfifo "$tmp/$name.in"
	"$names" "$@" hold <"$tmp/$name.in" >"$tmp/$name" 2>&1 &
	holder=$!
	started="$! $started"
	exec 8>"$tmp/$name.in"
}
released() {
	exec 8>&-
	wait $holder
}
printed() { grep -q -- "$1" "$tmp/$2"; }
# entry_lease NAME - the lease of an entry, in hexadecimal digits.
entry_lease() {
	printf %x "$(etcdctl --endpoints "$urls" get "xport/directory/$XPORT_DIRECTORY_NAME/name/$1" -w json |
		sed -n 's/.*"lease":\([0-9]*\).*/\1/p')"
}

# An expired lease: the entry is put again by itself. If another process has the name by then, its first owner hears of it.
expired_lease() (
	export XPORT_DIRECTORY_NAME=expired
	holder lease put one put two
	wait_for printed "put two: XPORT_OK" lease || return 1
	kill -STOP $holder
	etcdctl --endpoints "$urls" lease revoke "$(entry_lease one)" && says "find one: XPORT_ERR_UNREACHABLE: there is no such name" "$names" find one || return 1
	"$names" put two hold <"$tmp/stay" >"$tmp/second" 2>&1 &
	second=$!
	started="$second $started"
	wait_for printed "put two: XPORT_OK" second || return 1
	kill -CONT $holder
	wait_for "$names" find one && wait_for printed "event gone two XPORT_ERR_BUSY" lease || { cat "$tmp/lease"; return 1; }
	kill -KILL $second
	released
)
mkfifo "$tmp/stay"
exec 9<>"$tmp/stay"
pass "an entry whose lease has expired is put again" expired_lease

# What etcd has in a place of an entry is none; a full etcd; a user without rights.
strange() (
	export XPORT_DIRECTORY_NAME=strange
	etcdctl --endpoints "$urls" put xport/directory/strange/name/one rubbish || return 1
	says "find one: XPORT_ERR_PROTOCOL: an entry below xport/directory/strange/name/ in etcd .*|remove it" "$names" find one &&
		says "put one: XPORT_ERR_PROTOCOL: an entry below" "$names" put one &&
		"$names" put two watch find two
)
pass "an entry that is not one of a directory" strange
alarm() {
	python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/v3/maintenance/alarm", sys.argv[2].encode(), 10).read()' \
		"$(etcd_at 1)" "{\"action\":\"$1\",\"alarm\":\"NOSPACE\",\"memberID\":\"$(etcdctl --endpoints "$(etcd_at 1)" endpoint status -w json | sed -n 's/.*"member_id":\([0-9]*\).*/\1/p')\"}"
}
full() (
	export XPORT_DIRECTORY_NAME=full
	holder full put one
	wait_for printed "put one: XPORT_OK" full && alarm ACTIVATE || return 1
	says "put two: XPORT_ERR_SYSTEM: etcd takes no more entries: .*space.*|look at etcdctl alarm list" "$names" put two &&
		"$names" watch find one
	r=$?
	etcdctl --endpoints "$urls" alarm disarm && "$names" put two && released && return $r
)
pass "a full etcd: nothing is put, the rest works" full

# ---- wrong options ----

for bad in "redis:x|XPORT_ERR_NOT_SUPPORTED: .*there is no such source|there are embedded and etcd" "etcd:|XPORT_ERR_CONFIG: .*XPORT_DIRECTORY=etcd:https" \
	"etcd:http://a:b@c|XPORT_ERR_CONFIG: a URL of etcd must have no user"; do
	pass "\"${bad%%|*}\"" says "create : ${bad#*|}" env XPORT_DIRECTORY="${bad%%|*}" "$names"
done
pass "a name that is not allowed" says "create : XPORT_ERR_CONFIG: the name \"a/b\" is not allowed" env XPORT_DIRECTORY_NAME=a/b "$names"

# ---- something else than etcd ----

cat >"$tmp/watch.py" <<'END'
import http.server, json, sys
# An etcd whose answers to ranges are good, and whose watches are not.
class H(http.server.BaseHTTPRequestHandler):
    bodies = {"rubbish": b"hello\n", "list": b"[1]\n", "none": b"{}\n", "events": b'{"result":{"events":[{},{"kv":{}},{"type":"DELETE"},7]}}\n',
              "long": b"x" * (5 << 20), "compacted": b'{"result":{"canceled":true,"compact_revision":"9"}}\n', "ends": b"",
              "denied": b'{"result":{"canceled":true,"cancel_reason":"permission denied"}}\n', "half": b'{"result":{"ev'}
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what = self.path.split("/")[1]
        body = self.bodies.get(what, b"")
        if not self.path.endswith("/v3/watch") and what != "deaf":
            body = b'{"header":{"revision":"7"}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
END
python3 "$tmp/watch.py" $((port + 31)) >"$tmp/watch" 2>&1 &
started="$! $started"
wait_for listens $((port + 31))
fake=etcd:http://127.0.0.1:$((port + 31))
for what in rubbish list none events long ends denied half; do
	pass "a watch that sends: $what" says "find x: XPORT_ERR_UNREACHABLE: there is no such name" \
		env XPORT_DIRECTORY=$fake/$what "$names" watch find x
done
missed() (
	XPORT_DIRECTORY=$fake/compacted
	holder missed watch
	wait_for printed "event missed" missed && released
)
pass "a watch that etcd has compacted" missed
for what in text empty half list none zero long deep nul error; do
	pass "rubbish: $what" says "put x: XPORT_ERR_PROTOCOL: " env XPORT_DIRECTORY=etcd:http://127.0.0.1:$((port + 30))/$what "$names" put x
done

# ---- slow or away: each takes 10 s, so they run beside the rest ----

python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)' $((port + 32)) &
started="$! $started"
# late COMMAND... - it ends within 10 s and a little more.
late() {
	begun=$(date +%s)
	"$@" || return 1
	[ $(($(date +%s) - begun)) -le $((13 * scale)) ] || { echo "it took $(($(date +%s) - begun)) s"; return 1; }
}
late says "put x: XPORT_ERR_TIMEOUT: etcd did not answer within 10 s: http.*|check that etcd runs" \
	env XPORT_DIRECTORY=etcd:http://127.0.0.1:$((port + 32)) "$names" put x >"$tmp/slow" 2>&1 &
slow=$!
late says "put x: XPORT_ERR_TIMEOUT: etcd did not answer within 10 s: http.*onnect.*|check that etcd runs" \
	env XPORT_DIRECTORY=etcd:http://127.0.0.1:1 "$names" put x >"$tmp/away" 2>&1 &
away=$!
XPORT_GROUP=etcd:$urls
