# SPDX-License-Identifier: BSD-3-Clause
# Groups under Slurm: a part of test/cluster/run.

slurm=$tmp/slurm
host=$(hostname -s)
# slurmd puts the sockets of its steps below: the path must be short.
mkdir -p "$slurm/state" "$slurm/spool" "$slurm/tmp" "$slurm/munge"
chmod 755 "$tmp" "$slurm"
chmod 700 "$slurm/munge"
(umask 077 && head -c 128 /dev/urandom >"$slurm/munge/key")
cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$slurm/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0
KillWait=2
TmpFS=$slurm/tmp
NodeName=$host NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=p Nodes=$host Default=YES State=UP
END
export SLURM_CONF="$slurm/slurm.conf"
munged --foreground --force --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" \
	--pid-file="$slurm/munge/pid" --log-file="$slurm/munge/log" --seed-file="$slurm/munge/seed" >"$slurm/munged" 2>&1 &
started="$! $started"
wait_for test -S "$slurm/munge/socket"
slurmctld -D >"$slurm/slurmctld" 2>&1 &
started="$! $started"
slurmd -D -N "$host" >"$slurm/slurmd" 2>&1 &
started="$! $started"
is_idle() { sinfo -h -o %T | grep -qx idle; }
pass "Slurm starts" wait_for is_idle
listeners() { ss -Hltn "( sport = :$port or sport = :$((port + 1)) )" | awk '{ print $4 }' | LC_ALL=C sort | tr '\n' ' '; }
only_loopback() { [ "$(listeners)" = "127.0.0.1:$port 127.0.0.1:$((port + 1)) " ] || { listeners; return 1; }; }
pass "and listens on loopback only" only_loopback
[ $failed = 0 ] || tail -n 20 "$slurm/munged" "$slurm/slurmctld" "$slurm/slurmd"

pass "16 members by srun --mpi=pmi2" joined 16 pmi2 srun --mpi=pmi2 -n 16 "$member" 30000
pass "16 members by srun --mpi=pmix" joined 16 pmix srun --mpi=pmix -n 16 "$member" 30000
pass "4 members by srun --mpi=pmi2 and PMI-1" joined 4 pmi1 env XPORT_GROUP=pmi1 srun --mpi=pmi2 -n 4 "$member" 30000
pass "PMIx once" says "has left the launcher.s PMIx" srun --mpi=pmix -n 1 "$member" 5000 2
pass "srun without PMI" says "SLURM_PROCID is set: use srun --mpi=pmi2 or --mpi=pmix" srun --mpi=none -n 1 "$member" 1000
pass "PMI-2 once" says "has left the launcher's PMI" srun --mpi=pmi2 -n 1 "$member" 5000 2

# One rank never comes: the others end at their limit.
for kind in pmi2 pmix; do
	pass "a rank that never comes, by $kind" \
		says "create: XPORT_ERR_TIMEOUT: .*a process that has not called xport_group_create" \
		srun --mpi=$kind -K0 -n 3 sh -c '[ "$SLURM_PROCID" != 2 ] || exec sleep 4; exec "$member" 1500'
done
pass "PMIx without a server" says "XPORT_ERR_SYSTEM: .*PMIx_Init failed" \
	env PMIX_NAMESPACE=none PMIX_RANK=0 PMIX_SERVER_URI41="none.0;tcp4://127.0.0.1:1" "$member" 3000
pass "pmix outside of a launcher" says "XPORT_ERR_CONFIG: .*needs PMIX_NAMESPACE" env XPORT_GROUP=pmix "$member" 1000
# job JOB - Slurm would start it, without starting it now. It says when on stderr.
job() { (cd "$tmp" && sbatch --test-only "$1" true) 2>&1 | grep -e 'Job [0-9]* to start at'; }
pass "the job script of contrib/deploy" job "$top_srcdir/contrib/deploy/job.slurm"
sed 's/--ntasks=16/--ntasks=many/' "$top_srcdir/contrib/deploy/job.slurm" >"$slurm/job"
says_no() { ! job "$1"; }
pass "not one with a wrong option" says_no "$slurm/job"
