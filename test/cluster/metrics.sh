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
cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - {job_name: xport, static_configs: [{targets: ["$metrics"]}]}
END
prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address="$prometheus" --log.level=warn >"$tmp/prometheus" 2>&1 &
started="$! $started"
# has QUERY - Prometheus has it, and it is above 0.
has() { fetch "http://$prometheus/api/v1/query?query=$1" | grep -q '"value":\[[0-9.]*,"[1-9]'; }
pass "Prometheus has read the counters of the instance" wait_for has 'xport_operations_total%7Bop=%22send%22%7D'
pass "and those of an endpoint" wait_for has 'xport_ep_operations_total%7Bop=%22send%22,backend=%22ucx%22%7D'
pass "and counts on" wait_for has 'increase(xport_data_bytes_total%7Bdirection=%22out%22%7D%5B5s%5D)'
[ $failed = 0 ] || tail -n 20 "$tmp/prometheus"
