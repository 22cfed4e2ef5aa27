/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * directory.h - a directory, at the process that serves it and at its users.
 *
 * The server keeps every entry twice: by name, and in the log, in the order of versions. Each peer has a cursor in the
 * log, at the next entry to send. Changing an entry moves it to the end of the log. So the cost of a slow peer does not
 * depend on how slow it is. Removed entries stay in the log for a while, for peers that have not been notified. A peer
 * that is slower than that gets MISSED.
 *
 * A user answers (HEARD) when the application takes the event. So the window of requests (msgq.h) also limits the
 * events that wait there.
 */
#ifndef SVC_DIRECTORY_H
#define SVC_DIRECTORY_H

#include <stdbool.h>

#include "services/directory_wire.h"
#include "services/engine.h"
#include "services/name_index.h"

enum { SVC_DIR_TOMBS = 4096 };

struct svc_dir_etcd;
struct svc_dir_own;

struct svc_dir_entry {
	struct svc_name name;                     /* first */
	struct svc_dir_entry *newer, *older;      /* the log */
	struct svc_dir_entry *own_next, **own_at; /* of its owner; own_next of a removed one: the next removed */
	struct svc_dir_peer *owner;
	bool gone;
	uint32_t flags;
	struct xport_directory_entry e;
};

/* At the one that serves; `self` stands for its own application. */
struct svc_dir_peer {
	struct svc_msgq_peer *msgq; /* NULL: self */
	struct svc_dir_entry *own;
	uint32_t nown;
	bool watching, missed;
	uint64_t since; /* the version when it began to watch: what was gone by then it need not hear of */
	struct svc_dir_entry *cursor; /* NULL: at the end */
	struct svc_dir_peer *next, **at;
};

struct svc_dir_event {
	struct svc_dir_event *next;
	uint64_t heard;          /* what the directory is to be told when it is taken; 0: nothing */
	struct xport_error *why; /* of a request that failed in etcd; NULL: nothing more than the status */
	struct xport_directory_event e;
};

/* At a user: what it has asked, and what the answer will stand in, so that none is lost when memory runs out. */
struct svc_dir_request {
	struct svc_request request; /* first */
	struct svc_dir_event *done; /* NULL: SVC_DIR_JOIN causes no event */
	int type;
	void *context;
	size_t name_len;
	uint8_t name[SVC_NAME_MAX];
	/* in the queue for etcd: */
	struct svc_dir_own *own; /* PUT: the entry */
	int64_t asked;           /* when, in ms */
	int64_t mod;             /* PUT, REMOVE: the revision that the entry is to have; 0: there is to be none */
	int tries;
};

struct xport_directory {
	struct svc_engine engine;
	bool serve;
	uint32_t max_names, peer_names;
	char node[64];
	struct svc_name_index names; /* serving: entries; watching: what is known */
	struct svc_dir_event *first_event, **last_event;
	unsigned notices; /* events of them that are not DONE */
	unsigned unsaid;  /* of those that were taken, how many the directory does not know of */
	struct xport_directory_info info;
	/* serving */
	uint64_t version;
	struct svc_dir_entry *oldest, *newest;
	struct svc_dir_entry *tomb, **tomb_end;
	unsigned tombs;
	struct svc_dir_peer *peers, self;
	bool untold; /* somebody missed something, and is to be told when there is memory */
	/* using */
	struct svc_msgq_peer *server;
	bool watching;
	struct svc_dir_event *lost; /* where a directory was joined: for XPORT_DIRECTORY_LOST */
	struct svc_dir_etcd *etcd;  /* the entries are in etcd: directory_etcd.h; neither serving nor using */
};

/* ---- directory.c ---- */

/* Queues `e`, of which the caller fills in more. */
struct xport_directory_event *svc_dir_push(struct xport_directory *d, struct svc_dir_event *e, int type, int status,
                                           void *context, uint64_t heard);
/* The same with a new one.  NULL: out of memory. */
struct xport_directory_event *svc_dir_event(struct xport_directory *d, int type, int status, void *context,
                                            uint64_t heard);
void svc_dir_event_name(struct xport_directory_event *e, const void *name, size_t len);
void svc_dir_to_entry(const struct svc_dir_message *m, struct xport_directory_entry *e);
void svc_dir_from_entry(const struct xport_directory_entry *e, struct svc_dir_message *m);
int svc_dir_reply(struct svc_msgq_peer *to, const struct svc_dir_message *m);

/* ---- directory_server.c ---- */

void svc_dir_serve_begin(struct xport_directory *d);
int svc_dir_serve_message(struct xport_directory *d, struct svc_msgq_peer *from, const struct svc_dir_message *m);
/* The peer is gone, and its entries with it. */
void svc_dir_serve_ended(struct xport_directory *d, struct svc_msgq_peer *from);
/* Tells everybody what there is room for. */
void svc_dir_serve_tell(struct xport_directory *d);
/* What its own application asks; the answer is an event. */
int svc_dir_serve_self(struct xport_directory *d, const struct svc_dir_message *m, void *context);
/* Something for its own application to hear of: 1, or 0. */
int svc_dir_serve_next(struct xport_directory *d, struct xport_directory_event *event);
void svc_dir_serve_free(struct xport_directory *d);

/* ---- directory_user.c ---- */

int svc_dir_ask(struct xport_directory *d, struct svc_dir_message *m, void *context, const char *operation);
/* `request`: the one that the message answers, or NULL. */
int svc_dir_user_message(struct xport_directory *d, struct svc_msgq_peer *from, const struct svc_dir_message *m,
                         struct svc_request *request);
/* The request is done, and freed.  *m: what was found. */
void svc_dir_user_done(struct xport_directory *d, struct svc_dir_request *q, int status,
                       const struct svc_dir_message *m);
/* A change, for the application.  XPORT_OK or NO_MEMORY. */
int svc_dir_user_notice(struct xport_directory *d, const struct svc_dir_message *m);
/* What a watcher knows is not right any more. */
void svc_dir_user_forget_all(struct xport_directory *d);
/* The request ends with this status. */
void svc_dir_user_unanswered(void *directory, struct svc_request *request, int status);
/* The one that serves is gone. */
void svc_dir_user_ended(struct xport_directory *d, int status);
void svc_dir_user_free(struct xport_directory *d);

#endif
