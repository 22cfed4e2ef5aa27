/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source pmi2: the PMI-2 protocol, as srun --mpi=pmi2 and mpiexec.hydra speak it over the descriptor PMI_FD. The first
 * request and its answer are still lines of PMI-1. What is put can be got after the fence.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/group_pmi.h"
#include "services/last_error.h"

enum { VALUE_MAX = 1024 }; /* PMI-2 fixes it: the protocol does not ask for it */

static int pmi2_put(struct svc_pmi *p, int piece, const char *value);
static int pmi2_get(struct svc_pmi *p, int rank, int piece, char *value, size_t size);

static const struct svc_pmi_version version_begin = {
	.speaks = "PMI-2, as srun --mpi=pmi2 does",
	.frame = svc_pmi1_frame,
	.word = svc_pmi1_word,
};
static const struct svc_pmi_version version_2 = {
	.speaks = "PMI-2, as srun --mpi=pmi2 does",
	.frame = svc_pmi2_frame,
	.word = svc_pmi2_word,
	.put = pmi2_put,
	.get = pmi2_get,
};

/* Writes a message with its length before it. `request` has SVC_PMI_MESSAGE_MAX bytes. */
static void pmi2_write(char *request, const char *items)
{
	snprintf(request, SVC_PMI_MESSAGE_MAX, "%6zu%s", strlen(items), items);
}

static int pmi2_ask(struct svc_pmi *p, const char *items, const char *expected, char *text)
{
	char request[SVC_PMI_MESSAGE_MAX];

	pmi2_write(request, items);
	return svc_pmi_ask(p, request, expected, text);
}

static int pmi2_init(struct svc_pmi *p)
{
	const char *job = secure_getenv("PMI_JOBID");
	char text[SVC_PMI_MESSAGE_MAX], items[800], word[32];
	int r = svc_pmi_ask(p, "cmd=init pmi_version=2 pmi_subversion=0\n", "response_to_init", text);

	if (r == XPORT_OK && svc_pmi_number(p, text, "pmi_version", 2, 2) != 2)
		r = svc_pmi_wrong(p, "pmi_version=2", text);
	if (r != XPORT_OK)
		return r;
	p->version = &version_2;
	p->value_max = VALUE_MAX;
	p->initialised = true;
	/* A name with a semicolon would end the item: no launcher has one. */
	snprintf(p->job, sizeof(p->job), "%s", job != NULL && strchr(job, ';') == NULL ? job : "");
	snprintf(items, sizeof(items), "cmd=fullinit;pmijobid=%s;pmirank=%d;threaded=FALSE;", p->job, p->head.rank);
	r = pmi2_ask(p, items, "fullinit-response", text);
	if (r != XPORT_OK)
		return r;
	if (svc_pmi_number(p, text, "rank", 0, SVC_GROUP_MEMBERS_MAX) != p->head.rank ||
	    svc_pmi_number(p, text, "size", 1, SVC_GROUP_MEMBERS_MAX) != p->head.members) {
		snprintf(word, sizeof(word), "rank=%d and size=%d", p->head.rank, p->head.members);
		return svc_pmi_wrong(p, word, text);
	}
	return XPORT_OK;
}

static int pmi2_put(struct svc_pmi *p, int piece, const char *value)
{
	char items[VALUE_MAX + 128], text[SVC_PMI_MESSAGE_MAX];

	snprintf(items, sizeof(items), "cmd=kvs-put;key=xpg-%d-%d;value=%s;", p->head.rank, piece, value);
	return pmi2_ask(p, items, "kvs-put-response", text);
}

static int pmi2_get(struct svc_pmi *p, int rank, int piece, char *value, size_t size)
{
	char items[800], text[SVC_PMI_MESSAGE_MAX];
	int r;

	snprintf(items, sizeof(items), "cmd=kvs-get;jobid=%s;srcid=%d;key=xpg-%d-%d;", p->job, rank, rank, piece);
	r = pmi2_ask(p, items, "kvs-get-response", text);
	if (r == XPORT_OK && !svc_pmi2_word(text, "value", value, size))
		r = svc_pmi_wrong(p, "a value of a rank", text);
	return r;
}

static int pmi2_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	int r = pmi2_init(p);

	(void)slice_ms;
	return r == XPORT_OK ? svc_pmi_put_card(p, card) : r;
}

static int pmi2_ready(struct svc_group_source *s, int slice_ms)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	char request[SVC_PMI_MESSAGE_MAX], text[SVC_PMI_MESSAGE_MAX], word[64];
	int r = XPORT_OK;

	pmi2_write(request, "cmd=kvs-fence;");
	if (!p->in_barrier)
		r = svc_pmi_say(p, request);
	p->in_barrier = true;
	if (r == XPORT_OK)
		r = svc_pmi_hear(p, text, slice_ms);
	if (r != XPORT_OK)
		return r;
	p->in_barrier = false;
	return svc_pmi2_word(text, "cmd", word, sizeof(word)) && strcmp(word, "kvs-fence-response") == 0 &&
	                       (!svc_pmi2_word(text, "rc", word, sizeof(word)) || strcmp(word, "0") == 0)
	               ? XPORT_OK
	               : svc_pmi_wrong(p, "kvs-fence-response", text);
}

static int pmi2_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	(void)slice_ms;
	return svc_pmi_get_card((struct svc_pmi *)s, rank, card);
}

static void pmi2_close(struct svc_group_source *s)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	char text[SVC_PMI_MESSAGE_MAX];

	/* Without it the launcher takes the end of the process for a crash. */
	s->until = svc_now_ms() + 1000;
	if (p->initialised && !p->in_barrier)
		(void)pmi2_ask(p, "cmd=finalize;", "finalize-response", text);
	svc_pmi_free(p);
}

static const struct svc_group_source_ops pmi2_ops = {
	.name = "pmi2",
	.offer = pmi2_offer,
	.ready = pmi2_ready,
	.card = pmi2_card,
	.missing = svc_pmi_missing,
	.close = pmi2_close,
};

int svc_group_pmi2_open_fd(int fd, int rank, int members, struct svc_group_source **source, const char *operation)
{
	return svc_pmi_open_fd(&version_begin, &pmi2_ops, fd, rank, members, source, operation);
}

int svc_group_pmi2_open(struct svc_group_source **source, const char *operation)
{
	return svc_pmi_open(&version_begin, &pmi2_ops, source, operation);
}
