/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/cm/agree.h"

#include <stdio.h>
#include <string.h>

/* ---- One pair ---- */

static bool any_provider(const struct xpi_offer *a, const struct xpi_offer *b)
{
	return ((a->flags | b->flags) & XPI_OFFER_ANY) != 0;
}

/* The same network; whether it can be used is another question. */
static bool same_network(const struct xpi_offer *a, const struct xpi_offer *b)
{
	return strcmp(a->backend, b->backend) == 0 && (strcmp(a->provider, b->provider) == 0 || any_provider(a, b));
}

/* Why two processes do not share memory; NULL: they do, or it is not known that they do not. */
static const char *memory_apart(const struct xpi_hello *a, const struct xpi_hello *b, bool passed, bool files)
{
	bool several = a->noffers > 1 || b->noffers > 1;

	if (a->boot_id[0] == '\0' || b->boot_id[0] == '\0')
		return NULL;
	if (strcmp(a->boot_id, b->boot_id) != 0)
		return "the two processes are on different hosts, and %s only works within one";
	if (passed)
		return NULL;
	if (a->pid_ns != 0 && b->pid_ns != 0 && a->pid_ns != b->pid_ns)
		return "the two processes are in different PID namespaces, as in two containers, and %s only works "
		       "within one";
	/* Some stacks can do without. So this decides only where there may be something else. */
	if (files && several && a->shm_fs != 0 && b->shm_fs != 0 && a->shm_fs != b->shm_fs)
		return "the two processes have different /dev/shm, as in two containers, and %s needs a common one";
	return NULL;
}

int xpi_agree_fits(const struct xpi_hello *a, unsigned i, const struct xpi_hello *b, unsigned j, char *why, size_t len)
{
	const struct xpi_offer *o = &a->offers[i], *p = &b->offers[j];
	bool passed = (o->flags & p->flags & XPI_OFFER_PASSED) != 0;
	bool files = strcmp(o->backend, "shm") != 0; /* shm has none in /dev/shm */
	const char *sentence = (o->flags | p->flags) & XPI_OFFER_SHARED ? memory_apart(a, b, passed, files) : NULL;
	char name[72];

	if (!same_network(o, p)) {
		snprintf(why, len, "they are different transports");
		return XPORT_ERR_INCOMPATIBLE;
	}
	if ((o->flags | p->flags) & XPI_OFFER_FAILED) {
		snprintf(why, len, "one side cannot use it");
		return XPORT_ERR_INCOMPATIBLE;
	}
	if (((o->flags ^ p->flags) & XPI_OFFER_PASSED) != 0) {
		snprintf(why, len, "only the process %s has XPORT_SHM_DIR, and both of two containers need it",
		         (o->flags & XPI_OFFER_PASSED) != 0 ? "here" : "there");
		return XPORT_ERR_UNREACHABLE;
	}
	if (passed && o->protocol[0] != '\0' && p->protocol[0] != '\0' && strcmp(o->protocol, p->protocol) != 0) {
		snprintf(why, len, "XPORT_SHM_DIR is not the same directory on both sides: \"%s\" there, \"%s\" here",
		         p->protocol, o->protocol);
		return XPORT_ERR_UNREACHABLE;
	}
	if (o->protocol[0] != '\0' && p->protocol[0] != '\0' && strcmp(o->protocol, p->protocol) != 0) {
		snprintf(why, len, "protocol there \"%s\", here \"%s\"", p->protocol, o->protocol);
		return XPORT_ERR_INCOMPATIBLE;
	}
	if (sentence == NULL)
		return XPORT_OK;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(why, len, sentence, xpi_offer_name(o, name, sizeof(name)));
#pragma GCC diagnostic pop
	return XPORT_ERR_UNREACHABLE;
}

/* ---- All of them ---- */

/* How late a pair comes. */
static unsigned pair_lateness(const struct xpi_hello *client, const struct xpi_hello *server, struct xpi_pair p)
{
	const struct xpi_offer *c = &client->offers[p.client], *s = &server->offers[p.server];
	bool open_question =
		strcmp(c->provider, s->provider) != 0 && (c->provider[0] == '\0' || s->provider[0] == '\0');

	return ((open_question ? 64u : 0u) + p.client + p.server) * 64u + p.client;
}

static void pair_insert(const struct xpi_hello *client, const struct xpi_hello *server, struct xpi_agreement *out,
                        struct xpi_pair pair)
{
	unsigned late = pair_lateness(client, server, pair);
	int at = out->n;

	while (at > 0 && pair_lateness(client, server, out->pairs[at - 1]) > late)
		at--;
	if (at == XPI_PAIRS_MAX)
		return;
	if (out->n < XPI_PAIRS_MAX)
		out->n++;
	memmove(&out->pairs[at + 1], &out->pairs[at], (size_t)(out->n - 1 - at) * sizeof(pair));
	out->pairs[at] = pair;
}

void xpi_agree(const struct xpi_hello *client, const struct xpi_hello *server, struct xpi_agreement *out)
{
	char why[256];

	out->n = 0;
	for (unsigned i = 0; i < client->noffers; i++)
		for (unsigned j = 0; j < server->noffers; j++)
			if (xpi_agree_fits(client, i, server, j, why, sizeof(why)) == XPORT_OK)
				pair_insert(client, server, out, (struct xpi_pair){(uint8_t)i, (uint8_t)j});
}

/* ---- Reasons ---- */

static const char apart_hint[] =
	"set XPORT_SHM_DIR to one directory in both (for shm), let both share a PID namespace (docker run --pid=host), "
	"or take a provider of the network: XPORT_BACKEND=ucx:tcp or ofi:tcp";

int xpi_agree_none(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len,
                   const char **hint)
{
	char why[256] = "they fit";
	size_t n;

	*hint = apart_hint;
	for (unsigned i = 0; i < ours->noffers; i++)
		for (unsigned j = 0; j < theirs->noffers; j++)
			if (xpi_agree_fits(ours, i, theirs, j, text, len) == XPORT_ERR_UNREACHABLE)
				return XPORT_ERR_UNREACHABLE;
	*hint = "set XPORT_BACKEND to the same on both sides, or to auto";
	xpi_hello_sides(ours, theirs, text, len);
	n = strnlen(text, len);
	if (ours->noffers == 1 && theirs->noffers == 1 && same_network(&ours->offers[0], &theirs->offers[0])) {
		xpi_agree_fits(ours, 0, theirs, 0, why, sizeof(why));
		snprintf(text + n, len - n, "; %s", why);
		*hint = "use the same version of the stack on both sides";
	}
	return XPORT_ERR_INCOMPATIBLE;
}

bool xpi_agree_passed(const struct xpi_hello *ours, unsigned i, const struct xpi_hello *theirs, unsigned chosen,
                      char *text, size_t len)
{
	const struct xpi_offer *o = &ours->offers[i];
	bool offered = false, fits = false;
	char name[72], why[256] = "";

	for (unsigned j = 0; j < theirs->noffers && !fits; j++) {
		if (!same_network(o, &theirs->offers[j]))
			continue;
		offered = true;
		fits = xpi_agree_fits(ours, i, theirs, j, why, sizeof(why)) == XPORT_OK;
		if (!fits && theirs->offers[j].flags & XPI_OFFER_FAILED)
			snprintf(why, sizeof(why), "the peer cannot use it: %s", theirs->offers[j].device);
	}
	if (o->flags & XPI_OFFER_FAILED)
		snprintf(text, len, "not usable here: %s", o->device);
	else if (!offered)
		text[0] = '\0';
	else if (!fits)
		snprintf(text, len, "%s", why);
	else
		snprintf(text, len, "the peer prefers %s", xpi_offer_name(&ours->offers[chosen], name, sizeof(name)));
	return offered || (o->flags & XPI_OFFER_FAILED) != 0;
}
