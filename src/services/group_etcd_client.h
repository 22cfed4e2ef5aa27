/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_etcd_client.h - an etcd cluster, by the JSON gateway of its members (etcd 3.4 and later).
 *
 * A call goes to the member that answered last, and to the next one if it does not answer.  Each call returns XPORT_OK, or
 * XPORT_ERR_AGAIN if no member has answered (svc_etcd_why says why), or an error that it has described.  A call ends at
 * `until`, as svc_now_ms counts; -1: at the limits of its requests.
 */
#ifndef SVC_GROUP_ETCD_CLIENT_H
#define SVC_GROUP_ETCD_CLIENT_H

#include "services/group_etcd_wire.h"

struct svc_etcd;

/* `argument`: URLs with commas between them. The variables XPORT_ETCD_* are read. */
int svc_etcd_open(const char *argument, struct svc_etcd **etcd, const char *operation);
void svc_etcd_close(struct svc_etcd *e);
/* Why no member has answered; "": one has. */
const char *svc_etcd_why(const struct svc_etcd *e);

/* *seconds: asked for, and granted. */
int svc_etcd_lease_new(struct svc_etcd *e, int64_t *lease, int *seconds, int64_t until);
/* *alive is false: the lease has expired. */
int svc_etcd_lease_keep(struct svc_etcd *e, int64_t lease, bool *alive, int64_t until);
int svc_etcd_lease_end(struct svc_etcd *e, int64_t lease, int64_t until);

/*
 * Puts the entry under the lease if its revision is still entry->revision, 0: if there is none. *put is false: there is
 * another one, which replaces *entry. UNREACHABLE, not described: the lease has expired.
 */
int svc_etcd_put(struct svc_etcd *e, struct svc_etcd_entry *entry, int64_t lease, bool *put, int64_t until);
/* Gets two entries, of one moment. revision 0: there is none. */
int svc_etcd_get_two(struct svc_etcd *e, struct svc_etcd_entry *first, struct svc_etcd_entry *second, int64_t until);
/*
 * Gives `take` the entries whose keys begin with `prefix`. `take` returns XPORT_OK, or an error that it has described. AGAIN,
 * too: there are more than `most` entries.
 */
int svc_etcd_list(struct svc_etcd *e, const char *prefix, int most,
                  int (*take)(void *arg, const struct svc_etcd_entry *entry), void *arg, int64_t until);
/* The number of entries whose keys begin with `prefix`. */
int svc_etcd_count(struct svc_etcd *e, const char *prefix, int64_t *n, int64_t until);

#endif
