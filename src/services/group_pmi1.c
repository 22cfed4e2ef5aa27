/* SPDX-License-Identifier: BSD-3-Clause */
/* The source pmi1: the PMI-1 protocol, as mpiexec.hydra speaks it over the descriptor PMI_FD. What is put can be got after
   the barrier. */
#include <stdio.h>
#include <string.h>

#include "services/group_pmi.h"
#include "services/last_error.h"

static int pmi1_init(struct svc_pmi *p)
{
	char text[SVC_PMI_MESSAGE_MAX];
	int r = svc_pmi_ask(p, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", text);

	if (r == XPORT_OK && svc_pmi_number(p, text, "pmi_version", 1, 1) != 1)
		r = svc_pmi_wrong(p, "pmi_version=1", text);
	if (r != XPORT_OK)
		return r;
	p->initialised = true;
	r = svc_pmi_ask(p, "cmd=get_maxes\n", "maxes", text);
	if (r == XPORT_OK && svc_pmi_number(p, text, "keylen_max", SVC_PMI_KEY_BYTES, 1 << 20) < 0)
		r = svc_pmi_wrong(p, "keylen_max of at least 32", text);
	if (r != XPORT_OK)
		return r;
	p->value_max = svc_pmi_number(p, text, "vallen_max", 16, 1 << 20);
	if (p->value_max < 0)
		return svc_pmi_wrong(p, "vallen_max of at least 16", text);
	r = svc_pmi_ask(p, "cmd=get_my_kvsname\n", "my_kvsname", text);
	if (r == XPORT_OK && (!svc_pmi1_word(text, "kvsname", p->job, sizeof(p->job)) || p->job[0] == '\0'))
		r = svc_pmi_wrong(p, "kvsname", text);
	return r;
}

static int pmi1_put(struct svc_pmi *p, int piece, const char *value)
{
	char request[SVC_PMI_MESSAGE_MAX], text[SVC_PMI_MESSAGE_MAX];

	snprintf(request, sizeof(request), "cmd=put kvsname=%s key=xpg-%d-%d value=%s\n", p->job, p->head.rank, piece,
	         value);
	return svc_pmi_ask(p, request, "put_result", text);
}

static int pmi1_get(struct svc_pmi *p, int rank, int piece, char *value, size_t size)
{
	char request[1024], text[SVC_PMI_MESSAGE_MAX];
	int r;

	snprintf(request, sizeof(request), "cmd=get kvsname=%s key=xpg-%d-%d\n", p->job, rank, piece);
	r = svc_pmi_ask(p, request, "get_result", text);
	if (r == XPORT_OK && !svc_pmi1_word(text, "value", value, size))
		r = svc_pmi_wrong(p, "a value of a rank", text);
	return r;
}

static const struct svc_pmi_version version_1 = {
	.speaks = "PMI-1, as mpiexec.hydra does",
	.frame = svc_pmi1_frame,
	.word = svc_pmi1_word,
	.put = pmi1_put,
	.get = pmi1_get,
};

static int pmi1_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	int r = pmi1_init(p);

	(void)slice_ms;
	return r == XPORT_OK ? svc_pmi_put_card(p, card) : r;
}

static int pmi1_ready(struct svc_group_source *s, int slice_ms)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	char text[SVC_PMI_MESSAGE_MAX], word[64];
	int r = XPORT_OK;

	if (!p->in_barrier)
		r = svc_pmi_say(p, "cmd=barrier_in\n");
	p->in_barrier = true;
	if (r == XPORT_OK)
		r = svc_pmi_hear(p, text, slice_ms);
	if (r != XPORT_OK)
		return r;
	p->in_barrier = false;
	return svc_pmi1_word(text, "cmd", word, sizeof(word)) && strcmp(word, "barrier_out") == 0
	               ? XPORT_OK
	               : svc_pmi_wrong(p, "barrier_out", text);
}

static int pmi1_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	(void)slice_ms;
	return svc_pmi_get_card((struct svc_pmi *)s, rank, card);
}

static void pmi1_close(struct svc_group_source *s)
{
	struct svc_pmi *p = (struct svc_pmi *)s;
	char text[SVC_PMI_MESSAGE_MAX];

	/* Without it the launcher takes the end of the process for a crash. */
	s->until = svc_now_ms() + 1000;
	if (p->initialised && !p->in_barrier)
		(void)svc_pmi_ask(p, "cmd=finalize\n", "finalize_ack", text);
	svc_pmi_free(p);
}

static const struct svc_group_source_ops pmi1_ops = {
	.name = "pmi1",
	.offer = pmi1_offer,
	.ready = pmi1_ready,
	.card = pmi1_card,
	.missing = svc_pmi_missing,
	.close = pmi1_close,
};

int svc_group_pmi1_open_fd(int fd, int rank, int members, struct svc_group_source **source, const char *operation)
{
	return svc_pmi_open_fd(&version_1, &pmi1_ops, fd, rank, members, source, operation);
}

int svc_group_pmi1_open(struct svc_group_source **source, const char *operation)
{
	return svc_pmi_open(&version_1, &pmi1_ops, source, operation);
}
