/* SPDX-License-Identifier: BSD-3-Clause */
/* harness_x.c - instances, endpoints, operations and their completions. */
#include "harness.h"

#include <dirent.h>
#include <poll.h>

#include "shared.h"

/* Operations live in chunks that never move: their address is the context of the operation. */
enum { CHUNK = 256 };
struct h_chunk {
	struct h_chunk *next;
	int used;
	struct h_op op[CHUNK];
};

/* ---- instance and endpoints ---- */

static bool keep(char *log, size_t room, atomic_uint *used, const char *text, int len)
{
	unsigned at = atomic_fetch_add(used, (unsigned)len);

	if (at + (unsigned)len >= room)
		return false;
	memcpy(log + at, text, (size_t)len);
	return true;
}

static void log_line(void *arg, int level, const char *id, const char *line)
{
	static const char *const names[] = {"?", "ERROR", "WARN", "INFO", "DEBUG"};
	struct h_role_shared *r = arg;
	char text[800];
	int len;

	len = snprintf(text, sizeof(text), "%s %s %s\n", names[level >= 1 && level <= 4 ? level : 0], id, line);
	if (len >= (int)sizeof(text)) {
		len = sizeof(text) - 1;
		text[len - 1] = '\n';
	}
	if (!keep(r->log, sizeof(r->log), &r->nlog, text, len) && level <= XPORT_LOG_WARN)
		(void)keep(r->late, sizeof(r->late), &r->nlate, text, len);
}

static const struct h_place *place(const struct h *h)
{
	return h->config->place ? &h->config->place[h->role & 1] : NULL;
}

struct xport_attr h_attr(struct h *h)
{
	struct xport_attr a = {.size = sizeof(a)};
	const char *level = getenv("H_LOG_LEVEL");

	a.backend = place(h) ? place(h)->backend : h->config->backend;
	a.emulate = h->config->emulate ? "all" : NULL;
	a.log_fn = log_line;
	a.log_arg = &h->shared->role[h->role];
	a.log_level = level ? atoi(level) : XPORT_LOG_INFO;
	return a;
}

bool h_asked_for(const struct h *h, const char *name)
{
	const char *item = h->config->backend;

	if (strstr(item, name))
		return true;
	for (size_t n; *item; item += n + (item[n] != 0)) {
		n = strcspn(item, "+,");
		if (n > 0 && strncmp(name, item, n) == 0 && name[n] == ':')
			return true;
	}
	return false;
}

void h_open(struct h *h, const struct xport_attr *attr)
{
	struct xport_attr a = h_attr(h);

	H_OK(xport_open(attr ? attr : &a, &h->x));
	h->info.size = sizeof(h->info);
	H_OK(xport_query(h->x, &h->info));
}

void h_listen(struct h *h)
{
	char name[80];

	if (h->listener)
		return;
	snprintf(name, sizeof(name), "%s:0", place(h) ? place(h)->address : "127.0.0.1");
	H_OK(xport_listen(h->x, name, NULL, &h->listener));
	H_OK(xport_listener_name(h->listener, h->address, sizeof(h->address)));
}

/* Longer than a machine stands still (h_tick): the library's clock goes on meanwhile. */
enum { CONNECT_MS = 25000 };

xport_ep *h_accept(struct h *h)
{
	xport_ep *ep = NULL;

	H_OK(xport_accept(h->listener, h_ms(CONNECT_MS), &ep));
	return ep;
}

xport_ep *h_connect(struct h *h, const char *address)
{
	xport_ep *ep = NULL;

	H_OK(xport_connect(h->x, address, NULL, h_ms(CONNECT_MS), &ep));
	return ep;
}

void h_pair(struct h *h, int role)
{
	char address[80];

	if (h->role < role) {
		h_listen(h);
		h_tell(h, role, h->address, sizeof(h->address));
		h->ep[role] = h_accept(h);
		h_progress(h); /* takes XPORT_EVENT_INCOMING */
	} else {
		h_hear(h, role, address, sizeof(address));
		h->ep[role] = h_connect(h, address);
	}
	h_sync_with(h, role);
}

void h_mesh(struct h *h, const struct xport_attr *attr)
{
	h_open(h, attr);
	/* in an order in which nobody waits in a circle */
	for (int i = 0; i < h->nroles; i++)
		for (int j = i + 1; j < h->nroles; j++) {
			if (h->role == i)
				h_pair(h, j);
			else if (h->role == j)
				h_pair(h, i);
		}
	h_sync(h);
}

/* ---- completions ---- */

static void queue(struct h *h, const struct xport_completion *c)
{
	if (h->nqueue == h->queue_room) {
		h->queue_room = h->queue_room ? 2 * h->queue_room : 64;
		h->queue = realloc(h->queue, (size_t)h->queue_room * sizeof(*h->queue));
		H_TRUE(h->queue != NULL);
	}
	h->queue[h->nqueue++] = *c;
}

static struct h_op *find(struct h *h, const void *context)
{
	for (struct h_chunk *k = h->ops; k; k = k->next)
		if (context >= (const void *)k->op && context < (const void *)(k->op + k->used))
			return (struct h_op *)context;
	return NULL;
}

static void note(struct h *h, const struct xport_completion *c)
{
	struct h_op *op = c->type < XPORT_EVENT_NOTIFY ? find(h, c->context) : NULL;

	if (c->type == XPORT_EVENT_INCOMING && !h->incoming)
		return;
	if (!op) {
		queue(h, c);
		return;
	}
	h->pending -= op->done++ == 0;
	op->c = *c;
	H_CHECK(op->done == 1, "operation of type %d completed %d times, now %s", op->type, op->done,
	        xport_status_name(c->status));
	H_CHECK(!op->quiet, "a quiet operation completed: %s", xport_status_name(c->status));
	H_CHECK((int)c->type == op->type, "posted as %d, completed as %u", op->type, c->type);
}

/* Which peer it is must stand in what the application did not post itself, and in nothing else of an endpoint that lives. */
static void check_peer(struct h *h, const struct xport_completion *c)
{
	bool came = c->type == XPORT_OP_RECV || c->type == XPORT_EVENT_NOTIFY || c->type == XPORT_EVENT_ACCEPTED;

	if (came && c->ep)
		H_CHECK(c->peer != 0 && c->peer == xport_ep_peer(c->ep), "the peer is %" PRIx64 ", not %" PRIx64,
		        c->peer, xport_ep_peer(c->ep));
	else if (!c->ep && !came && c->type != XPORT_OP_RECV_END) /* that of XPORT_PEER has one */
		H_EQ(0, c->peer);
}

int h_progress(struct h *h)
{
	struct xport_completion c[32];
	int n = xport_poll(h->x, c, 32);

	H_CHECK(n >= 0, "xport_poll: %s", xport_status_name(n));
	for (int i = 0; i < n; i++) {
		check_peer(h, &c[i]);
		note(h, &c[i]);
	}
	if (atomic_load_explicit(&h->shared->stuck, memory_order_relaxed) && !h->dumped) {
		h->dumped = true;
		xport_dump(h->x);
	}
	return n;
}

void h_breathe(struct h *h)
{
	struct pollfd p = {.fd = -1, .events = POLLIN};

	for (int i = 0; i < 32; i++)
		if (h_progress(h) > 0)
			return;
	p.fd = xport_fd(h->x);
	poll(&p, 1, 2);
}

/* ---- operations ---- */

struct h_op *h_op(struct h *h, int type)
{
	struct h_chunk *k = h->ops;

	if (!k || k->used == CHUNK) {
		k = calloc(1, sizeof(*k));
		H_TRUE(k != NULL);
		k->next = h->ops;
		h->ops = k;
	}
	k->op[k->used].type = type;
	h->pending++;
	return &k->op[k->used++];
}

void h_op_drop(struct h *h, struct h_op *op)
{
	op->quiet = true;
	h->pending--;
}

static struct h_op *accepted(struct h *h, struct h_op *op, const char *what, int status, uint64_t flags)
{
	h_check_status(h, __FILE__, __LINE__, what, XPORT_OK, status);
	if (flags & XPORT_QUIET)
		h_op_drop(h, op);
	return op;
}

static struct xport_opt opt_of(struct h_op *op, const struct h_at *at, uint64_t flags)
{
	struct xport_opt o = {.size = sizeof(o), .flags = flags, .context = op, .mr = at ? at->m->mr : NULL};

	return o;
}

struct h_op *h_put(struct h *h, xport_ep *ep, const struct h_at *from, const struct h_rkey *to, uint64_t offset,
                   uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_PUT);
	struct xport_opt o = opt_of(op, from, flags);
	int s;

	while ((s = xport_put(ep, from->m->p + from->at, from->len, to->k, to->offset + offset, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_put", s, flags);
}

static struct h_op *get(struct h *h, xport_ep *ep, const struct h_at *to, const struct h_rkey *from, uint64_t offset,
                        uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_GET);
	struct xport_opt o = opt_of(op, to, flags);
	int s;

	while ((s = xport_get(ep, to->m->p + to->at, to->len, from->k, from->offset + offset, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_get", s, flags);
}

struct h_op *h_get(struct h *h, xport_ep *ep, const struct h_at *to, const struct h_rkey *from, uint64_t offset)
{
	return get(h, ep, to, from, offset, 0);
}

void h_get_quiet(struct h *h, xport_ep *ep, const struct h_at *to, const struct h_rkey *from, uint64_t offset)
{
	get(h, ep, to, from, offset, XPORT_QUIET);
}

struct h_op *h_notify(struct h *h, xport_ep *ep, const struct h_at *from, const struct h_rkey *to, uint64_t offset,
                      uint64_t value, uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_PUT_NOTIFY);
	struct xport_opt o = opt_of(op, from, flags);
	int s;

	o.value = value;
	while ((s = xport_put_notify(ep, from->m->p + from->at, from->len, to->k, to->offset + offset, &o)) ==
	       XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_put_notify", s, flags);
}

struct h_op *h_atomic(struct h *h, xport_ep *ep, int kind, int width, uint64_t operand, uint64_t compare, void *result,
                      const struct h_rkey *to, uint64_t offset)
{
	struct h_op *op = h_op(h, XPORT_OP_ATOMIC);
	struct xport_opt o = opt_of(op, NULL, 0);
	struct xport_atomic_args a = {.size = sizeof(a),
	                              .op = kind,
	                              .width = width,
	                              .operand = operand,
	                              .compare = compare,
	                              .result = result};
	int s;

	while ((s = xport_atomic(ep, &a, to->k, to->offset + offset, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_atomic", s, 0);
}

struct h_op *h_try_send(struct h *h, xport_ep *ep, const void *buf, size_t len, uint64_t tag, int *status)
{
	struct h_op *op = h_op(h, XPORT_OP_SEND);
	struct xport_opt o = opt_of(op, NULL, 0);

	*status = xport_send(ep, buf, len, tag, &o);
	if (*status == XPORT_OK)
		return op;
	h->pending--;
	h->ops->used--;
	return NULL;
}

struct h_op *h_send(struct h *h, xport_ep *ep, const void *buf, size_t len, uint64_t tag)
{
	struct h_op *op;
	int s;

	while (!(op = h_try_send(h, ep, buf, len, tag, &s)) && s == XPORT_ERR_AGAIN)
		h_breathe(h);
	H_STATUS(XPORT_OK, s);
	return op;
}

struct h_op *h_send_at(struct h *h, xport_ep *ep, const struct h_at *from, uint64_t tag, uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_SEND);
	struct xport_opt o = opt_of(op, from, flags);
	int s;

	while ((s = xport_send(ep, from->m->p + from->at, from->len, tag, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_send", s, flags);
}

struct h_op *h_recv(struct h *h, xport_ep *source, void *buf, size_t len, uint64_t tag, uint64_t mask)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = opt_of(op, NULL, 0);
	int s;

	o.source = source;
	o.id = &op->id;
	while ((s = xport_recv(h->x, buf, len, tag, mask, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_recv", s, 0);
}

struct h_op *h_recv_at(struct h *h, const struct h_at *to, uint64_t tag)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = opt_of(op, to, 0);
	int s;

	while ((s = xport_recv(h->x, to->m->p + to->at, to->len, tag, UINT64_MAX, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_recv", s, 0);
}

struct h_op *h_flush(struct h *h, xport_ep *ep)
{
	struct h_op *op = h_op(h, XPORT_OP_FLUSH);
	struct xport_opt o = opt_of(op, NULL, 0);
	int s;

	while ((s = xport_flush(ep, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	return accepted(h, op, "xport_flush", s, 0);
}

/* ---- wait ---- */

void h_wait_ended(struct h *h, const char *file, int line, struct h_op *op)
{
	int64_t end = h_now_us() + (int64_t)h_ms(h->limit_ms) * 1000;

	while (!op->done) {
		if (h_now_us() > end) {
			xport_dump(h->x);
			h->dumped = true;
			atomic_store(&h->shared->stuck, true);
			usleep(200000);
			h_fail(h, file, line, "wait", "operation of type %d did not complete in %d ms", op->type,
			       h_ms(h->limit_ms));
		}
		h_breathe(h);
	}
}

void h_wait_done(struct h *h, const char *file, int line, struct h_op *op, int expected)
{
	char what[64];

	h_wait_ended(h, file, line, op);
	snprintf(what, sizeof(what), "completion of an operation of type %d", op->type);
	h_check_status(h, file, line, what, expected, op->c.status);
}

/* The limit is for going without a completion, not for all of them: a loaded machine is slow, but does not stop. */
void h_settle(struct h *h)
{
	int64_t last = h_now_us();
	int pending = h->pending;

	while (h->pending) {
		bool stuck = h_now_us() - last > (int64_t)h_ms(h->limit_ms) * 1000;

		if (stuck)
			xport_dump(h->x);
		H_CHECK(!stuck, "%d operations did not complete, and none has for %d ms", pending, h_ms(h->limit_ms));
		h_breathe(h);
		if (h->pending != pending)
			last = h_now_us();
		pending = h->pending;
	}
}

bool h_event_now(struct h *h, uint32_t type, struct xport_completion *c)
{
	for (int i = 0; i < h->nqueue; i++)
		if (h->queue[i].type == type) {
			*c = h->queue[i];
			memmove(&h->queue[i], &h->queue[i + 1], (size_t)(--h->nqueue - i) * sizeof(*c));
			return true;
		}
	return false;
}

struct xport_completion h_event_at(struct h *h, const char *file, int line, uint32_t type)
{
	int64_t end = h_now_us() + (int64_t)h_ms(h->limit_ms) * 1000;
	struct xport_completion c;

	while (!h_event_now(h, type, &c)) {
		if (h_now_us() > end)
			h_fail(h, file, line, "event", "none of type %u came in %d ms", type, h_ms(h->limit_ms));
		h_breathe(h);
	}
	return c;
}

int64_t h_starved_us(void)
{
	DIR *d = opendir("/proc/self/task");
	int64_t all = 0, waited;

	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "re");
		if (f != NULL && fscanf(f, "%*d %" SCNd64, &waited) == 1)
			all += waited / 1000;
		if (f != NULL)
			fclose(f);
	}
	if (d != NULL)
		closedir(d);
	return all;
}

int64_t h_lost_within(struct h *h, xport_ep *ep, int64_t since_us, int max_ms)
{
	int64_t starved = h_starved_us();
	struct xport_completion c = H_EVENT(XPORT_EVENT_LOST);
	int64_t took = h_now_us() - since_us;

	H_TRUE(c.ep == ep);
	H_EQ(XPORT_ERR_PEER_LOST, c.status);
	starved = h_starved_us() - starved;
	H_CHECK(took <= (int64_t)h_ms(max_ms) * 1000 + starved,
	        "lost after %" PRId64 " us, allowed %d ms, and %" PRId64 " us that this process was kept from running",
	        took, h_ms(max_ms), starved);
	return took;
}

void h_forget(struct h *h)
{
	h->x = NULL;
	h->listener = NULL;
	memset(h->ep, 0, sizeof(h->ep));
	h->nqueue = 0;
}

void h_finish(struct h *h)
{
	h->idle = false;
	h_sync(h);
	if (h->x) {
		h_progress(h);
		xport_close(h->x);
	}
	for (struct h_chunk *k = h->ops, *next; k; k = next) {
		next = k->next;
		free(k);
	}
	free(h->queue);
	while (h->kept)
		h_buf_free(h, NULL);
}
