/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_prepared.h - strided transfers that are checked once and posted many times.  Included by xport_services.h.
 *
 * A column of a matrix, or a block of a larger one, is many short pieces at equal distances.  Describe it by runs, and
 * prepare it once.  Each post is then one call for all pieces: xport_putv or xport_getv with lists that lie ready.
 *
 * Thread rule.  That of the instance.  Threads may query and post transfers of one set at the same time if the instance
 * locks.  xport_prepared_add and xport_prepared_destroy must not run while another thread uses the set.
 */
#ifndef XPORT_PREPARED_H
#define XPORT_PREPARED_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Transfers between one piece of local memory and one remote region. */
typedef struct xport_prepared xport_prepared;

/* One level of repetition.  Its layout is fixed. */
struct xport_prepared_level {
	uint64_t count;         /* how often, 1 or more; 0: 1 */
	uint64_t local_stride;  /* from the beginning of one to that of the next, in the local memory */
	uint64_t remote_stride; /* the same in the remote region */
};

/*
 * Pieces at equal distances, in two levels: level[1].count groups of level[0].count pieces.  For example, a block of 64
 * rows of 64 bytes in matrices with rows of 4096 bytes is {.length = 64, .level[0] = {64, 4096, 4096}}.
 */
struct xport_prepared_run {
	uint64_t local;              /* where the first piece begins, from the start of the local memory */
	uint64_t remote;             /* the same in the remote region */
	uint64_t length;             /* bytes of a piece, 1 or more */
	struct xport_prepared_level level[2]; /* [0]: the pieces of a group; [1]: the groups */
};

/*
 * xport_prepared_create - make a set of prepared transfers, which is empty.
 *
 * The transfers are between the `length` bytes at `base` and the region of `rkey`, over the endpoint `ep`.  `mr` is the
 * local region that holds these bytes; NULL: they are not registered.  The endpoint, the key, the region and the memory
 * must remain valid until xport_prepared_destroy.  *set is set on success only.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x, ep, rkey, base or set is NULL; length is 0; the bytes are not inside mr
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_prepared_create(xport *x, xport_ep *ep, xport_rkey *rkey, void *base, size_t length, xport_mr *mr,
                          xport_prepared **set) XPORT_CHECK;

/*
 * xport_prepared_add - prepare a transfer of `count` runs.
 *
 * `entry_size` is sizeof(struct xport_prepared_run).  The bounds of all pieces are checked.  If a piece begins where the one
 * before it ends, the two are merged, on each side by itself.  Pieces may overlap.  Where the written ones do, the bytes of
 * any one of them remain.
 *
 * *index is the number of the transfer, counted from 0.  The runs are not needed after the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        an argument is NULL; count is 0; entry_size is too small; a length is 0; there are more than
 *                            1048576 pieces after merging
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  a run sets a field that this version does not know
 *   XPORT_ERR_BOUNDS         a piece is outside the local memory or the remote region; the text names its run
 */
int xport_prepared_add(xport_prepared *set, const struct xport_prepared_run *runs, size_t entry_size, size_t count,
                       size_t *index) XPORT_CHECK;

/* What a prepared transfer is. */
struct xport_prepared_info {
	size_t size;            /* in: sizeof(struct xport_prepared_info) */
	uint64_t bytes;         /* of all pieces */
	uint64_t local_pieces;  /* after merging */
	uint64_t remote_pieces; /* after merging */
	uint64_t lists;         /* calls of xport_putv or xport_getv for one post: 1 for up to xport_info.iov_max pieces */
};

/*
 * xport_prepared_query - get the number of bytes, pieces and lists of a transfer.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    set or info is NULL; info->size is wrong; no transfer has this index
 */
int xport_prepared_query(const xport_prepared *set, size_t index, struct xport_prepared_info *info) XPORT_CHECK;

/*
 * xport_prepared_put - write the local pieces of a transfer to its remote pieces.
 *
 * There is one completion, with opt->context.  If the transfer has one list, xport_putv makes the completion.  If it has
 * several, they are quiet, xport_flush makes the completion, and XPORT_LOCAL has no effect.  With XPORT_QUIET there is no
 * completion.
 *
 * *posted counts the lists that are posted.  Set it to 0 before the first call.  After XPORT_ERR_AGAIN, poll, and call again
 * with the value that is there.  After XPORT_OK it is 0.  Between these calls do not call xport_flush on the endpoint, and
 * post no other transfer of several lists: their completion would report a failure of this transfer, and its own would not.
 * `posted` may be NULL if the transfer has one list.
 *
 * opt  flags, context and deadline_ms are used, as by xport_putv.  NULL: none
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          the queue is full
 *   XPORT_ERR_INVALID        set is NULL; no transfer has this index; posted is NULL or wrong; opt->size is wrong
 *   XPORT_ERR_NOT_SUPPORTED  a field of opt that this version does not know is not zero
 *   another error of xport_putv or xport_flush; *posted lists were accepted before, and the next xport_flush covers them
 */
int xport_prepared_put(xport_prepared *set, size_t index, const struct xport_opt *opt, size_t *posted) XPORT_CHECK;

/*
 * xport_prepared_get - read the remote pieces of a transfer into its local pieces.
 *
 * Does what xport_prepared_put does, by xport_getv.
 *
 * Returns the statuses of xport_prepared_put, with xport_getv for xport_putv.
 */
int xport_prepared_get(xport_prepared *set, size_t index, const struct xport_opt *opt, size_t *posted) XPORT_CHECK;

/*
 * xport_prepared_destroy - free a set.
 *
 * Operations in flight are not affected.  NULL is allowed.
 */
void xport_prepared_destroy(xport_prepared *set);

#ifdef __cplusplus
}
#endif

#endif
