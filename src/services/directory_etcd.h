/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * directory_etcd.h - a directory whose entries are in an etcd cluster.
 *
 *	xport/directory/NAME/name/...	each entry, as a message SVC_DIR_CHANGED, under the lease of its owner
 *	xport/directory/NAME/all/...	the same, if it is for all (XPORT_DIRECTORY_BROADCAST)
 *
 *	xport/directory/NAME/seq/LEASE	how many transactions with puts this lease has had: the version of this key
 *
 * One transaction writes both, so the second is there exactly if the first one has the flag. The version of an entry is etcd's
 * revision. A process without xport_directory_watch watches all/, another one name/.
 *
 * A member that is suspended may apply a request long after another one has applied its repetition. So a transaction with puts
 * compares and raises the version of seq/LEASE, and a removal compares the revision of its entry.
 *
 * Nothing waits: a request is sent when the one before has ended, and `work` moves it. What comes first:
 *
 *	the revision - the renewal of the lease - in turns: the queue, and what goes on by itself (entries to be put again,
 *	a page of the entries) - a probe of the member that the watch is at
 *
 * Each kind of them has a pause of its own, so one that fails for good does not stop the others.
 */
#ifndef SVC_DIRECTORY_ETCD_H
#define SVC_DIRECTORY_ETCD_H

#include "services/directory.h"
#include "services/etcd_async.h"

enum {
	SVC_DIR_ETCD_PREFIX_MAX = 16 + 63 + 1 + 5, /* xport/directory/ NAME / name/ */
	SVC_DIR_ETCD_KEY_MAX = SVC_DIR_ETCD_PREFIX_MAX + SVC_NAME_MAX,
	SVC_DIR_ETCD_TRIES = 5,
	SVC_DIR_ETCD_BATCH = 32 /* puts in one transaction; etcd allows 128 operations */
};

/* An entry of this process. */
struct svc_dir_own {
	struct svc_name name; /* first */
	bool put;             /* it is in etcd, under the lease */
	int64_t mod;          /* its revision there; 0: none */
	int64_t again_at;     /* not put: when it may be put again */
	unsigned refusals;    /* in a row */
	size_t len;
	uint8_t value[SVC_DIR_MAX];
};

/* An entry as etcd has it. */
struct svc_dir_found {
	uint8_t name[SVC_NAME_MAX], value[SVC_DIR_MAX];
	size_t value_len;
	int64_t lease;
	struct svc_dir_message m; /* lies in them; `version` is the revision */
};

enum svc_dir_call {
	SVC_DIR_CALL_REVISION,
	SVC_DIR_CALL_GRANT,
	SVC_DIR_CALL_KEEP,
	SVC_DIR_CALL_AGAIN, /* puts an entry again */
	SVC_DIR_CALL_PAGE,
	SVC_DIR_CALL_PROBE,
	SVC_DIR_CALL_FRONT, /* of the queue */
	SVC_DIR_CALLS
};

struct svc_dir_etcd {
	struct svc_etcd *etcd;
	struct svc_etcd_async *async;
	char names[SVC_DIR_ETCD_PREFIX_MAX + 1], all[SVC_DIR_ETCD_PREFIX_MAX + 1];
	enum svc_dir_call call;        /* in flight */
	int64_t start_at, run_at_us;   /* when the next one may start; when `work` moves what is in flight */
	int64_t try_at[SVC_DIR_CALLS]; /* when one of this kind may start */
	int fails[SVC_DIR_CALLS];      /* in a row that no member has answered */
	int silent;                    /* the same, of any kind */
	bool queue_turn;               /* the queue is next */
	struct svc_dir_request *queue, **queue_end;
	unsigned queued, sent; /* requests in it; of the front ones, those in flight */
	int64_t popped_at;     /* when the last one was answered */
	unsigned batch_max;
	int64_t lease, renew_at;                       /* 0: none */
	int asked_ttl_s, ttl_s;                        /* wanted, and granted */
	struct svc_name_index own;                     /* struct svc_dir_own */
	unsigned away;                                 /* of them, those that are to be put again */
	struct svc_dir_own *again[SVC_DIR_ETCD_BATCH]; /* those in flight */
	unsigned nagain;
	int64_t seq;      /* the version of seq/LEASE */
	int64_t seen;     /* the highest revision of an answer */
	char cluster[24]; /* its id; "": unknown */
	int64_t revision; /* that the watch has reached; -1: unknown */
	int64_t watch_at, watch_began, probe_at, answered_at;
	int64_t heard_at, owed_at; /* when the watch said something; since when it owes something, 0: nothing */
	int64_t looked_at;         /* when it was last asked whether it owes something */
	unsigned watch_fails;
	bool watch_up, heard;     /* etcd has begun the watch; all/ has had an entry */
	int64_t written;          /* see svc_dir_etcd_wrote */
	struct svc_json *message; /* of the watch, which is not handed over yet */
	size_t message_at;
	bool behind;  /* the watch was held back, and what came meanwhile is not read yet */
	bool listing; /* the entries are read, before the watch begins */
	int64_t list_revision;
	uint8_t *list_from; /* a key; NULL: the first one */
	size_t list_len;
	unsigned page_entries;         /* in a page */
	bool page_keys;                /* without values: the next one is too long */
	bool missed;                   /* the application is to get MISSED, when there is memory */
	uint64_t strange;              /* entries that are none of a directory */
	char why[300], watch_why[300]; /* the last error of a request, and of the watch; "": none since */
};

/* ---- directory_etcd.c ---- */

/* `argument`: URLs. */
int svc_dir_etcd_open(struct xport_directory *d, const char *argument, const char *name, int ttl_s);
/* Asks; *q was made of *m, and belongs to it after XPORT_OK. */
int svc_dir_etcd_ask(struct xport_directory *d, struct svc_dir_request *q, const struct svc_dir_message *m,
                     const char *operation);
void svc_dir_etcd_work(struct xport_directory *d);
int svc_dir_etcd_timeout(const struct xport_directory *d);
/* Ends the lease, in at most a second. */
void svc_dir_etcd_free(struct xport_directory *d);
/* Why etcd does not answer; "": it does. */
const char *svc_dir_etcd_why(const struct xport_directory *d);
/* A request has failed: none of its kind is started for a while. */
void svc_dir_etcd_failed(struct svc_dir_etcd *s, enum svc_dir_call call, int status);
/* Copies the text of the last error. */
void svc_dir_etcd_keep_why(char why[300], int status);
/* Starts a request, until then at the latest. */
int svc_dir_etcd_start(struct svc_dir_etcd *s, enum svc_dir_call call, const char *path, char *body, int64_t until);
/* Whether what a watcher knows is as good as an answer of etcd. */
bool svc_dir_etcd_fresh(const struct xport_directory *d);

/* ---- directory_etcd_queue.c ---- */

/* Ends the front request. */
void svc_dir_etcd_pop(struct xport_directory *d, int status, const struct svc_dir_message *m);
/* Ends those that etcd has not answered. */
void svc_dir_etcd_expire(struct xport_directory *d);
/* Starts the front ones. */
int svc_dir_etcd_front(struct xport_directory *d);
/* The front ones were answered, or refused. */
void svc_dir_etcd_front_done(struct xport_directory *d, int status, const struct svc_json *answer);

/* ---- directory_etcd_own.c ---- */

extern const struct svc_etcd_use svc_dir_etcd_use;

/* All entries of this process have vanished with their lease: they are put again. */
void svc_dir_etcd_lease_gone(struct svc_dir_etcd *s);
int svc_dir_etcd_lease_granted(struct svc_dir_etcd *s, const struct svc_json *answer);
/* The outcome of a renewal. */
void svc_dir_etcd_lease_kept(struct svc_dir_etcd *s, int status, const struct svc_json *answer);
/* Takes an entry out, and frees it. */
void svc_dir_etcd_own_drop(struct svc_dir_etcd *s, struct svc_dir_own *own);
/* All entries are put again, unless they are there: etcd may be another one. */
void svc_dir_etcd_own_doubt(struct svc_dir_etcd *s);
/* Takes up to batch_max entries that are to be put again into s->again, those first that have waited longest. */
bool svc_dir_etcd_own_away(struct svc_dir_etcd *s);
/* They were answered, or refused. */
void svc_dir_etcd_again_done(struct xport_directory *d, int status, const struct svc_json *answer);
/* What a transaction found instead of what it compared. *lease 0: no entry. */
int svc_dir_etcd_refused(const char *prefix, const struct svc_json *response, struct svc_dir_found *f);
/*
 * The transaction with puts: OK: each has an outcome.  AGAIN: it is to be sent again, since s->seq was wrong.
 * UNREACHABLE: the lease has expired.
 */
int svc_dir_etcd_txn(struct svc_dir_etcd *s, int status, const struct svc_json *answer, unsigned n);
/* Its put i.  OK: it is done.  AGAIN: it is to be sent again, and *mod says what to compare. */
int svc_dir_etcd_put_outcome(const struct svc_dir_etcd *s, const struct svc_json *answer, unsigned i,
                             const struct svc_dir_own *own, int64_t *mod);

/* ---- directory_etcd_watch.c ---- */

/* What the watch has brought, and whether it must begin, or begin again. */
void svc_dir_etcd_watch(struct xport_directory *d);
/* The request for a page of the entries; NULL: out of memory. */
char *svc_dir_etcd_page_body(const struct svc_dir_etcd *s);
/* A page has come. */
int svc_dir_etcd_page(struct xport_directory *d, const struct svc_json *answer);
/* Changes were dropped, or may have been. */
void svc_dir_etcd_miss(struct xport_directory *d);
/* Begins to read the entries. */
void svc_dir_etcd_list(struct svc_dir_etcd *s);
/* Forgets where the reading is. */
void svc_dir_etcd_list_from(struct svc_dir_etcd *s);
/* A page was longer than is allowed: the next one is shorter.  False: it cannot be. */
bool svc_dir_etcd_page_less(struct svc_dir_etcd *s);
/* Ends the watch, and drops what it has brought. */
void svc_dir_etcd_watch_end(struct svc_dir_etcd *s);
/* Begins anew: with MISSED, and with what is there now. */
void svc_dir_etcd_anew(struct xport_directory *d);
/* Whether the application has so many events to take that no more are fetched. */
bool svc_dir_etcd_crowded(const struct xport_directory *d);

/* ---- directory_etcd_wire.c ---- */

/* The bodies of requests: malloc'ed; NULL: out of memory. */
char *svc_dir_etcd_body(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Keys with a prefix: in base64, for at most SVC_DIR_ETCD_KEY_MAX bytes; and the end of its range. */
enum { SVC_DIR_ETCD_KEY_TEXT = 4 * (SVC_DIR_ETCD_KEY_MAX / 3 + 2) };
void svc_dir_etcd_key(const char *prefix, const void *name, size_t len, char *text);
void svc_dir_etcd_end(const char *prefix, char *text);
/* Puts entries, each if its revision is still mod[i].  mod[i] 0: if the entry does not exist. */
char *svc_dir_etcd_put_body(const struct svc_dir_etcd *s, struct svc_dir_own *const *own, const int64_t *mod,
                            unsigned n);
/* Removes an entry, if its revision is still `mod`. */
char *svc_dir_etcd_remove_body(const struct svc_dir_etcd *s, const void *name, size_t len, int64_t mod);
char *svc_dir_etcd_find_body(const struct svc_dir_etcd *s, const void *name, size_t len);
/* Reads an entry below `prefix`. False: a directory did not write it. */
bool svc_dir_etcd_read(const char *prefix, const struct svc_json *kv, struct svc_dir_found *found);
/* Reads a key below `prefix`. Returns the length of the name in it, or 0. */
size_t svc_dir_etcd_read_key(const char *prefix, const struct svc_json *kv, uint8_t *name);
/* The revision of a key; 0: it has no revision. */
int64_t svc_dir_etcd_mod(const struct svc_json *kv);
/* The revision of an answer, or 0. */
int64_t svc_dir_etcd_revision(const struct svc_json *answer);

/* svc_dir_etcd_wrote - keep the highest revision of a change by this process, or of an entry that it found. */
static inline void svc_dir_etcd_wrote(struct svc_dir_etcd *s, int64_t revision)
{
	if (revision > s->written)
		s->written = revision;
}

#endif
