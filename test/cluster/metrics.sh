# SPDX-License-Identifier: BSD-3-Clause
# Counters that a real Prometheus reads: a part of test/cluster/run.

unset XPORT_GROUP XPORT_ETCD_CACERT XPORT_ETCD_CERT XPORT_ETCD_KEY XPORT_ETCD_USER XPORT_ETCD_PASSWORD_FILE
metrics=127.0.0.1:$((port + 50)) prometheus=127.0.0.1:$((port + 51))
"$top_builddir/test/metrics" $((port + 50)) >"$tmp/metrics" 2>&1 &
started="$! $started"
fetch() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "$@"; }
wait_for fetch "http://$metrics/metrics"
fetch "http://$metrics/metrics" >"$tmp/page"
# promtool reads the older format, in which the name of a counter has _total in the comments, too.
checked() {
	sed '/^# EOF/d' "$1" | awk '/^# TYPE/ && $4 == "counter" { c[$3] = 1; $3 = $3 "_total" } /^# HELP/ && c[$3] { $3 = $3 "_total" } { print }' |
		promtool check metrics 2>&1 && echo good
}
only_good() { [ "$(checked "$1")" = good ] || { checked "$1"; return 1; }; }
pass "promtool has nothing to say" only_good "$tmp/page"
sed '0,/_total/s//_sum/' "$tmp/page" >"$tmp/planted"
fail "a counter without its name is seen" "no help text" only_good "$tmp/planted"
# A process that publishes into a directory, with latencies, and the exporter that serves it.
mkdir "$tmp/published"
XPORT_METRICS_DIR="$tmp/published" XPORT_LATENCY=1 "$top_builddir/test/metrics_publish" >"$tmp/publisher" 2>&1 &
publisher=$!
started="$publisher $started"
exporter=127.0.0.1:$((port + 52))
"$top_builddir/test/xport_exporter" --listen "$exporter" "$tmp/published" >"$tmp/exporter" 2>&1 &
started="$! $started"
wait_for fetch "http://$exporter/metrics"
serves() { fetch "http://$exporter/metrics" | grep "$1"; }
pass "the exporter serves the counters of an endpoint" wait_for serves '^xport_ep_latency_seconds_count{program="metrics_publish",'
fetch "http://$exporter/metrics" >"$tmp/exported"
pass "promtool has nothing to say of the exporter's page" only_good "$tmp/exported"
cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - {job_name: xport, static_configs: [{targets: ["$metrics"]}]}
  - {job_name: exporter, static_configs: [{targets: ["$exporter"]}]}
END
prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address="$prometheus" --log.level=warn >"$tmp/prometheus" 2>&1 &
started="$! $started"
# has QUERY - Prometheus has it, and it is above 0.
has() { fetch "http://$prometheus/api/v1/query?query=$1" | grep -q '"value":\[[0-9.]*,"[1-9]'; }
pass "Prometheus has read the counters of the instance" wait_for has 'xport_operations_total%7Bop=%22send%22%7D'
pass "and those of an endpoint" wait_for has 'xport_ep_operations_total%7Bop=%22send%22,backend=%22ucx%22%7D'
pass "and counts on" wait_for has 'increase(xport_data_bytes_total%7Bdirection=%22out%22%7D%5B5s%5D)'
pass "and those of the process that publishes" wait_for has 'xport_operations_total%7Bop=%22send%22,program=%22metrics_publish%22,job=%22exporter%22%7D'
# quantile - Prometheus has the 99th percentile of its sends, in seconds: above 0 and below 10.
quantile() {
	fetch "http://$prometheus/api/v1/query?query=histogram_quantile(0.99,sum%20by(le,program)(rate(xport_latency_seconds_bucket%7Bop=%22send%22%7D%5B5s%5D)))" >"$tmp/quantile"
	python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))["data"]["result"]
sys.exit(not (len(r) == 1 and r[0]["metric"] == {"program": "metrics_publish"} and 0 < float(r[0]["value"][1]) < 10))' "$tmp/quantile"
}
pass "and the 99th percentile of its latencies" wait_for quantile
# A killed one disappears: its file stays, but its lock does not.
kill -KILL $publisher
wait $publisher 2>/dev/null
gone() { fetch "http://$prometheus/api/v1/query?query=xport_operations_total%7Bprogram=%22metrics_publish%22%7D" | grep -q '"result":\[\]'; }
pass "which disappear when it is killed" wait_for gone
[ $failed = 0 ] || tail -n 20 "$tmp/prometheus"
