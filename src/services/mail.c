/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/mail.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "services/fault.h"
#include "services/wire.h"

struct svc_letter {
	struct svc_letter *next;
	size_t len;
	bool reply;
	bool spare;      /* its peer's */
	uint32_t number; /* of one that came early */
	uint8_t bytes[];
};

/* ---- letters ---- */

static void letters_init(struct svc_letters *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void letters_push(struct svc_letters *l, struct svc_letter *letter)
{
	letter->next = NULL;
	*l->end = letter;
	l->end = &letter->next;
}

static struct svc_letter *letters_shift(struct svc_letters *l)
{
	struct svc_letter *letter = l->first;

	l->first = letter->next;
	if (l->first == NULL)
		l->end = &l->first;
	return letter;
}

/* Takes this one out; false: it is not there. */
static bool letters_take(struct svc_letters *l, const void *letter)
{
	for (struct svc_letter **at = &l->first; *at != NULL; at = &(*at)->next) {
		if ((const void *)*at != letter)
			continue;
		if (l->end == &(*at)->next)
			l->end = at;
		*at = (*at)->next;
		return true;
	}
	return false;
}

static void letter_free(struct svc_mail_peer *p, struct svc_letter *letter)
{
	if (letter->spare)
		p->spare = letter;
	else
		free(letter);
}

static void letters_drop_all(struct svc_mail_peer *p, struct svc_letters *l)
{
	while (l->first != NULL) {
		p->replies -= l->first->reply;
		p->mail->waiting--;
		letter_free(p, letters_shift(l));
	}
}

void svc_mail_drop(struct svc_mail_peer *p)
{
	letters_drop_all(p, &p->requests);
	letters_drop_all(p, &p->answers);
}

static void early_drop(struct svc_mail_peer *p)
{
	while (p->early.first != NULL)
		free(letters_shift(&p->early));
	p->nearly = 0;
}

/* ---- peers ---- */

static struct svc_mail_peer **bucket(const struct svc_mail *m, const xport_ep *ep)
{
	uint64_t hash = (uint64_t)(uintptr_t)ep * 0x9e3779b97f4a7c15u >> 58;

	return (struct svc_mail_peer **)(uintptr_t)&m->bucket[hash % SVC_MAIL_BUCKETS];
}

struct svc_mail_peer *svc_mail_find(const struct svc_mail *m, const xport_ep *ep)
{
	struct svc_mail_peer *p = *bucket(m, ep);

	while (p != NULL && (p->ep != ep || p->forgotten))
		p = p->next;
	return p;
}

/* Any number that the last one was not. */
static void epoch_begin(struct svc_mail_peer *p)
{
	uint32_t old = p->epoch, random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = old + 2;
	p->epoch_before = old;
	p->epoch = random | 1;
	if (p->epoch == old)
		p->epoch += 2;
	p->number = 0;
}

struct svc_mail_peer *svc_mail_peer(struct svc_mail *m, xport_ep *ep)
{
	struct svc_mail_peer *p = svc_mail_find(m, ep);

	if (p != NULL || (p = calloc(1, sizeof(*p))) == NULL)
		return p;
	p->spare = malloc(sizeof(*p->spare) + SVC_MAIL_HEAD + SVC_MAIL_WORD);
	if (p->spare == NULL) {
		free(p);
		return NULL;
	}
	p->mail = m;
	p->ep = ep;
	letters_init(&p->requests);
	letters_init(&p->answers);
	letters_init(&p->flight);
	letters_init(&p->early);
	epoch_begin(p);
	p->next = *bucket(m, ep);
	*bucket(m, ep) = p;
	return p;
}

static void peer_free(struct svc_mail_peer *p)
{
	struct svc_mail_peer **at = bucket(p->mail, p->ep);

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	early_drop(p);
	free(p->spare);
	free(p);
}

static void peer_end(struct svc_mail_peer *p, int status)
{
	struct svc_mail *m = p->mail;

	if (p->ended != XPORT_OK)
		return;
	p->ended = status;
	svc_mail_drop(p);
	early_drop(p);
	m->fns->ended(m->arg, p, status);
}

static void peer_mute(struct svc_mail_peer *p)
{
	p->mail->muted += p->ended == XPORT_OK;
	peer_end(p, XPORT_ERR_PROTOCOL);
}

void svc_mail_end(struct svc_mail *m, const xport_ep *ep, int status)
{
	struct svc_mail_peer *p = svc_mail_find(m, ep);

	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].from == ep)
			m->receive[i].from = NULL;
	}
	if (p == NULL)
		return;
	peer_end(p, status);
	p->forgotten = true;
	if (p->flight.first == NULL)
		peer_free(p);
}

static void forget_said(struct svc_mail_peer *p)
{
	svc_mail_drop(p);
	early_drop(p);
	p->unanswered = 0;
	p->from_before = p->from;
	p->from = 0;
	p->from_number = 0;
}

void svc_mail_anew(struct svc_mail_peer *p)
{
	forget_said(p);
	epoch_begin(p);
}

/* The epoch is over when the peer was told of it (post). */
static void talk_over(struct svc_mail_peer *p)
{
	if (p->ended != XPORT_OK)
		return;
	forget_said(p);
	p->mail->fns->over(p->mail->arg, p);
}

void svc_mail_each(struct svc_mail *m, void (*f)(void *arg, struct svc_mail_peer *peer))
{
	for (int i = 0; i < SVC_MAIL_BUCKETS; i++) {
		for (struct svc_mail_peer *p = m->bucket[i], *next; p != NULL; p = next) {
			next = p->next;
			if (!p->forgotten)
				f(m->arg, p);
		}
	}
}

/* ---- sending ---- */

/* Returns XPORT_OK if it left; AGAIN: it stays. */
static int post(struct svc_mail_peer *p, struct svc_letters *from)
{
	struct svc_letter *letter = from->first;
	struct xport_opt o = {.size = sizeof(o), .context = letter};
	uint8_t *at;
	int r;

	at = svc_write_number(letter->bytes, p->epoch, 4);
	at = svc_write_number(at, p->number, 4);
	svc_write_number(at, p->from_number > 0 ? p->from : 0, 4);
	r = xport_send(p->ep, letter->bytes, letter->len, p->mail->tag, &o);
	if (r != XPORT_OK)
		return r;
	p->number++;
	p->replies -= letter->reply;
	p->under_way += letter->reply;
	letters_push(&p->flight, letters_shift(from));
	p->mail->waiting--;
	p->mail->flying++;
	if (letter->spare)
		epoch_begin(p);
	return XPORT_OK;
}

/* An endpoint that refuses has ended: what waits is dropped, and its event, which comes yet, does the rest. */
static void send_what_waits(void *arg, struct svc_mail_peer *p)
{
	int r = XPORT_OK;

	(void)arg;
	while (r == XPORT_OK && p->ended == XPORT_OK) {
		if (p->answers.first != NULL) {
			if (p->under_way >= SVC_MAIL_REPLIES)
				return;
			r = post(p, &p->answers);
		} else if (p->requests.first != NULL && p->unanswered < SVC_MAIL_WINDOW) {
			r = post(p, &p->requests);
			p->unanswered += r == XPORT_OK;
		} else {
			return;
		}
	}
	/* INVALID: its handshake is not over yet */
	if (r == XPORT_ERR_AGAIN || r == XPORT_ERR_INVALID || r == XPORT_ERR_NO_MEMORY)
		p->mail->stuck = true;
	else if (r != XPORT_OK)
		peer_end(p, r);
}

static void put_letter(struct svc_mail_peer *p, struct svc_letter *letter, const void *bytes, size_t len, bool reply)
{
	letter->len = SVC_MAIL_HEAD + len;
	letter->reply = reply;
	memcpy(letter->bytes + SVC_MAIL_HEAD, bytes, len);
	letters_push(reply ? &p->answers : &p->requests, letter);
	p->replies += reply;
	p->mail->waiting++;
	send_what_waits(NULL, p);
}

struct svc_letter *svc_mail_reserve(size_t len)
{
	struct svc_letter *letter = malloc(sizeof(*letter) + SVC_MAIL_HEAD + len);

	if (letter != NULL)
		letter->spare = false;
	return letter;
}

static int put(struct svc_mail_peer *p, const void *bytes, size_t len, bool reply)
{
	struct svc_letter *letter;

	if (p->ended != XPORT_OK)
		return p->ended;
	letter = svc_mail_reserve(len);
	if (letter == NULL)
		return XPORT_ERR_NO_MEMORY;
	put_letter(p, letter, bytes, len, reply);
	return XPORT_OK;
}

void svc_mail_over(struct svc_mail_peer *p, const void *bytes, size_t len)
{
	struct svc_letter *letter = p->spare;

	if (letter == NULL) { /* the last time's is on its way still: what is said next tells, in another epoch */
		epoch_begin(p);
		return;
	}
	p->spare = NULL;
	letter->spare = true;
	put_letter(p, letter, bytes, len, true);
}

int svc_mail_request(struct svc_mail_peer *p, const void *bytes, size_t len)
{
	return put(p, bytes, len, false);
}

void svc_mail_request_in(struct svc_mail_peer *p, struct svc_letter *letter, const void *bytes, size_t len)
{
	if (p->ended == XPORT_OK)
		put_letter(p, letter, bytes, len, false);
	else
		free(letter);
}

int svc_mail_reply(struct svc_mail_peer *p, const void *bytes, size_t len)
{
	return put(p, bytes, len, true);
}

void svc_mail_bye(struct svc_mail_peer *p, const void *bytes, size_t len)
{
	if (p->number > 0 || p->from_number > 0)
		(void)svc_mail_reply(p, bytes, len);
}

bool svc_mail_answered(struct svc_mail_peer *p)
{
	if (p->unanswered == 0)
		return false;
	p->unanswered--;
	return true;
}

static bool sent(struct svc_mail *m, struct svc_mail_peer *p, void *context)
{
	struct svc_letter *letter = context;

	if (!letters_take(&p->flight, letter))
		return false;
	p->under_way -= letter->reply;
	m->flying--;
	letter_free(p, letter);
	if (p->forgotten && p->flight.first == NULL)
		peer_free(p);
	return true;
}

static bool sent_by_any(struct svc_mail *m, const struct xport_completion *c)
{
	struct svc_mail_peer *next;

	if (m->flying == 0)
		return false;
	for (struct svc_mail_peer *p = *bucket(m, c->ep); p != NULL; p = next) {
		next = p->next;
		if (sent(m, p, c->context))
			return true;
	}
	return false;
}

/* ---- receiving ---- */

static int listen(struct svc_mail *m)
{
	int status;

	for (unsigned i = 0; i < m->receives && m->unposted > 0 && !m->stopping; i++) {
		struct svc_mail_receive *r = &m->receive[i];
		struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER, .context = r, .id = &r->id};

		if (r->posted || r->from != NULL)
			continue;
		status = xport_recv(m->x, r->bytes, m->max, m->tag, UINT64_MAX, &o);
		if (status != XPORT_OK)
			return status;
		r->posted = true;
		m->unposted--;
	}
	return XPORT_OK;
}

static void deliver(struct svc_mail_peer *p, const uint8_t *bytes, size_t len)
{
	int r;

	p->from_number++;
	r = p->replies > SVC_MAIL_REPLIES ? XPORT_ERR_PROTOCOL : p->mail->fns->message(p->mail->arg, p, bytes, len);
	if (r == XPORT_ERR_NO_MEMORY)
		talk_over(p);
	else if (r != XPORT_OK)
		peer_mute(p);
}

/* One that was waiting for what has just been delivered; NULL: there is none. */
static struct svc_letter *early_next(struct svc_mail_peer *p)
{
	for (struct svc_letter *letter = p->early.first; letter != NULL; letter = letter->next) {
		if (letter->number == p->from_number) {
			letters_take(&p->early, letter);
			p->nearly--;
			return letter;
		}
	}
	return NULL;
}

/*
 * What lies before it other threads have reaped, and not brought yet.  One late message is enough for all to come early that a
 * peer may have sent: their receives are posted again.
 */
static void early_keep(struct svc_mail_peer *p, uint32_t number, const uint8_t *bytes, size_t len)
{
	struct svc_letter *letter;

	if (number - p->from_number > SVC_MAIL_EARLY || p->nearly >= SVC_MAIL_EARLY) {
		peer_mute(p);
		return;
	}
	letter = malloc(sizeof(*letter) + len);
	if (letter == NULL) {
		talk_over(p);
		return;
	}
	letter->number = number;
	letter->len = len;
	memcpy(letter->bytes, bytes, len);
	letters_push(&p->early, letter);
	p->nearly++;
}

/*
 * False: what is said in this epoch, by one that has heard our epoch `to`, is not for us: the end of an epoch is no news, and
 * what was said to another, or begins in the middle, was meant for the one before us.
 */
static bool epoch_is(struct svc_mail_peer *p, uint32_t epoch, uint32_t number, uint32_t to)
{
	if (epoch == p->from)
		return true;
	if (epoch == 0 || epoch == p->from_before || number >= SVC_MAIL_RECEIVES ||
	    (to != 0 && to != p->epoch && to != p->epoch_before))
		return false;
	if (p->from_number > 0) {
		forget_said(p);
		if (to != p->epoch) /* it has not heard what we said so far, and cannot go on there */
			epoch_begin(p);
		p->mail->fns->anew(p->mail->arg, p);
	} else if (p->from != 0) { /* of which nothing was handed on */
		early_drop(p);
		p->from_before = p->from;
	}
	p->from = epoch;
	p->from_number = 0;
	return p->ended == XPORT_OK;
}

static void open_letter(struct svc_mail_peer *p, const uint8_t *bytes, size_t len)
{
	struct svc_reader r = svc_reader(bytes, len);
	uint32_t epoch = (uint32_t)svc_read_number(&r, 4), number = (uint32_t)svc_read_number(&r, 4);
	uint32_t to = (uint32_t)svc_read_number(&r, 4);
	struct svc_letter *letter;

	if (r.bad) {
		peer_mute(p);
		return;
	}
	if (!epoch_is(p, epoch, number, to))
		return;
	if (number != p->from_number) {
		early_keep(p, number, r.at, r.left);
		return;
	}
	deliver(p, r.at, r.left);
	while (p->ended == XPORT_OK && p->from == epoch && (letter = early_next(p)) != NULL) {
		deliver(p, letter->bytes, letter->len);
		free(letter);
	}
}

/* What has come in `r`; without memory for its peer it stays there. */
static void take(struct svc_mail *m, struct svc_mail_receive *r)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_ep *ep = r->from;
	struct svc_mail_peer *p;

	r->from = NULL;
	if (m->stopping || ep == NULL || (r->status != XPORT_OK && r->status != XPORT_ERR_TRUNCATED))
		return;
	p = svc_mail_find(m, ep);
	/* Of an endpoint that has ended nobody would tell us again.  One that is not open yet will be, or an event tells. */
	if (p == NULL && (xport_ep_query(ep, &info) != XPORT_OK ||
	                  (info.state != XPORT_EP_OPEN && info.state != XPORT_EP_CONNECTING)))
		return;
	if (p == NULL && (p = svc_mail_peer(m, ep)) == NULL) {
		r->from = ep;
		return;
	}
	if (p->ended != XPORT_OK)
		return;
	if (r->status == XPORT_ERR_TRUNCATED)
		peer_mute(p);
	else
		open_letter(p, r->bytes, r->len);
}

static void take_what_waits(struct svc_mail *m)
{
	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].from != NULL)
			take(m, &m->receive[i]);
	}
}

bool svc_mail_step(struct svc_mail *m, const struct xport_completion *c)
{
	struct svc_mail_receive *r = c == NULL ? NULL : c->context;
	bool own = false;

	if (m->unposted > 0)
		take_what_waits(m);
	if (c != NULL && c->type == XPORT_OP_RECV && r >= m->receive && r < m->receive + SVC_MAIL_RECEIVES) {
		own = true;
		r->posted = false;
		m->unposted++;
		r->from = c->ep;
		r->status = c->status;
		r->len = c->length;
		take(m, r);
	} else if (c != NULL && c->type == XPORT_OP_SEND) {
		own = sent_by_any(m, c);
	} else if (c != NULL && (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)) {
		svc_mail_end(m, c->ep, c->status != XPORT_OK ? c->status : XPORT_ERR_PEER_CLOSED);
	}
	if (m->unposted > 0)
		(void)listen(m);
	m->stuck = false;
	if (m->waiting > 0)
		svc_mail_each(m, send_what_waits);
	return own;
}

/* ---- life ---- */

int svc_mail_open(struct svc_mail *m, xport *x, uint64_t tag, size_t max, const struct svc_mail_fns *fns, void *arg,
                  const char *operation)
{
	struct xport_info info = {.size = sizeof(info)};
	int r = xport_query(x, &info);

	if (r != XPORT_OK)
		return svc_pass(x, r, operation);
	memset(m, 0, sizeof(*m));
	m->x = x;
	m->tag = tag;
	m->max = SVC_MAIL_HEAD + max;
	m->fns = fns;
	m->arg = arg;
	m->receives = info.queue_depth / 4 < SVC_MAIL_RECEIVES ? (info.queue_depth + 3) / 4 : SVC_MAIL_RECEIVES;
	m->buffers = malloc(m->receives * m->max);
	if (m->buffers == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	for (unsigned i = 0; i < m->receives; i++)
		m->receive[i].bytes = m->buffers + (size_t)i * m->max;
	m->unposted = m->receives;
	r = listen(m);
	if (m->unposted < m->receives)
		return XPORT_OK;
	free(m->buffers);
	return svc_pass(x, r, operation);
}

void svc_mail_stop(struct svc_mail *m)
{
	m->stopping = true;
	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].posted)
			(void)xport_cancel(m->x, m->receive[i].id);
	}
}

bool svc_mail_idle(const struct svc_mail *m)
{
	return m->stopping && m->unposted == m->receives && m->flying == 0 && m->waiting == 0;
}

void svc_mail_close(struct svc_mail *m)
{
	for (int i = 0; i < SVC_MAIL_BUCKETS; i++) {
		for (struct svc_mail_peer *p = m->bucket[i], *next; p != NULL; p = next) {
			next = p->next;
			early_drop(p);
			free(p->spare);
			free(p);
		}
	}
	free(m->buffers);
}
