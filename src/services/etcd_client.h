/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd_client.h - an etcd cluster, by the JSON gateway of its members (etcd 3.4 and later).
 *
 * A call goes to the member that answered last, and to the next one if it does not answer.  Each call returns XPORT_OK, or
 * XPORT_ERR_AGAIN if no member has answered (svc_etcd_why says why), or an error that it has described.  A call ends at
 * `until`, as svc_now_ms counts; -1: at the limits of its requests.
 */
#ifndef SVC_ETCD_CLIENT_H
#define SVC_ETCD_CLIENT_H

#include "services/etcd_wire.h"

struct svc_etcd;

/* Who uses etcd, for its errors. */
struct svc_etcd_use {
	const char *name;     /* such as "group" */
	const char *variable; /* that has the URLs */
	const char *prefix;   /* of its keys */
	const char *stranger; /* hint about an entry of somebody else */
};

/* `argument`: URLs with commas between them. The variables XPORT_ETCD_* are read. *use must last. */
int svc_etcd_open(const char *argument, const struct svc_etcd_use *use, struct svc_etcd **etcd, const char *operation);
void svc_etcd_close(struct svc_etcd *e);
/* Why no member has answered; "": one has. */
const char *svc_etcd_why(const struct svc_etcd *e);
/* Forgets the token: the next request gets one. */
void svc_etcd_logout(struct svc_etcd *e);
bool svc_etcd_login_needed(const struct svc_etcd *e);
/* Whether the last answer was longer than is allowed; its status is XPORT_ERR_PROTOCOL. */
bool svc_etcd_too_long(const struct svc_etcd *e);

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
