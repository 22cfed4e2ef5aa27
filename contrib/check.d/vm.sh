# SPDX-License-Identifier: BSD-3-Clause
# The virtual machine of contrib/rdma-vm, for the stages vm and vm-whole.

# have_vm WHAT COMMAND... - whether a machine starts: runs a command that does nothing.  If there can be no machine, says why.
have_vm() {
	started=$1
	shift
	said=$out/$stage-start
	"$top/contrib/setup" vm >"$said" 2>&1 || { cannot "no virtual machine: contrib/setup vm: $(tail -n 1 "$said")"; return 1; }
	waited "$@" >"$said" 2>&1
	rc=$?
	[ $rc != 77 ] || { cannot "no virtual machine: $(sed -n 's/^rdma-vm: skipped: //p' "$said")"; return 1; }
	check "$started" shown $rc "$said"
}

# prepare_vm - builds what runs in the machine.  Sets dir and vm; wire and apart for a real wire between two namespaces.
prepare_vm() {
	dir=$top/build/main
	kernel_log=$out/vm-kernel.log
	vm="env H_TIMEOUT_SCALE=4 $top/contrib/rdma-vm run --out $out --log $kernel_log"
	wire="$top/contrib/rdma-vm.d/wire"
	apart="--apart left,10.81.0.1,verbs:siw-left right,10.81.0.2,verbs:siw-right"
	# Peers on different addresses authenticate with a key.
	rm -f "$out/key"
	(umask 077 && head -c 32 /dev/urandom | base64 >"$out/key")
	keyed="env XPORT_AUTH_KEY_FILE=$out/key"
	check "build" "$top/contrib/build" "$dir" --enable-werror &&
		check "build the suite" flock "$dir" make -C "$dir" -j2 test/conform_check test/diff_check test/remote_put test/xport_demo test/xport_info test/open_as test/stalls test/xport_perf test/ucx/ucx_be_test \
			test/marks test/near &&
		have_vm "the virtual machine starts" $vm --timeout 60 -- true
}

# faulty FAULT SEEDS - random programs of 2000 operations over iWARP, on a wire with that fault in both directions.
faulty() {
	suite "wire-$(echo "$1" | tr -c 'a-z0-9\n' -)" $keyed $vm --devices none --timeout 600 -- \
		"$wire" "$1" "$dir/test/diff_check" --seeds "$2" --ops 2000 $apart
}
