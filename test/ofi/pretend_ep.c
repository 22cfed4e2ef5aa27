/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_ep.c - what is sent and received, and what completes. */
#include "pretend.h"

enum { LATE_READS = 40, FLIGHTS = 4096, WORDS = sizeof(struct fi_context2) / sizeof(uintptr_t) };

struct ep_front {
	struct fid_ep *ep;
	struct fi_ops fid_ops;
	const struct fi_ops *fid_below;
	struct fi_ops_msg msg;
	const struct fi_ops_msg *msg_below;
	struct fi_ops_cm cm;
	const struct fi_ops_cm *cm_below;
	struct xpi_list link;
	struct xpi_list waiting; /* struct waiting: accepted, and not given to the provider below yet */
	unsigned sends, recvs;   /* that it has */
};

struct waiting {
	struct xpi_list link;
	struct iovec iov[2];
	size_t count;
	fi_addr_t to;
	void *context; /* NULL: of an inject, the bytes are in `copy` */
	uint8_t copy[];
};

/* An operation from its call to its completion. */
struct flight {
	uintptr_t *context; /* NULL: free */
	struct ep_front *ep; /* NULL: its endpoint was closed */
	const struct region *region;
	bool recv;
	/* completed, but nobody was told yet */
	unsigned reads_left;
	struct fid_cq *cq;
	struct fi_cq_msg_entry entry;
};

struct cq_front {
	struct fi_ops_cq ops;
	const struct fi_ops_cq *below;
};

static struct flight flights[FLIGHTS];
static struct xpi_list fronts = {&fronts, &fronts};

static void *make(size_t size)
{
	void *p = calloc(1, size);

	CHECK(p != NULL);
	return p;
}

/* ---- addresses ---- */

enum { ADDR_STEP = 0x1000 };
static const fi_addr_t addr_base = UINT64_C(0x7e57000000000000);

static bool is_map(void)
{
	return pretend.said->domain_attr->av_type == FI_AV_MAP;
}

fi_addr_t pretend_addr_out(fi_addr_t below)
{
	return is_map() ? addr_base + below * ADDR_STEP : below;
}

static fi_addr_t addr_in(fi_addr_t to)
{
	if (!is_map() || pretend.said->ep_attr->type != FI_EP_RDM)
		return to;
	CHECK(to >= addr_base && (to - addr_base) % ADDR_STEP == 0, "no address that was given out");
	return (to - addr_base) / ADDR_STEP;
}

/* ---- contexts ---- */

static struct flight *find(const void *context)
{
	for (int i = 0; i < FLIGHTS; i++)
		if (flights[i].context == context)
			return &flights[i];
	return NULL;
}

/* The provider has the context from here on, and writes to it. */
static struct flight *depart(struct ep_front *f, void *context, void *desc, bool recv)
{
	struct flight *flight;

	CHECK(context != NULL, "no context");
	CHECK(find(context) == NULL, "a context is used a second time before its completion");
	flight = find(NULL);
	CHECK(flight != NULL);
	*flight = (struct flight){.context = context, .ep = f, .region = desc, .recv = recv};
	for (uintptr_t i = 0; i < WORDS; i++)
		flight->context[i] = (uintptr_t)context ^ (i * 0x0101010101);
	return flight;
}

static void land(void *context)
{
	struct flight *flight = context != NULL ? find(context) : NULL;

	CHECK(flight != NULL || context == NULL, "a completion of nothing");
	if (flight == NULL)
		return;
	if (flight->ep != NULL) {
		for (uintptr_t i = 0; i < WORDS; i++)
			CHECK(flight->context[i] == ((uintptr_t)context ^ (i * 0x0101010101)),
			      "a context was written to before its completion");
		flight->ep->sends -= !flight->recv;
		flight->ep->recvs -= flight->recv;
	}
	*flight = (struct flight){0};
}

bool pretend_in_use(const struct region *region)
{
	for (int i = 0; i < FLIGHTS; i++)
		if (flights[i].context != NULL && flights[i].ep != NULL && flights[i].region == region)
			return true;
	return false;
}

/* ---- sending ---- */

static struct ep_front *front_of(struct fid_ep *ep)
{
	return xpi_container(ep->msg, struct ep_front, msg);
}

static size_t length(const struct iovec *iov, size_t count)
{
	size_t len = 0;

	for (size_t i = 0; i < count; i++)
		len += iov[i].iov_len;
	CHECK(len <= pretend.said->ep_attr->max_msg_size, "%zu bytes are too long", len);
	pretend.longest = len > pretend.longest ? len : pretend.longest;
	return len;
}

/* Later: by the next poll. */
static void wait_for_poll(struct ep_front *f, struct waiting *w, const struct iovec *iov, size_t count, fi_addr_t to,
                          void *context)
{
	memcpy(w->iov, iov, count * sizeof(*iov));
	w->count = count;
	w->to = addr_in(to);
	w->context = context;
	xpi_list_push(&f->waiting, &w->link);
}

static ssize_t post_send(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
                         void *context)
{
	struct ep_front *f = front_of(ep);

	length(iov, count);
	CHECK(count <= pretend.said->tx_attr->iov_limit, "%zu pieces", count);
	for (size_t i = 0; i < count; i++)
		pretend_check_memory(ep, iov[i].iov_base, iov[i].iov_len, desc != NULL ? desc[i] : NULL);
	CHECK(f->sends < pretend.said->tx_attr->size, "more sends than there is room for");
	depart(f, context, desc != NULL ? desc[0] : NULL, false);
	f->sends++;
	pretend.most_sends = f->sends > pretend.most_sends ? f->sends : pretend.most_sends;
	pretend.sends++;
	wait_for_poll(f, make(sizeof(struct waiting)), iov, count, to, context);
	return 0;
}

static ssize_t ep_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};

	return post_send(ep, &iov, &desc, 1, to, context);
}

static ssize_t ep_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
                        void *context)
{
	CHECK(count <= 2);
	return post_send(ep, iov, desc, count, to, context);
}

static ssize_t ep_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to)
{
	struct waiting *w = make(sizeof(*w) + len);
	struct iovec iov = {w->copy, len};

	length(&iov, 1);
	CHECK(len <= pretend.said->tx_attr->inject_size, "%zu bytes are too long to be injected", len);
	/* Nobody says when its entry is free again. */
	CHECK(pretend.said->domain_attr->resource_mgmt == FI_RM_ENABLED, "what is injected cannot be counted");
	memcpy(w->copy, buf, len);
	wait_for_poll(front_of(ep), w, &iov, 1, to, NULL);
	pretend.injects++;
	return 0;
}

static ssize_t ep_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	struct ep_front *f = front_of(ep);
	ssize_t rc;

	CHECK(pretend.said->rx_attr->iov_limit >= 1);
	pretend_check_memory(ep, buf, len, desc);
	CHECK(f->recvs < pretend.said->rx_attr->size, "more receives than there is room for");
	CHECK(from == FI_ADDR_UNSPEC);
	depart(f, context, desc, true);
	rc = f->msg_below->recv(ep, buf, len, NULL, from, context);
	if (rc != 0) {
		*find(context) = (struct flight){0};
		return rc;
	}
	f->recvs++;
	pretend.most_recvs = f->recvs > pretend.most_recvs ? f->recvs : pretend.most_recvs;
	pretend.recvs++;
	return 0;
}

static ssize_t give(const struct ep_front *f, const struct waiting *w)
{
	if (w->context == NULL)
		return f->msg_below->inject(f->ep, w->copy, w->iov[0].iov_len, w->to);
	if (w->count == 1)
		return f->msg_below->send(f->ep, w->iov[0].iov_base, w->iov[0].iov_len, NULL, w->to, w->context);
	return f->msg_below->sendv(f->ep, w->iov, NULL, w->count, w->to, w->context);
}

static void give_all(void)
{
	xpi_list_for(link, &fronts) {
		struct ep_front *f = xpi_container(link, struct ep_front, link);

		while (!xpi_list_empty(&f->waiting)) {
			struct waiting *w = xpi_container(f->waiting.next, struct waiting, link);

			if (give(f, w) != 0)
				break; /* full, or its connection ended, which others tell */
			xpi_list_del(&w->link);
			free(w);
		}
	}
}

/* ---- ending, enabling, names ---- */

static int ep_close(struct fid *fid)
{
	struct ep_front *f = xpi_container(fid->ops, struct ep_front, fid_ops);

	while (!xpi_list_empty(&f->waiting))
		free(xpi_container(xpi_list_pop(&f->waiting), struct waiting, link));
	for (int i = 0; i < FLIGHTS; i++)
		if (flights[i].ep == f)
			flights[i].ep = NULL;
	f->ep->msg = (struct fi_ops_msg *)(uintptr_t)f->msg_below;
	f->ep->cm = (struct fi_ops_cm *)(uintptr_t)f->cm_below;
	fid->ops = (struct fi_ops *)(uintptr_t)f->fid_below;
	xpi_list_del(&f->link);
	return f->fid_below->close(fid);
}

static int ep_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	return xpi_container(fid->ops, struct ep_front, fid_ops)->fid_below->bind(fid, to, flags);
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ep_front *f = xpi_container(fid->ops, struct ep_front, fid_ops);
	int rc = f->fid_below->control(fid, command, arg);

	CHECK(f->ep->msg == &f->msg, "the provider has another table of functions now");
	return rc;
}

static int ep_getname(fid_t fid, void *addr, size_t *len)
{
	const struct fid_ep *ep = xpi_container(fid, struct fid_ep, fid);
	const struct ep_front *f = xpi_container(ep->cm, struct ep_front, cm);
	size_t room = *len;
	int rc = f->cm_below->getname(fid, addr, len);

	if (rc != 0 || !pretend_is_opaque())
		return rc;
	CHECK(room >= pretend.said->src_addrlen && *len >= pretend.said->src_addrlen);
	*len = pretend.said->src_addrlen;
	pretend_scramble(addr, *len);
	return 0;
}

void pretend_ep(struct fid_ep *ep)
{
	struct ep_front *f = make(sizeof(*f));

	f->ep = ep;
	f->fid_below = ep->fid.ops;
	f->msg_below = ep->msg;
	f->cm_below = ep->cm;
	f->fid_ops = *f->fid_below;
	f->fid_ops.close = ep_close;
	f->fid_ops.bind = ep_bind;
	f->fid_ops.control = ep_control;
	/* All that the back end calls: the others are NULL. */
	f->msg = (struct fi_ops_msg){
		.size = sizeof(f->msg), .recv = ep_recv, .send = ep_send, .sendv = ep_sendv, .inject = ep_inject};
	f->cm = *f->cm_below;
	f->cm.getname = ep_getname;
	ep->fid.ops = &f->fid_ops;
	ep->msg = &f->msg;
	ep->cm = &f->cm;
	xpi_list_init(&f->waiting);
	xpi_list_push(&fronts, &f->link);
}

/* ---- completions ---- */

/* Nothing of a closed endpoint can come any more. */
static void forget_closed(void)
{
	for (int i = 0; i < FLIGHTS; i++)
		if (flights[i].ep == NULL)
			flights[i] = (struct flight){0};
}

static void reverse(struct fi_cq_msg_entry *e, size_t n)
{
	pretend.turned += n > 1;
	for (size_t i = 0; i < n / 2; i++) {
		struct fi_cq_msg_entry other = e[i];

		e[i] = e[n - 1 - i];
		e[n - 1 - i] = other;
	}
}

/* Keeps what is told later, and adds what is told now; returns how many there are then. */
static size_t delay(struct fid_cq *cq, struct fi_cq_msg_entry *e, size_t n, size_t count)
{
	size_t left = 0;

	for (size_t i = 0; i < n; i++) {
		struct flight *flight = find(e[i].op_context);

		if (flight == NULL || flight->recv || flight->ep == NULL) {
			e[left++] = e[i];
			continue;
		}
		flight->reads_left = LATE_READS;
		flight->cq = cq;
		flight->entry = e[i];
	}
	for (int i = 0; i < FLIGHTS && left < count; i++)
		if (flights[i].ep != NULL && flights[i].cq == cq && flights[i].reads_left > 0 &&
		    --flights[i].reads_left == 0)
			e[left++] = flights[i].entry;
	return left;
}

static ssize_t cq_read(struct fid_cq *cq, void *buf, size_t count)
{
	const struct cq_front *f = xpi_container(cq->ops, struct cq_front, ops);
	struct fi_cq_msg_entry *e = buf;
	ssize_t n;

	give_all();
	n = f->below->read(cq, buf, count);
	if (pretend.late && (n > 0 || n == -FI_EAGAIN)) {
		n = (ssize_t)delay(cq, e, n > 0 ? (size_t)n : 0, count);
		n = n > 0 ? n : -FI_EAGAIN;
	}
	for (ssize_t i = 0; i < n; i++)
		land(e[i].op_context);
	if (n == -FI_EAGAIN)
		forget_closed();
	if (n > 0 && pretend.reversed)
		reverse(e, (size_t)n);
	return n;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *e, uint64_t flags)
{
	const struct cq_front *f = xpi_container(cq->ops, struct cq_front, ops);
	ssize_t n = f->below->readerr(cq, e, flags);

	if (n > 0)
		land(e->op_context);
	return n;
}

void pretend_cq(struct fid_cq *cq)
{
	struct cq_front *f = make(sizeof(*f));

	f->below = cq->ops;
	f->ops = *f->below;
	f->ops.read = cq_read;
	f->ops.readerr = cq_readerr;
	cq->ops = &f->ops;
}
