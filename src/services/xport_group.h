/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_group.h - the processes of a job: ranks, endpoints and collective operations.  Included by xport_services.h.
 *
 * A group has `members` processes, each with a rank from 0 to members - 1.  The launcher of the job is the source of rank
 * and number, and carries the addresses of the members.  The variable XPORT_GROUP names the source:
 *
 *   root:HOST:PORT   one process serves at this address: rank 0, or the process that calls xport_group_serve
 *   dir:PATH         files in a directory that all members share
 *   etcd:URL,URL...  an etcd cluster of version 3.4 or later, by its JSON gateway; libcurl and libjansson are loaded then.
 *                    XPORT_ETCD_CACERT, _CERT, _KEY, _USER and _PASSWORD_FILE are for TLS and users
 *   pmi1             the PMI-1 protocol of a launcher such as mpiexec.hydra, over the descriptor PMI_FD
 *   pmi2             the PMI-2 protocol of a launcher such as srun --mpi=pmi2, over the descriptor PMI_FD
 *   pmix             PMIx, by libpmix.so.2, which is loaded then; a launcher such as srun --mpi=pmix
 *
 * Or the application gives functions of its own (xport_group_attr.exchange).  If XPORT_GROUP is not set, the source is pmi2
 * if PMI_FD and SLURM_PROCID are set, pmi1 if only PMI_FD is set, and else pmix if PMIX_NAMESPACE is set.  With root, dir and
 * etcd, rank and number are XPORT_GROUP_RANK and XPORT_GROUP_SIZE.  If these are not set, those of a launcher are used:
 * PMI_RANK and PMI_SIZE, SLURM_PROCID and SLURM_NTASKS, or OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.
 *
 * Endpoints.  xport_group_create connects each member with those at distances 1, 2, 4, ... around the ring of ranks: at most
 * 2 log2(members) others.  The collective operations use these endpoints.  xport_group_ep makes the others at their first
 * use.  All endpoints belong to the group: do not close or destroy them.  Their context is the application's.
 *
 * Collective operations: xport_group_fence, _barrier, _broadcast, _allgather and _allreduce.  All members must call the
 * same ones in the same order, with the same arguments where the comment says so.  One at a time is in progress.
 *
 * Failure.  If a member dies or is suspended, every collective operation ends at every other member.  The members that have
 * an endpoint to it notice the loss, and notify the members that they have endpoints to, and so on.  A member that is in a
 * collective operation, or enters one, gets the failure at most 1.5 times XPORT_PEER_TIMEOUT plus 1 second after the death.
 * This bound holds if members make progress: at least one that has an endpoint to the dead member, and those that pass the
 * failure on.  A member makes progress while it is in a function of the group that waits, or polls the instance and passes
 * completions to xport_group_step.  If all who could notice compute without progress, the failure is noticed when one of
 * them next makes progress.  A member that does not come ends an operation only by its time limit.  xport_group_failed has
 * the rank.  All later collective operations of the group return the same status.  Buffers may be
 * reused after the return.  Endpoints to living members stay usable, unless an operation of the group was in progress
 * on one and could not be ended otherwise.  A failed group makes no new endpoints.  Go on with a new group.
 *
 * Different calls.  If members make different calls, or the same one with different lengths or roots, and at least one waits
 * for 100 ms, the group fails with XPORT_ERR_PROTOCOL.  A difference that leaves no member waiting is not always noticed.
 *
 * Messages.  They have tags whose upper 32 bits are those of xport_group_attr.tag.  The application must not send with
 * such tags, nor post a receive that matches them (one with mask 0 does).  An instance may have several groups if each has
 * a tag of its own.
 *
 * Progress.  The group has no thread.  It makes progress while a thread is in a function of the group that waits.  An
 * application that polls the instance itself passes each completion to xport_group_step.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call.  A collective operation, or
 * xport_group_ep, that is called while another one is in progress returns XPORT_ERR_BUSY.
 */
#ifndef XPORT_GROUP_H
#define XPORT_GROUP_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A group, at one of its members. */
typedef struct xport_group xport_group;

enum {
	XPORT_GROUP_KEY_MAX = 255,      /* length of a key of xport_group_put */
	XPORT_GROUP_VALUE_MAX = 1 << 20 /* bytes of a value */
};

/*
 * Functions of the application that exchange the addresses of the members, by any means.  `arg` is the struct's.  Each
 * returns XPORT_OK or a negative xport_status.  xport_group_create calls them, and xport_group_ep calls `get`.  They must not
 * call the group.  This struct does not grow.
 */
struct xport_group_exchange {
	void *arg;
	int rank;    /* of this process */
	int members; /* number of members, at least 1 */
	/* Publishes `len` bytes, at most 512, of this process under the key, a name without spaces.  Called once. */
	int (*put)(void *arg, const char *key, const void *value, size_t len);
	/* Waits until all members have put, at most timeout_ms (-1: no limit).  NULL: `get` waits. */
	int (*fence)(void *arg, int timeout_ms);
	/* Gets the value of a key of any member: at most *len bytes; *len is set.  XPORT_ERR_AGAIN: it is not there yet,
	   the call is repeated. */
	int (*get)(void *arg, const char *key, void *value, size_t *len);
};

/* Options of xport_group_create.  NULL instead of the struct, or a zero field: the variable, or the default. */
struct xport_group_attr {
	size_t size;
	const char *source; /* XPORT_GROUP */
	int members;        /* XPORT_GROUP_SIZE; not 0: `rank` is used, too */
	int rank;           /* XPORT_GROUP_RANK; ignored if members is 0 */
	const char *
		name; /* XPORT_GROUP_NAME: tells groups in one directory or etcd apart; 1 to 63 of A-Z a-z 0-9 . _ -; "group" */
	/* XPORT_GROUP_ADDRESS: what this member listens at, see xport_listen.  Default: "*:0".  It is
	   "127.0.0.1:0" if there is no authentication key and XPORT_AUTH does not allow that, or the root is on loopback. */
	const char *address;
	const struct xport_group_exchange *exchange; /* the application's source; NULL: none */
	uint64_t tag; /* of the messages: the upper 32 bits, the others are 0; default 0x7870677200000000 */
	/* Receives the completions that functions of the group polled, and that are not the group's.  NULL drops them. */
	xport_completion_fn other;
	void *arg; /* for `other` */
};

/*
 * xport_group_create - join the group of this job.
 *
 * All members call it.  It returns when this member is connected with those that it needs for collective operations.
 *
 * timeout_ms  -1: no limit.  The text of XPORT_ERR_TIMEOUT names the missing ranks if the source knows them.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or group is NULL; a field of *attr is not allowed; timeout_ms is below -1
 *   XPORT_ERR_CONFIG         no source was found: the text has what was looked at; a variable has a wrong value; the rank is
 *                            not below the number; the members do not agree on the number or the name
 *   XPORT_ERR_BUSY           another process has this rank; or files of an earlier job are in the directory
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  the source is not supported; *attr sets an unknown field
 *   XPORT_ERR_TIMEOUT        `timeout_ms` passed, here or at another member
 *   XPORT_ERR_PEER_LOST, XPORT_ERR_PEER_CLOSED, XPORT_ERR_UNREACHABLE
 *                            another member died, or gave up
 *   XPORT_ERR_PROTOCOL       the launcher or the root sent what the protocol does not allow
 *   XPORT_ERR_SYSTEM         a system call failed; the launcher or the root ended
 *   an error of xport_listen, xport_connect or xport_wait
 *   an error of a function of attr->exchange, here or at another member
 */
int xport_group_create(xport *x, const struct xport_group_attr *attr, int timeout_ms, xport_group **group) XPORT_CHECK;

/*
 * xport_group_destroy - leave the group.
 *
 * Closes the endpoints of the group, and waits up to `timeout_ms` until their peers have what was sent.  `group` may be
 * NULL.  Call xport_group_barrier before it: members that still need this one would fail.  After an error the group has
 * been destroyed, too.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       another thread is in a call on the group: it is unchanged
 *   XPORT_ERR_INVALID    timeout_ms is below -1: the group is unchanged
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed: a peer may not have received everything
 *   an error of xport_wait
 */
int xport_group_destroy(xport_group *group, int timeout_ms);

/* A group.  Strings are terminated by NUL. */
struct xport_group_info {
	size_t size;
	int rank;         /* of this process */
	int members;      /* number of members */
	int failed;       /* rank of the member that failed; -1: none */
	int status;       /* enum xport_status: why the group failed; XPORT_OK: it has not */
	int endpoints;    /* open endpoints */
	char source[16];  /* as in XPORT_GROUP: "root"; or "exchange" */
	char address[64]; /* of this member's listener */
	char why[256];    /* why the group failed, a sentence; "": it has not */
};

/*
 * xport_group_query - get the rank, the number of members and the state.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_group_query(xport_group *group, struct xport_group_info *info) XPORT_CHECK;

/*
 * xport_group_failed - get the rank of the member that made the group fail.
 *
 * It is the first one that this member noticed or heard of.  Members may name different ranks if several fail at about the
 * same time, or if the network between two living members fails.  After a timeout of a collective operation it is the
 * member that was waited for.
 *
 * Returns the rank, or -1 if the group has not failed or group is NULL.
 */
int xport_group_failed(xport_group *group);

/*
 * xport_group_ep - get the endpoint to a member.
 *
 * At the first use it connects, which needs progress of the group at the other member.  Both members get the same connection.
 *
 * timeout_ms  -1: no limit.  0: only an endpoint that is open already.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY         another thread is in a call on the group
 *   XPORT_ERR_INVALID      group or ep is NULL; rank is this process's, or no rank of the group; timeout_ms is below -1
 *   XPORT_ERR_NO_MEMORY    out of memory
 *   XPORT_ERR_TIMEOUT      `timeout_ms` passed
 *   XPORT_ERR_PEER_CLOSED  the member has left
 *   why the group failed, if the endpoint is not open
 *   an error of xport_connect or xport_wait; why the endpoint ended
 *   an error of the source, as for xport_group_create
 */
int xport_group_ep(xport_group *group, int rank, int timeout_ms, xport_ep **ep) XPORT_CHECK;

/*
 * xport_group_step - take a completion, and continue.
 *
 * Call it with each completion that the application polled, or with NULL.  It accepts connections of members, and passes
 * failures on.
 *
 * Returns 1 if the completion belongs to the group, 0 if it belongs to the application (XPORT_EVENT_LOST and
 * XPORT_EVENT_CLOSED of an endpoint that was open always do), or
 *   XPORT_ERR_INVALID    group is NULL
 */
int xport_group_step(xport_group *group, const struct xport_completion *completion);

/*
 * xport_group_put - give a value to all members.
 *
 * The bytes are copied.  They can be got after the next xport_group_fence.  A later put of the same key replaces the value.
 * If several members put a key before the same fence, the value of the highest rank is kept.  A put during a fence takes
 * effect at the next fence.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL, value only if len is not 0; the key is empty or too long; len is above
 *                        XPORT_GROUP_VALUE_MAX
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_group_put(xport_group *group, const char *key, const void *value, size_t len) XPORT_CHECK;

/*
 * xport_group_fence - exchange what was put.  Collective.
 *
 * Afterwards every member can get all values that were put before the fence.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       another thread is in a call on the group
 *   XPORT_ERR_INVALID    group is NULL; timeout_ms is below -1
 *   XPORT_ERR_NO_MEMORY  out of memory: the group has failed
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed: the group has failed
 *   XPORT_ERR_PROTOCOL   another member called another function: the group has failed
 *   why the group failed
 */
int xport_group_fence(xport_group *group, int timeout_ms) XPORT_CHECK;

/*
 * xport_group_get - get a value.
 *
 * It needs no message and does not wait: xport_group_fence has brought the values.
 *
 * *len is the size of `value` before the call, and the number of bytes of the value after it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS       `value` is too small: *len is set
 *   XPORT_ERR_INVALID      an argument is NULL, value only if *len is not 0
 *   XPORT_ERR_UNREACHABLE  no member had put this key before the last fence
 */
int xport_group_get(xport_group *group, const char *key, void *value, size_t *len) XPORT_CHECK;

/*
 * xport_group_barrier - wait until all members have called it.  Collective.
 *
 * Returns as xport_group_fence.
 */
int xport_group_barrier(xport_group *group, int timeout_ms) XPORT_CHECK;

/*
 * xport_group_broadcast - copy the `len` bytes of one member to all.  Collective.
 *
 * `len` and `root`, the rank of that member, are the same at all members.
 *
 * Returns as xport_group_fence, and
 *   XPORT_ERR_INVALID    also: buf is NULL and len is not 0; root is no rank of the group
 *   XPORT_ERR_PROTOCOL   also: the members have different lengths
 */
int xport_group_broadcast(xport_group *group, void *buf, size_t len, int root, int timeout_ms) XPORT_CHECK;

/*
 * xport_group_allgather - collect the same number of bytes of each member at all members.  Collective.
 *
 * `all` has room for `len` bytes of each member, in the order of the ranks.  `mine` may be in its place in `all`.
 *
 * Returns as xport_group_broadcast.
 */
int xport_group_allgather(xport_group *group, const void *mine, size_t len, void *all, int timeout_ms) XPORT_CHECK;

/* The type of the elements of xport_group_allreduce. */
typedef enum xport_group_type {
	XPORT_GROUP_INT32 = 1,
	XPORT_GROUP_INT64 = 2,
	XPORT_GROUP_UINT64 = 3,
	XPORT_GROUP_FLOAT = 4,
	XPORT_GROUP_DOUBLE = 5
} xport_group_type;

/* What xport_group_allreduce computes.  Sums of integers wrap around. */
typedef enum xport_group_op { XPORT_GROUP_SUM = 1, XPORT_GROUP_MIN = 2, XPORT_GROUP_MAX = 3 } xport_group_op;

/*
 * xport_group_allreduce - combine arrays of all members, element by element.  Collective.
 *
 * `count`, `type` (enum xport_group_type) and `op` (enum xport_group_op) are the same at all members.  `result` gets the
 * result; it may be `mine`, but not overlap it otherwise.  All members get the same bits.  The order in which elements are
 * added depends on the number of members, the count and the size of an element only.
 *
 * Returns as xport_group_broadcast, and
 *   XPORT_ERR_INVALID    also: type or op is unknown; an array is NULL and count is not 0, or is longer than the address space
 */
int xport_group_allreduce(xport_group *group, const void *mine, void *result, size_t count, int type, int op,
                          int timeout_ms) XPORT_CHECK;

/*
 * xport_group_serve - be the root of a group, without being a member.
 *
 * Serves the start of one group of `members` processes whose source is "root:" and this address, and returns when all have
 * the addresses of all.  `name` is that of the group; NULL: "group".  It needs no instance.
 *
 * Any thread may call it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID      address is NULL; members is below 1; the name or timeout_ms is not allowed
 *   XPORT_ERR_ADDRESS      address is malformed or cannot be bound
 *   XPORT_ERR_NO_MEMORY    out of memory
 *   XPORT_ERR_TIMEOUT      `timeout_ms` passed: the text names the missing ranks
 *   XPORT_ERR_UNREACHABLE  the name does not resolve
 *   XPORT_ERR_SYSTEM       a system call failed
 */
int xport_group_serve(const char *address, int members, const char *name, int timeout_ms) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
