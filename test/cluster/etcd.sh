# SPDX-License-Identifier: BSD-3-Clause
# Groups by etcd: a part of test/cluster/run.

etcd_at() { echo "http://127.0.0.1:$((port + 10 + $1))"; }
peer_at() { echo "http://127.0.0.1:$((port + 20 + $1))"; }
cluster="m1=$(peer_at 1),m2=$(peer_at 2),m3=$(peer_at 3)"
urls="$(etcd_at 1),$(etcd_at 2),$(etcd_at 3)"
for i in 1 2 3; do
	etcd --name m$i --data-dir "$tmp/m$i" --listen-client-urls "$(etcd_at $i)" --advertise-client-urls "$(etcd_at $i)" \
		--listen-peer-urls "$(peer_at $i)" --initial-advertise-peer-urls "$(peer_at $i)" --initial-cluster "$cluster" \
		--initial-cluster-token "$port" --heartbeat-interval 100 --election-timeout 1000 --log-level warn >"$tmp/m$i.log" 2>&1 &
	eval "etcd_$i=$!"
	started="$! $started"
done
healthy() { etcdctl --endpoints "$urls" endpoint health; }
pass "an etcd of three members starts" wait_for healthy
[ $failed = 0 ] || tail -n 20 "$tmp"/m?.log
export XPORT_GROUP="etcd:$urls"
# keys PREFIX - how many keys begin so; "unknown" if etcd does not say.
keys() {
	if list=$(etcdctl --endpoints "$urls" get --prefix xport/group/"$1" --keys-only 2>/dev/null); then
		printf '%s\n' "$list" | grep -c xport
	else
		echo unknown
	fi
}
no_keys() { [ "$(keys "$1")" = 0 ]; }
has_key() { [ "$(keys "$1")" -gt 0 ] 2>/dev/null; }
no_etcd() (
	urls=http://127.0.0.1:1
	! no_keys "$1" && ! has_key "$1"
)
pass "no keys are counted without etcd" no_etcd group/

# ---- what takes as long as a lease runs beside the rest ----

# A member is killed: what it left vanishes.  Another process has the same rank, and waits for that.
vanishes() (
	export XPORT_GROUP_NAME=dead
	XPORT_GROUP_RANK=1 XPORT_GROUP_SIZE=3 "$member" 60000 >/dev/null 2>&1 &
	one=$!
	XPORT_GROUP_RANK=0 XPORT_GROUP_SIZE=3 "$member" 60000 >/dev/null 2>&1 &
	zero=$!
	wait_for has_key dead/rank/0000001 || return 1
	kill -KILL $one $zero
	wait $one $zero 2>/dev/null
	wait_for no_keys dead/
)
vanishes >"$tmp/vanishes" 2>&1 &
vanishes=$!
two() (
	export XPORT_GROUP_NAME=twice
	XPORT_GROUP_RANK=0 XPORT_GROUP_SIZE=2 "$member" 40000 >/dev/null 2>&1 &
	first=$!
	wait_for has_key twice/rank/0000000 || return 1
	says "XPORT_ERR_BUSY: two processes have rank 0 of the group \"twice\": this one and process $first on " \
		sh "$self" rank 0 2 30000
	r=$?
	kill -KILL $first
	return $r
)
two >"$tmp/two" 2>&1 &
two=$!
# A job of another size has died on another host, so only the end of its lease shows that.
resized() (
	export XPORT_GROUP_NAME=resized
	XPORT_GROUP_RANK=0 XPORT_GROUP_SIZE=2 unshare -u sh -c 'hostname elsewhere && exec "$member" 60000' >/dev/null 2>&1 &
	first=$!
	wait_for has_key resized/rank/0000000 || return 1
	kill -KILL $first
	joined 3 etcd sh "$self" ranks 3
)
resized >"$tmp/resized" 2>&1 &
resized=$!
# The number is not the same everywhere.
numbers() (
	export XPORT_GROUP_NAME=numbers
	XPORT_GROUP_RANK=0 XPORT_GROUP_SIZE=2 "$member" 40000 >/dev/null 2>&1 &
	zero=$!
	wait_for has_key numbers/rank/0000000 || return 1
	says "XPORT_ERR_TIMEOUT: .*it says that the group has 2 members, not 3" sh "$self" rank 1 3 1000 &&
		says "XPORT_ERR_CONFIG: rank 0 says that the group has 2 members, and rank 1 says 3" sh "$self" rank 1 3 30000
	r=$?
	kill -KILL $zero
	return $r
)
numbers >"$tmp/numbers" 2>&1 &
numbers=$!
# Rank 1 is suspended after its card is there, until its lease and those of the others would have expired.
suspended() (
	export XPORT_GROUP_NAME=suspended
	for r in 0 1; do
		XPORT_GROUP_RANK=$r XPORT_GROUP_SIZE=3 XPORT_PEER_TIMEOUT=60s "$member" 60000 >"$tmp/suspended.$r" 2>&1 &
		eval "rank_$r=$!"
	done
	wait_for has_key suspended/rank/0000000 && wait_for has_key suspended/rank/0000001 || return 1
	kill -STOP $rank_1
	XPORT_GROUP_RANK=2 XPORT_GROUP_SIZE=3 XPORT_PEER_TIMEOUT=60s "$member" 60000 >"$tmp/suspended.2" 2>&1 &
	rank_2=$!
	wait_for has_key suspended/complete && sleep 13 && has_key suspended/complete
	r=$?
	kill -CONT $rank_1
	wait $rank_0 && wait $rank_1 && wait $rank_2 && return $r
	cat "$tmp"/suspended.?
	return 1
)
suspended >"$tmp/suspended" 2>&1 &
suspended=$!

# ---- members ----

pass "16 members by etcd" joined 16 etcd sh "$self" ranks 16
pass "its entries are gone" no_keys group/
pass "a rank that never comes" says "XPORT_ERR_TIMEOUT: .*waited for ranks 1 and 2|" sh "$self" rank 0 3 1500
pass "rank 0 never comes" says "XPORT_ERR_TIMEOUT: .*waited for rank 0|" sh "$self" rank 1 3 1000
# A lease that expires meanwhile is replaced, and the group forms.
expired() (
	export XPORT_GROUP_NAME=expired
	XPORT_GROUP_RANK=0 XPORT_GROUP_SIZE=2 "$member" 30000 >"$tmp/zero" 2>&1 &
	zero=$!
	wait_for has_key expired/rank/0000000 || return 1
	for lease in $(etcdctl --endpoints "$urls" get xport/group/expired/rank/0000000 -w json |
		sed -n 's/.*"lease":\([0-9]*\).*/\1/p'); do
		etcdctl --endpoints "$urls" lease revoke "$(printf %x "$lease")" || return 1
	done
	timeout $limit sh "$self" rank 1 2 30000 && wait $zero
)
pass "a lease that expires meanwhile" expired
stranger() (
	export XPORT_GROUP_NAME=stranger
	etcdctl --endpoints "$urls" put xport/group/stranger/rank/0000000 rubbish || return 1
	says "XPORT_ERR_PROTOCOL: the entry xport/group/stranger/rank/0000000 in etcd is not one of a group" \
		sh "$self" rank 0 2 5000
)
pass "an entry that is none" stranger

# ---- something else than etcd ----

XPORT_GROUP=etcd:$(peer_at 2)
pass "no gateway" says "XPORT_ERR_PROTOCOL: .*answered with HTTP status 404 .*that is no answer of etcd" sh "$self" rank 0 1 5000
cat >"$tmp/rubbish.py" <<'END'
import base64, http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    # An etcd that always has 500 more entries: the card of rank 0, with the same key or with rising keys.
    def endless(self, what, request):
        if self.path.endswith("lease/grant"):
            return {"ID": "7", "TTL": "10"}
        if self.path.endswith("kv/txn"):
            self.server.card = request["success"][0]["request_put"]["value"]
            return {"responses": [{"response_put": {}}]}
        if request.get("count_only"):
            return {"count": "500"}
        first = int(base64.b64decode(request["key"])[-8:-1] or b"0") + 1 if len(request["key"]) > 32 and what == "rising" else 0
        names = [b"xport/group/group/rank/%07d" % (first + i if what == "rising" else 0) for i in range(500)]
        return {"kvs": [{"key": base64.b64encode(n).decode(), "mod_revision": "3", "value": self.server.card} for n in names]}
    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        what = self.path.split("/")[1]
        body = self.server.bodies.get(what)
        if body is None:
            body = json.dumps(self.endless(what, json.loads(request))).encode()
        self.send_response({"stopping": 408, "proxy": 503}.get(what, 200))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
    def log_message(self, *a):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H)
s.bodies = {"text": b"hello", "empty": b"", "half": b'{"ID":"1', "list": b"[1,2]", "none": b"{}", "lease": b'{"ID":"x","TTL":"10"}',
            "ttl": b'{"ID":"1","TTL":"-4"}', "long": b"[" + b"1," * 5000000 + b"1]", "deep": b"[" * 100000, "nul": b'{"ID":"\\u0000"}',
            "error": b'{"error":{},"code":"x"}', "exhausted": b'{"error":"etcdserver: mvcc: database space exceeded","code":8}',
            "zero": b'{"ID":"0","TTL":"10"}', "stopping": b'{"error":"context canceled","code":1}', "proxy": b"no server is available",
            "steers": b'{"error":"\\u001b[2Jcleared","code":12}'}
s.serve_forever()
END
python3 "$tmp/rubbish.py" $((port + 30)) >"$tmp/rubbish" 2>&1 &
started="$! $started"
listens() { python3 -c "import socket; socket.create_connection(('127.0.0.1', $1)).close()"; }
wait_for listens $((port + 30))
for what in text empty half list none lease ttl zero long deep nul error; do
	XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/$what
	pass "rubbish: $what" says "XPORT_ERR_PROTOCOL: " sh "$self" rank 0 1 5000
done
XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/exhausted
pass "etcd is full" says "XPORT_ERR_SYSTEM: etcd takes no more entries: .*|look at etcdctl alarm list" sh "$self" rank 0 1 5000
XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/endless
pass "the same page for ever" says "XPORT_ERR_PROTOCOL: an entry below xport/group/ in etcd is not one" sh "$self" rank 0 2 5000
XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/rising
pass "pages without an end" says "XPORT_ERR_TIMEOUT: .*waited for rank 1" sh "$self" rank 0 2 2000
XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/steers
pass "control characters are not repeated" says "XPORT_ERR_SYSTEM: .*: ?\[2Jcleared" sh "$self" rank 0 1 5000
for what in stopping proxy; do
	XPORT_GROUP=etcd:http://127.0.0.1:$((port + 30))/$what,$(etcd_at 3)
	pass "a member of etcd that ends: $what" joined 2 etcd sh "$self" ranks 2
done
XPORT_GROUP=etcd:http://job:secret@127.0.0.1:1
pass "a password in the URL" says "XPORT_ERR_CONFIG: a URL of etcd must have no user and no password|set XPORT_ETCD_USER" sh "$self" rank 0 1 1000
XPORT_GROUP=etcd:http://127.0.0.1:1,http://127.0.0.1.example:1
pass "a password in clear" says "XPORT_ERR_CONFIG: .*http://127.0.0.1.example:1 would get the password in clear" \
	env XPORT_ETCD_USER=job sh "$self" rank 0 1 1000
for bad in "etcd:http://a?b" "etcd:http://a#b" etcd: etcd:127.0.0.1:2379 "etcd:http://a b" "etcd:http://a,ftp://b"; do
	XPORT_GROUP=$bad
	pass "\"$bad\"" says "XPORT_ERR_CONFIG: .*has something that is no URL" sh "$self" rank 0 1 1000
done

(
	mkdir "$tmp/beside"
	tmp=$tmp/beside names=$top_builddir/test/cluster_names started=
	. "$top_srcdir/test/cluster/played.sh"
	kill $started
	exit $failed
) >"$tmp/beside.out" 2>&1 &
beside=$!
. "$top_srcdir/test/cluster/directory.sh"
wait $beside || failed=1
cat "$tmp/beside.out"

# ---- TLS and users ----

# A client's has no common name: etcd would refuse it at its gateway once there are users.
certificate() { # NAME CA [SUBJECT]
	openssl req -newkey rsa:2048 -nodes -keyout "$tmp/$1.key" -subj "${3-/O=$1}" -out "$tmp/$1.csr" &&
		printf 'subjectAltName=IP:127.0.0.1\n' >"$tmp/$1.ext" &&
		openssl x509 -req -in "$tmp/$1.csr" -CA "$tmp/$2.pem" -CAkey "$tmp/$2.key" -CAcreateserial -days 2 \
			-extfile "$tmp/$1.ext" -out "$tmp/$1.pem"
}
certificates() {
	for ca in ca other; do
		openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$ca" -keyout "$tmp/$ca.key" -out "$tmp/$ca.pem" || return 1
	done
	openssl genrsa -out "$tmp/jwt.key" 4096 && openssl rsa -in "$tmp/jwt.key" -pubout -out "$tmp/jwt.pub" || return 1
	certificate server ca && certificate client ca && certificate named ca /CN=named && certificate stranger other
}
pass "certificates" certificates
secure=https://127.0.0.1:$((port + 40))
etcd --name s --data-dir "$tmp/s" --listen-client-urls "$secure" --advertise-client-urls "$secure" --cert-file "$tmp/server.pem" \
	--key-file "$tmp/server.key" --client-cert-auth --trusted-ca-file "$tmp/ca.pem" --listen-peer-urls "$(peer_at 9)" \
	--initial-advertise-peer-urls "$(peer_at 9)" --initial-cluster "s=$(peer_at 9)" --log-level warn \
	--auth-token "jwt,pub-key=$tmp/jwt.pub,priv-key=$tmp/jwt.key,sign-method=RS512,ttl=10m" >"$tmp/s.log" 2>&1 &
started="$! $started"
ctl() { etcdctl --endpoints "$secure" --cacert "$tmp/ca.pem" --cert "$tmp/client.pem" --key "$tmp/client.key" "$@"; }
pass "an etcd with TLS starts" wait_for ctl endpoint health
export XPORT_GROUP="etcd:$secure" XPORT_ETCD_CACERT="$tmp/ca.pem" XPORT_ETCD_CERT="$tmp/client.pem" XPORT_ETCD_KEY="$tmp/client.key"
pass "4 members over TLS" joined 4 etcd sh "$self" ranks 4
pass "another authority" says "XPORT_ERR_AUTH: https.*|set XPORT_ETCD_CACERT" env XPORT_ETCD_CACERT="$tmp/other.pem" sh "$self" rank 0 1 5000
# The authorities of the system would be trusted, too: here they have the right one.
mkdir "$tmp/system"
cp "$tmp/ca.pem" "$tmp/system/$(openssl x509 -in "$tmp/ca.pem" -noout -hash).0"
pass "another authority than those of the system" says "XPORT_ERR_AUTH: https.*|set XPORT_ETCD_CACERT" \
	unshare -m sh -c 'mount --bind "$0" /etc/ssl/certs && exec "$@"' "$tmp/system" \
	env XPORT_ETCD_CACERT="$tmp/other.pem" sh "$self" rank 0 1 5000
pass "no authority" says "XPORT_ERR_AUTH: https" env -u XPORT_ETCD_CACERT sh "$self" rank 0 1 5000
pass "no such file" says "XPORT_ERR_AUTH: https" env XPORT_ETCD_CACERT=/none sh "$self" rank 0 1 5000
pass "a directory over TLS" env XPORT_DIRECTORY=etcd:$secure "$names" put one watch find one
pass "a directory, and another authority" says "put x: XPORT_ERR_AUTH: https.*|set XPORT_ETCD_CACERT" \
	env XPORT_DIRECTORY=etcd:$secure XPORT_ETCD_CACERT="$tmp/other.pem" "$names" put x
pass "no certificate of the member" says "XPORT_ERR_AUTH: https" env -u XPORT_ETCD_CERT -u XPORT_ETCD_KEY sh "$self" rank 0 1 5000
pass "a certificate of a stranger" says "XPORT_ERR_AUTH: https" \
	env XPORT_ETCD_CERT="$tmp/stranger.pem" XPORT_ETCD_KEY="$tmp/stranger.key" sh "$self" rank 0 1 5000
users() {
	ctl user add root:secret && ctl user grant-role root root && ctl role add groups && ctl user add job:'pass"word' &&
		ctl role grant-permission groups --prefix=true readwrite xport/group/ && ctl user grant-role job groups &&
		ctl role grant-permission groups --prefix=true readwrite xport/directory/ &&
		ctl user add nobody:nothing && ctl auth enable
}
pass "no authentication is enabled yet" says "XPORT_ERR_CONFIG: .*authentication is not enabled" \
	env XPORT_ETCD_USER=job XPORT_ETCD_PASSWORD_FILE="$tmp/ca.pem" sh "$self" rank 0 1 5000
pass "users" users
printf 'pass"word\n' >"$tmp/password"
printf 'nothing\n' >"$tmp/nothing"
export XPORT_ETCD_USER=job XPORT_ETCD_PASSWORD_FILE="$tmp/password"
pass "4 members with a user" joined 4 etcd sh "$self" ranks 4
pass "a directory with a user" env XPORT_DIRECTORY=etcd:$secure "$names" put one watch find one all two remove two
pass "a directory, and a user without rights" says "put x: XPORT_ERR_AUTH: .*permission denied|.*begin with xport/directory/" \
	env XPORT_DIRECTORY=etcd:$secure XPORT_ETCD_USER=nobody XPORT_ETCD_PASSWORD_FILE="$tmp/nothing" "$names" put x
pass "a certificate with a common name" says "XPORT_ERR_AUTH: .*CommonName.*|use a client certificate without a common name" \
	env XPORT_ETCD_CERT="$tmp/named.pem" XPORT_ETCD_KEY="$tmp/named.key" sh "$self" rank 0 1 5000
pass "another password" says "XPORT_ERR_AUTH: .*authentication failed" env XPORT_ETCD_PASSWORD_FILE="$tmp/nothing" sh "$self" rank 0 1 5000
pass "no user" says "XPORT_ERR_AUTH: .*|set XPORT_ETCD_USER" env -u XPORT_ETCD_USER sh "$self" rank 0 1 5000
pass "a user without rights" says "XPORT_ERR_AUTH: .*permission denied" \
	env XPORT_ETCD_USER=nobody XPORT_ETCD_PASSWORD_FILE="$tmp/nothing" sh "$self" rank 0 1 5000
head -c 257 /dev/zero | tr '\0' x >"$tmp/long"
pass "a password that is too long" says "XPORT_ERR_CONFIG: the password in XPORT_ETCD_PASSWORD_FILE=.*/long is too long" \
	env XPORT_ETCD_PASSWORD_FILE="$tmp/long" sh "$self" rank 0 1 5000
pass "no password" says "XPORT_ERR_CONFIG: .*XPORT_ETCD_PASSWORD_FILE=/none cannot be read" \
	env XPORT_ETCD_PASSWORD_FILE=/none sh "$self" rank 0 1 5000

# ended PID FILE - waits for what runs beside the rest.
ended() {
	wait "$1"
	r=$?
	cat "$2"
	return $r
}
pass "the entries of killed members vanish" ended $vanishes "$tmp/vanishes"
pass "two processes with one rank" ended $two "$tmp/two"
pass "another number" ended $numbers "$tmp/numbers"
pass "a job of another size has died" ended $resized "$tmp/resized"
pass "a member is suspended longer than a lease" ended $suspended "$tmp/suspended"
pass "a directory in an etcd that does not answer" ended $slow "$tmp/slow"
pass "a directory in an etcd that is away" ended $away "$tmp/away"

# ---- etcd away or slow: last, because another leader prolongs all leases ----

unset XPORT_ETCD_CACERT XPORT_ETCD_CERT XPORT_ETCD_KEY XPORT_ETCD_USER XPORT_ETCD_PASSWORD_FILE
XPORT_GROUP=etcd:$urls
# A member of etcd stops, then dies, while a directory is used and watched: nobody notices. The first URL is that member's.
holder watcher watch
wait_for printed "watch : XPORT_OK" watcher
kill -STOP "$etcd_1"
pass "a directory after one of three members of etcd was suspended" "$names" put first find first
pass "a watcher there hears of it" wait_for printed "event changed first" watcher
kill -KILL "$etcd_1"
pass "a directory after one of three members of etcd was killed" "$names" put after all "for all" find after
pass "the watcher hears of it" wait_for printed "event gone for all" watcher
pass "16 members after one of three members of etcd was killed" joined 16 etcd sh "$self" ranks 16
kill -STOP "$etcd_2"
pass "etcd without a majority" says "XPORT_ERR_TIMEOUT: .*waited for etcd, which does not answer: http" sh "$self" rank 0 1 3000
kill -CONT "$etcd_2"
pass "and with it again" joined 4 etcd sh "$self" ranks 4
XPORT_GROUP=etcd:$(etcd_at 1)
pass "etcd away" says "XPORT_ERR_TIMEOUT: .*waited for etcd, which does not answer: $(etcd_at 1): .*onnect" sh "$self" rank 0 1 1000
