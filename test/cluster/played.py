# SPDX-License-Identifier: BSD-3-Clause
# A played etcd: transactions, ranges, leases and watches of one member, and in each path /MODE/v3/... something that goes wrong.
#   played.py PORT
import base64, http.server, json, sys, threading, time

lock = threading.Condition()
b64 = lambda b: base64.b64encode(b).decode()
names = b"xport/directory/directory/name/"


def un64(text):
    return base64.b64decode(text or "")


class Etcd:
    def __init__(self, mode):
        self.mode, self.calls, self.late, self.token, self.cut, self.deaf = mode, {}, None, "1", False, False
        self.reset(10, "14841639068965178418")
        if mode == "long":
            for key, size in ((b"k" * 300, 1), (b"l", 900 << 10), (b"m", 900 << 10), (b"n", 2 << 20)):
                self.put(names + key, b"v" * size, 0)

    def reset(self, revision, cluster):
        self.revision, self.cluster, self.keys, self.leases, self.events = revision, cluster, {}, {}, []

    def header(self):
        return {"cluster_id": self.cluster, "revision": str(self.revision)}

    def kv(self, key, keys_only=False):
        value, mod, create, version, lease = self.keys[key]
        kv = {"key": b64(key), "mod_revision": str(mod), "create_revision": str(create), "version": str(version), "lease": str(lease)}
        return kv if keys_only else dict(kv, value=b64(value))

    def put(self, key, value, lease):
        old = self.keys.get(key)
        self.keys[key] = (value, self.revision + 1, old[2] if old else self.revision + 1, old[3] + 1 if old else 1, lease)
        self.events.append((self.revision + 1, key, {"kv": self.kv(key)}))

    def delete(self, key):
        if self.keys.pop(key, None):
            self.events.append((self.revision + 1, key, {"type": "DELETE", "kv": {"key": b64(key), "mod_revision": str(self.revision + 1)}}))

    def done(self):
        if self.events and self.events[-1][0] > self.revision:
            self.revision += 1
            lock.notify_all()

    def expire(self):
        for lease, (end, ttl) in list(self.leases.items()):
            if time.time() > end:
                del self.leases[lease]
                for key in [k for k, v in self.keys.items() if v[4] == lease]:
                    self.delete(key)
        self.done()

    def range(self, q):
        if int(q.get("revision") or 0) > self.revision:
            return None
        key, end = un64(q["key"]), un64(q.get("range_end"))
        found = sorted(k for k in self.keys if (key <= k < end if end else k == key))
        limit = int(q.get("limit") or 0) or len(found)
        r = {"header": self.header(), "count": str(len(found))}
        if not q.get("count_only"):
            r["kvs"] = [self.kv(k, q.get("keys_only")) for k in found[:limit]]
        return r

    def holds(self, c):
        value, mod, create, version, lease = self.keys.get(un64(c["key"]), (b"", 0, 0, 0, 0))
        return {"MOD": mod, "CREATE": create, "VERSION": version, "LEASE": lease}[c["target"]] == int(
            c.get({"MOD": "mod_revision", "CREATE": "create_revision"}.get(c["target"], c["target"].lower())))

    def no_lease(self, t):
        return any("request_put" in o and int(o["request_put"].get("lease") or 0) not in self.leases or
                   "request_txn" in o and self.no_lease(o["request_txn"]) for o in t.get("success", []))

    def txn(self, t):
        chosen = t.get("success" if all(self.holds(c) for c in t.get("compare", [])) else "failure", [])
        out = []
        for o in chosen:
            if "request_put" in o:
                self.put(un64(o["request_put"]["key"]), un64(o["request_put"].get("value")), int(o["request_put"]["lease"]))
                out.append({"response_put": {}})
            elif "request_delete_range" in o:
                self.delete(un64(o["request_delete_range"]["key"]))
                out.append({"response_delete_range": {}})
            elif "request_txn" in o:
                out.append({"response_txn": self.txn(o["request_txn"])})
            else:
                out.append({"response_range": self.range(o["request_range"])})
        return {"responses": out}

    def whole_txn(self, t):
        if self.no_lease(t):
            return {"error": "etcdserver: requested lease not found", "code": 5}
        r = self.txn(t)
        self.done()
        return dict(r, header=self.header())

    def lease(self, path, q):
        if path == "grant":
            i = 7 + self.calls["grant"]
            self.leases[i] = (time.time() + int(q["TTL"]), int(q["TTL"]))
            return {"header": self.header(), "ID": str(i), "TTL": q["TTL"]}
        i = int(q["ID"])
        if path == "revoke":
            self.leases[i] = (0, 0)
            self.expire()
            return {}
        if i not in self.leases:
            return {"result": {"header": self.header()}}
        self.leases[i] = (time.time() + self.leases[i][1], self.leases[i][1])
        return {"result": {"header": self.header(), "TTL": str(self.leases[i][1])}}

    # What this mode does instead; None: nothing.
    def wrong(self, path, q):
        n, name = self.calls[path], un64(q.get("key")).split(b"/")[-1]
        if self.mode == "full" and path == "keepalive" or self.mode == "poison" and path == "keepalive" and n == 1:
            for i in self.leases:
                self.leases[i] = (0, 0)
            self.expire()
        if self.mode == "full" and path == "grant" and n > 1:
            return {"error": "etcdserver: mvcc: database space exceeded", "code": 8}
        if self.mode == "poison" and path == "txn" and self.calls["grant"] > 1 and b64(b"xport/directory/directory/name/bad") in json.dumps(q):
            return {"error": "etcdserver: something is wrong with bad", "code": 12}
        if self.mode == "late" and path == "txn" and n == 1:
            self.late = q
            return {"error": "etcdserver: request timed out", "code": 14}
        if self.mode == "late" and name == b"late" and self.late:
            self.whole_txn(self.late)
            self.late = None
        if self.mode == "nowatch" and q.get("limit"):
            return {"error": "etcdserver: permission denied", "code": 7}
        if self.mode == "badpage" and q.get("limit") and n < 4:
            return {"header": self.header(), "kvs": [{"key": b64(b"elsewhere"), "mod_revision": "5"}]}
        if self.mode == "restored" and name == b"reset":
            self.reset(3, "77")
        if self.mode == "older" and name == b"reset":
            self.reset(3, self.cluster)
        if self.mode == "stale" and name == b"cut":
            self.cut = True
            self.delete(b"xport/directory/directory/name/a")
            self.revision += 1
            lock.notify_all()
        if self.mode.startswith("flood") and name == b"flood":
            for key in [names + b"x%d" % i for i in range(3000)]:
                self.events.append((self.revision + 1, key, {"type": "DELETE", "kv": {"key": b64(key), "mod_revision": str(self.revision + 1)}}))
            self.delete(names + b"a")
            self.done()
        if self.mode == "token" and name == b"die":
            self.token, self.cut = "2", True
            lock.notify_all()
        return None


etcds = {}


class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def chunk(self, message):
        line = json.dumps(message).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def watch(self, e, q):
        q = q["create_request"]
        first, end, at = un64(q["key"]), un64(q["range_end"]), int(q["start_revision"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if e.mode in ("denied", "revision") or e.mode == "stale" and e.cut:
            if e.mode == "revision":
                self.chunk({"result": {"header": {"revision": str((1 << 63) - 1)}}})
            return self.chunk({"result": {"canceled": True, "cancel_reason": "permission denied"}})
        self.chunk({"result": {"created": True}})
        if e.mode == "crowd":
            kv = {"key": b64(first + b"x"), "mod_revision": "5"}
            self.chunk({"result": {"events": [{"type": "DELETE", "kv": kv}] * 5000}})
        cut = e.cut
        # As behind a proxy that keeps the connection of a watch that etcd has lost.
        deaf = e.mode.startswith("deaf") and first == names and not e.deaf
        e.deaf = e.deaf or deaf
        while True:
            with lock:
                events = [x for r, k, x in e.events if r >= at and first <= k < end and r <= e.revision]
                at = e.revision + 1
                if e.cut and not cut:
                    return self.chunk({"result": {"canceled": True, "cancel_reason": "permission denied"}})
                if not events:
                    lock.wait(5)
            if e.mode.startswith("flood"):
                time.sleep(0.3)
            if e.mode == "flood_lines":
                for event in events:
                    self.chunk({"result": {"events": [event]}})
            elif events and not deaf:
                self.chunk({"result": {"events": events}})

    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mode, path = self.path.split("/")[1], self.path.split("/")[-1]
        with lock:
            e = etcds.setdefault(mode, Etcd(mode))
            e.calls[path] = e.calls.get(path, 0) + 1
            print(mode, path, flush=True)
            hang = mode == "slow" and path == "keepalive" and e.calls[path] == 1
            e.expire()
            if mode == "token" and path == "authenticate":
                a = {"token": e.token}
            elif mode == "token" and self.headers.get("Authorization") != e.token:
                a = {"error": "etcdserver: invalid auth token", "code": 16}
            elif path == "watch":
                a = None
            else:
                a = e.wrong(path, q) or (e.range(q) if path == "range" else e.whole_txn(q) if path == "txn" else e.lease(path, q))
        if hang:
            time.sleep(20)
        if mode == "burst" and path == "txn":
            time.sleep(0.005)
        try:
            if a is None:
                self.close_connection = True
                return self.watch(e, q)
            body = json.dumps(a).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
