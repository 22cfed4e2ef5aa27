/* SPDX-License-Identifier: BSD-3-Clause */
/* group_pmi.h - what the sources pmi1 and pmi2 share: the launcher's socket, requests and answers, and cards in pieces. */
#ifndef SVC_GROUP_PMI_H
#define SVC_GROUP_PMI_H

#include "services/group_pmi_wire.h"
#include "services/group_source.h"

enum { SVC_PMI_KEY_BYTES = 32 };

struct svc_pmi;

/* One version of the protocol. */
struct svc_pmi_version {
	const char *speaks; /* "PMI-1, as mpiexec.hydra does" */
	int (*frame)(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used);
	bool (*word)(const char *text, const char *key, char *value, size_t size);
	/* Puts, and gets, a piece of a card. */
	int (*put)(struct svc_pmi *p, int piece, const char *value);
	int (*get)(struct svc_pmi *p, int rank, int piece, char *value, size_t size);
};

struct svc_pmi {
	struct svc_group_source head;
	const struct svc_pmi_version *version;
	int fd;
	bool initialised, in_barrier;
	bool asked;   /* something was sent */
	bool broken;  /* an answer was wrong */
	bool claimed; /* it is that of PMI_FD */
	int owed;     /* answers that did not come in time: each is dropped before the next request */
	int value_max;
	char job[512]; /* PMI-1: the name of the key-value space; PMI-2: the job */
	size_t len;    /* bytes in `in` */
	char in[SVC_PMI_MESSAGE_MAX];
};

/* Reports an answer that the protocol does not allow. */
int svc_pmi_wrong(struct svc_pmi *p, const char *expected, const char *text);
int svc_pmi_say(struct svc_pmi *p, const char *message);
/* Takes the text of the next message. AGAIN: `ms` passed. `text` has SVC_PMI_MESSAGE_MAX bytes. */
int svc_pmi_hear(struct svc_pmi *p, char *text, int ms);
/* Sends a request, and takes the answer, which must have cmd=`expected`, and rc=0 if it has rc. */
int svc_pmi_ask(struct svc_pmi *p, const char *request, const char *expected, char *text);
/* The number that a word of an answer is; -1: there is none, or it is not allowed. */
int svc_pmi_number(struct svc_pmi *p, const char *text, const char *key, int least, int most);

int svc_pmi_put_card(struct svc_pmi *p, const struct svc_group_card *card);
int svc_pmi_get_card(struct svc_pmi *p, int rank, struct svc_group_card *card);
void svc_pmi_missing(struct svc_group_source *s, char *text, size_t size);
/* Frees it. The launcher's PMI can be joined again only if nothing was said. */
void svc_pmi_free(struct svc_pmi *p);

int svc_pmi_open_fd(const struct svc_pmi_version *version, const struct svc_group_source_ops *ops, int fd, int rank,
                    int members, struct svc_group_source **source, const char *operation);
/* Opens what PMI_FD, PMI_RANK and PMI_SIZE describe. */
int svc_pmi_open(const struct svc_pmi_version *version, const struct svc_group_source_ops *ops,
                 struct svc_group_source **source, const char *operation);

#endif
