/* SPDX-License-Identifier: BSD-3-Clause */
/* The source that the application's own functions are. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/group_source.h"
#include "services/last_error.h"

struct exchange_source {
	struct svc_group_source head;
	struct xport_group_exchange own;
};

static int exchange_failed(const struct svc_group_source *s, int status, const char *function)
{
	int known = status < 0 && status >= XPORT_ERR_BUSY ? status : XPORT_ERR_INVALID;

	return svc_fail(known, s->operation, "see the function that the application gave",
	                "exchange.%s returned %d: %s", function, status, xport_strerror(status));
}

static int exchange_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct exchange_source *e = (struct exchange_source *)s;
	uint8_t bytes[SVC_CARD_MAX];
	char key[32];
	int r;

	(void)slice_ms;
	snprintf(key, sizeof(key), "xpg-%d", s->rank);
	r = e->own.put(e->own.arg, key, bytes, svc_card_encode(card, bytes));
	return r == XPORT_OK ? r : exchange_failed(s, r, "put");
}

static int exchange_ready(struct svc_group_source *s, int slice_ms)
{
	struct exchange_source *e = (struct exchange_source *)s;
	int r;

	(void)slice_ms;
	if (e->own.fence == NULL)
		return XPORT_OK;
	r = e->own.fence(e->own.arg, s->until < 0 ? -1 : svc_source_left(s, 1 << 30));
	return r == XPORT_OK ? r : exchange_failed(s, r, "fence");
}

static int exchange_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	struct exchange_source *e = (struct exchange_source *)s;
	uint8_t bytes[SVC_CARD_MAX];
	size_t len = sizeof(bytes);
	char key[32];
	int r;

	snprintf(key, sizeof(key), "xpg-%d", rank);
	r = e->own.get(e->own.arg, key, bytes, &len);
	if (r == XPORT_ERR_AGAIN)
		poll(NULL, 0, slice_ms);
	if (r != XPORT_OK)
		return r == XPORT_ERR_AGAIN ? r : exchange_failed(s, r, "get");
	if (len > sizeof(bytes) || !svc_card_decode(card, bytes, len) || card->rank != rank)
		return svc_fail(XPORT_ERR_PROTOCOL, s->operation, "return the bytes that were put under the key",
		                "exchange.get returned bytes for %s that rank %d did not put", key, rank);
	if (card->members != s->members)
		return svc_fail(XPORT_ERR_CONFIG, s->operation, "give all processes the same number",
		                "rank %d says that the group has %d members, and rank %d says %d", rank, card->members,
		                s->rank, s->members);
	return XPORT_OK;
}

static void exchange_missing(struct svc_group_source *s, char *text, size_t size)
{
	(void)s;
	snprintf(text, size, "what the functions of the application wait for");
}

static void exchange_close(struct svc_group_source *s)
{
	free(s);
}

static const struct svc_group_source_ops exchange_ops = {
	.name = "exchange",
	.offer = exchange_offer,
	.ready = exchange_ready,
	.card = exchange_card,
	.missing = exchange_missing,
	.close = exchange_close,
};

int svc_group_exchange_open(const struct svc_group_choice *c, struct svc_group_source **source, const char *operation)
{
	const struct xport_group_exchange *own = c->exchange;
	struct exchange_source *e;

	if (own->put == NULL || own->get == NULL || own->members < 1 || own->members > SVC_GROUP_MEMBERS_MAX ||
	    own->rank < 0 || own->rank >= own->members)
		return svc_fail(
			XPORT_ERR_INVALID, operation, "put and get are needed; ranks are 0 to the number less 1",
			"the functions of the application are for rank %d of %d members%s", own->rank, own->members,
			own->put == NULL   ? "; put is NULL"
			: own->get == NULL ? "; get is NULL"
					   : "");
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	e->own = *own;
	e->head.ops = &exchange_ops;
	e->head.rank = own->rank;
	e->head.members = own->members;
	*source = &e->head;
	return XPORT_OK;
}
