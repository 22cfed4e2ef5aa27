/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - messages and blocks over an endpoint. */
#include "tools/cp/link.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/hint.h"

/* A peer that has so many answers to take, and takes none, is none of ours. */
enum { LETTERS = 256, BATCH = 32 };

/* So often the network is looked at before sleeping. */
enum { LOOKS = 32 };

/* ---- failing ---- */

void cp_complain(const struct xport_error *e)
{
	const char *hint = tool_hint(e);

	fprintf(stderr, "xport_cp: %s%s%s\n", e->text, *hint != '\0' ? "\nxport_cp: hint: " : "", hint);
}

bool cp_link_fail(struct cp_link *l, const char *format, ...)
{
	va_list args;

	if (l->failed)
		return false;
	l->failed = true;
	va_start(args, format);
	vsnprintf(l->text, sizeof(l->text), format, args);
	va_end(args);
	return false;
}

bool cp_link_library(struct cp_link *l, int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (l->failed)
		return false;
	l->status = status;
	if (xport_last_error(l->hub->x, &e) == XPORT_OK && e.status == status && e.text[0] != '\0') {
		snprintf(l->hint, sizeof(l->hint), "%s", tool_hint(&e));
		return cp_link_fail(l, "%s: %s", what, e.text);
	}
	return cp_link_fail(l, "%s: %s", what, xport_strerror(status));
}

/* ---- messages ---- */

static void link_post_receive(struct cp_link *l, unsigned i)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = &l->receives[i], .source = l->ep};
	int r = xport_recv(l->hub->x, l->in[i], CP_MESSAGE, CP_TAG, UINT64_MAX, &opt);

	if (r == XPORT_OK)
		l->pending++;
	else
		cp_link_library(l, r, "posting a receive");
}

/* Posts what waits, in order, until the library has no room. */
static void post_letters(struct cp_link *l)
{
	while (l->first != NULL && !l->failed) {
		struct cp_letter *letter = l->first;
		struct xport_opt opt = {.size = sizeof(opt), .context = &letter->token};
		int r = xport_send(l->ep, letter->bytes, letter->len, CP_TAG, &opt);

		if (r == XPORT_ERR_AGAIN)
			return;
		if (r != XPORT_OK) {
			cp_link_library(l, r, "a message");
			return;
		}
		l->pending++;
		l->first = letter->next;
		if (l->first == NULL)
			l->last = &l->first;
	}
}

bool cp_link_send(struct cp_link *l, const struct cp_msg *m)
{
	uint8_t bytes[CP_MESSAGE];
	struct cp_letter *letter;
	size_t n;

	if (l->failed)
		return false;
	if (l->letters >= LETTERS)
		return cp_link_fail(l, "the peer does not read its replies");
	n = cp_msg_write(m, bytes);
	letter = malloc(sizeof(*letter) + n);
	if (letter == NULL)
		return cp_link_fail(l, "out of memory");
	*letter = (struct cp_letter){.token = {l, CP_TOKEN_LETTER, 0}, .len = n};
	memcpy(letter->bytes, bytes, n);
	*l->last = letter;
	l->last = &letter->next;
	l->letters++;
	post_letters(l);
	return !l->failed;
}

static void take_message(struct cp_link *l, unsigned i, const struct xport_completion *c)
{
	struct cp_msg m;

	if (c->status == XPORT_ERR_TRUNCATED) {
		cp_link_fail(l, "a message of %llu bytes: the peer is not xport_cp", (unsigned long long)c->length);
		return;
	}
	if (c->status != XPORT_OK) {
		cp_link_library(l, c->status, "the connection");
		return;
	}
	if (!cp_msg_read(&m, l->in[i], (size_t)c->length)) {
		cp_link_fail(l, "a malformed message: the peer is not xport_cp, or has another version");
		return;
	}
	if (l->calls != NULL)
		l->calls->message(l->arg, &m);
	if (!l->failed && !l->closed)
		link_post_receive(l, i);
}

/* ---- blocks ---- */

bool cp_link_slots(struct cp_link *l, uint32_t rights, void *key, size_t *len)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	int r = xport_mr_alloc(l->hub->x, (size_t)CP_SLOTS * CP_STRIDE, rights, &l->mr);

	if (r == XPORT_OK)
		r = xport_mr_query(l->mr, &info);
	if (r == XPORT_OK && key != NULL)
		r = xport_rkey_pack(l->mr, key, len);
	l->slots = info.base;
	return r == XPORT_OK || cp_link_library(l, r, "memory for blocks");
}

bool cp_link_key(struct cp_link *l, const struct cp_bytes *key)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	int r = xport_rkey_unpack(l->ep, key->p, key->n, &l->rkey);

	if (r == XPORT_OK)
		r = xport_rkey_query(l->rkey, &info);
	if (r != XPORT_OK)
		return cp_link_library(l, r, "the key to the peer's memory");
	if (info.length < (uint64_t)CP_SLOTS * CP_STRIDE || (info.rights & XPORT_REMOTE_WRITE) == 0)
		return cp_link_fail(l, "the peer's memory does not have the layout of xport_cp");
	return true;
}

static uint8_t *head_of(struct cp_link *l, unsigned slot)
{
	return l->slots + (size_t)slot * CP_STRIDE + CP_FRONT - CP_HEAD;
}

uint8_t *cp_link_data(struct cp_link *l, unsigned slot)
{
	return head_of(l, slot) + CP_HEAD;
}

void cp_link_head(struct cp_link *l, unsigned slot, struct cp_head *h)
{
	uint8_t copy[CP_HEAD];

	memcpy(copy, head_of(l, slot), CP_HEAD);
	cp_head_read(h, copy);
}

bool cp_link_put(struct cp_link *l, unsigned slot, const struct cp_head *h)
{
	struct xport_opt opt = {
		.size = sizeof(opt), .flags = XPORT_LOCAL, .context = &l->puts[slot], .mr = l->mr, .value = slot};
	uint8_t *from = head_of(l, slot);
	int r;

	cp_head_write(h, from);
	r = xport_put_notify(l->ep, from, CP_HEAD + h->length, l->rkey, (uint64_t)(from - l->slots), &opt);
	if (r == XPORT_ERR_AGAIN)
		return false;
	if (r != XPORT_OK)
		return cp_link_library(l, r, "a block");
	l->pending++;
	l->bytes += h->length;
	return true;
}

static void take_block(struct cp_link *l, const struct xport_completion *c)
{
	uint64_t slot = c->tag;

	if (l->failed || l->calls == NULL || l->calls->block == NULL)
		return;
	if (l->slots == NULL || slot >= CP_SLOTS || c->mr != l->mr ||
	    c->offset != slot * CP_STRIDE + CP_FRONT - CP_HEAD)
		cp_link_fail(l, "a block outside all slots");
	else
		l->calls->block(l->arg, (unsigned)slot);
}

/* ---- life ---- */

struct cp_link *cp_link_new(struct cp_hub *hub, xport_ep *ep, const struct cp_links_calls *calls, void *arg)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct cp_link *l = calloc(1, sizeof(*l));
	unsigned at = 0;

	while (at < CP_LINKS && hub->links[at] != NULL)
		at++;
	if (l == NULL || at == CP_LINKS || xport_ep_query(ep, &info) != XPORT_OK) {
		free(l);
		xport_ep_destroy(ep);
		return NULL;
	}
	*l = (struct cp_link){.hub = hub, .ep = ep, .calls = calls, .arg = arg, .last = &l->first};
	memcpy(l->peer, info.peer, sizeof(l->peer));
	for (unsigned i = 0; i < CP_SLOTS; i++)
		l->puts[i] = (struct cp_token){l, CP_TOKEN_PUT, i};
	hub->links[at] = l;
	for (unsigned i = 0; i < CP_RECEIVES && !l->failed; i++) {
		l->receives[i] = (struct cp_token){l, CP_TOKEN_RECEIVE, i};
		l->in[i] = malloc(CP_MESSAGE);
		if (l->in[i] == NULL)
			cp_link_fail(l, "out of memory");
		else
			link_post_receive(l, i);
	}
	return l;
}

void cp_link_end(struct cp_link *l, int timeout_ms)
{
	l->calls = NULL;
	l->closed = true;
	(void)xport_ep_close(l->ep, timeout_ms);
	xport_rkey_destroy(l->rkey);
	l->rkey = NULL;
}

/* Nothing of it is in use any more. */
static void link_release(struct cp_hub *hub, unsigned at)
{
	struct cp_link *l = hub->links[at];

	for (struct cp_letter *letter = l->first, *next; letter != NULL; letter = next) {
		next = letter->next;
		free(letter);
	}
	for (unsigned i = 0; i < CP_RECEIVES; i++)
		free(l->in[i]);
	(void)xport_mr_dereg(l->mr);
	xport_ep_destroy(l->ep);
	free(l);
	hub->links[at] = NULL;
}

/* ---- completions ---- */

static struct cp_link *link_of(struct cp_hub *hub, const xport_ep *ep)
{
	for (unsigned i = 0; i < CP_LINKS; i++)
		if (hub->links[i] != NULL && hub->links[i]->ep == ep)
			return hub->links[i];
	return NULL;
}

static void link_take_event(struct cp_hub *hub, const struct xport_completion *c)
{
	struct cp_link *l = link_of(hub, c->ep);

	if (l == NULL || l->closed)
		return;
	if (c->type == XPORT_EVENT_NOTIFY)
		take_block(l, c);
	else if (c->type == XPORT_EVENT_LOST)
		cp_link_library(l, c->status, "the connection");
	else if (c->type == XPORT_EVENT_CLOSED)
		cp_link_library(l, XPORT_ERR_PEER_CLOSED, "the connection");
}

static void take_operation(struct cp_token *t, const struct xport_completion *c)
{
	struct cp_link *l = t->link;

	l->pending--;
	if (t->kind == CP_TOKEN_LETTER) {
		l->letters--;
		free(t);
	}
	if (l->closed || l->failed)
		return;
	if (c->type == XPORT_OP_RECV)
		take_message(l, t->slot, c);
	else if (c->status != XPORT_OK)
		cp_link_library(l, c->status, "the connection");
	else if (c->type == XPORT_OP_PUT_NOTIFY && l->calls != NULL)
		l->calls->sent(l->arg, t->slot);
}

void cp_hub_wake(struct cp_hub *hub)
{
	uint64_t one = 1;

	(void)!write(hub->wake, &one, sizeof(one));
}

/* As xport_wait, but a wake ends it, too. */
static int link_wait_for(struct cp_hub *hub, struct xport_completion *list, int timeout_ms)
{
	struct pollfd fds[2] = {{.fd = xport_fd(hub->x), .events = POLLIN}, {.fd = hub->wake, .events = POLLIN}};
	uint64_t many;
	int n = 0;

	for (int i = 0; i < LOOKS && n == 0; i++)
		n = xport_poll(hub->x, list, BATCH);
	if (n != 0 || timeout_ms == 0)
		return n;
	if (poll(fds, 2, timeout_ms) > 0 && fds[1].revents != 0)
		(void)!read(hub->wake, &many, sizeof(many));
	return xport_poll(hub->x, list, BATCH);
}

bool cp_hub_poll(struct cp_hub *hub, int timeout_ms)
{
	struct xport_completion list[BATCH];
	int n = link_wait_for(hub, list, timeout_ms);

	for (int i = 0; i < n; i++) {
		if (list[i].type > XPORT_OP_FLUSH)
			link_take_event(hub, &list[i]);
		else if (list[i].context != NULL)
			take_operation(list[i].context, &list[i]);
	}
	for (unsigned i = 0; i < CP_LINKS; i++) {
		struct cp_link *l = hub->links[i];

		if (l != NULL && !l->closed)
			post_letters(l);
		if (l != NULL && l->closed && l->pending == 0)
			link_release(hub, i);
	}
	return n >= 0;
}

bool cp_hub_open(struct cp_hub *hub, const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	struct xport_error e = {.size = sizeof(e)};

	*hub = (struct cp_hub){.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (hub->wake < 0) {
		perror("xport_cp: eventfd");
		return false;
	}
	if (xport_open(&attr, &hub->x) == XPORT_OK)
		return true;
	(void)xport_last_error(NULL, &e);
	cp_complain(&e);
	return false;
}

/* The instance drops what has not completed, so that nothing is in use any more. */
void cp_hub_close(struct cp_hub *hub)
{
	for (unsigned i = 0; i < CP_LINKS; i++)
		if (hub->links[i] != NULL && !hub->links[i]->closed)
			cp_link_end(hub->links[i], 0);
	for (int tries = 0; tries < 100 && hub->x != NULL; tries++) {
		bool any = false;

		for (unsigned i = 0; i < CP_LINKS; i++)
			any = any || hub->links[i] != NULL;
		if (!any || !cp_hub_poll(hub, 10))
			break;
	}
	xport_close(hub->x);
	close(hub->wake);
	hub->x = NULL;
}
