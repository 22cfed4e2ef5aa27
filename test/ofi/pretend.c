/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend.c - what is said, and the objects that carry nothing: fabric, domain, memory, addresses, connection events. */
#include "pretend.h"

enum { OFFERS = 32, REGIONS_KEYS = 8 };

/* The tables of functions that stand before those of an object. */
struct fabric_front {
	struct fi_ops_fabric ops;
	const struct fi_ops_fabric *below;
};
struct domain_front {
	struct fi_ops_domain ops;
	const struct fi_ops_domain *below;
	struct fi_ops_mr mr_ops;
	struct fi_ops fid_ops;
	const struct fi_ops *fid_below;
};
struct av_front {
	struct fi_ops_av ops;
	const struct fi_ops_av *below;
};
struct eq_front {
	struct fi_ops_eq ops;
	const struct fi_ops_eq *below;
};

int __real_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info);
int __real_fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int __wrap_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info);
int __wrap_fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

struct pretend pretend;
static struct fi_info *offers[OFFERS]; /* as they were */
static int noffers;
static struct xpi_list regions = {&regions, &regions};
static uint64_t next_key = 1;

static void *make(size_t size)
{
	void *p = calloc(1, size);

	CHECK(p != NULL);
	return p;
}

/* ---- fi_getinfo ---- */

bool pretend_is_opaque(void)
{
	return pretend.said->addr_format != FI_SOCKADDR_IN && pretend.said->addr_format != FI_SOCKADDR_IN6;
}

void pretend_scramble(void *addr, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)addr)[i] ^= 0x5a;
}

static void rename_to(struct fi_info *info, const char *name)
{
	free(info->fabric_attr->prov_name);
	info->fabric_attr->prov_name = strdup(name);
	CHECK(info->fabric_attr->prov_name != NULL);
}

static void say(struct fi_info *info, bool ordered)
{
	rename_to(info, PRETEND);
	if (pretend.tell != NULL)
		pretend.tell(info);
	if (pretend.order_as_asked && !ordered)
		info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_NONE;
}

/* An adapter that is known by other means than IP. */
static struct fi_info *foreign(const struct fi_info *like)
{
	struct fi_info *info = fi_dupinfo(like);

	CHECK(info != NULL);
	free(info->src_addr);
	info->addr_format = FI_SOCKADDR_IB;
	info->src_addrlen = 48;
	info->src_addr = make(info->src_addrlen);
	*(uint16_t *)info->src_addr = 27; /* AF_IB */
	return info;
}

static void remember(struct fi_info *list)
{
	noffers = 0;
	for (struct fi_info *i = list; i != NULL && noffers < OFFERS; i = i->next) {
		struct fi_info *next = i->next;

		i->next = NULL;
		offers[noffers] = fi_dupinfo(i);
		i->next = next;
		CHECK(offers[noffers++] != NULL);
	}
}

int __wrap_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info)
{
	const char *name = hints != NULL && hints->fabric_attr != NULL ? hints->fabric_attr->prov_name : NULL;
	struct fi_info *asked;
	bool ordered;
	int rc;

	if (name == NULL || strcmp(name, PRETEND) != 0)
		return __real_fi_getinfo(version, node, service, flags, hints, info);
	asked = fi_dupinfo(hints);
	CHECK(asked != NULL);
	rename_to(asked, pretend.below);
	rc = __real_fi_getinfo(version, node, service, flags, asked, info);
	fi_freeinfo(asked);
	if (rc != 0)
		return rc;
	ordered = (hints->tx_attr->msg_order & hints->rx_attr->msg_order & FI_ORDER_SAS) != 0;
	remember(*info);
	for (struct fi_info *i = *info; i != NULL; i = i->next)
		if (strcmp(i->fabric_attr->prov_name, pretend.below) == 0)
			say(i, ordered);
	if (pretend.no_ip_first) {
		struct fi_info *first = foreign(*info);

		first->next = *info;
		*info = first;
	}
	fi_freeinfo(pretend.said);
	pretend.said = fi_dupinfo(pretend.no_ip_first ? (*info)->next : *info);
	CHECK(pretend.said != NULL);
	/* One that demands what the asker does not know is not for him. */
	if ((pretend.said->mode & ~hints->mode) == 0 &&
	    (pretend.said->domain_attr->mr_mode & ~hints->domain_attr->mr_mode) == 0)
		return 0;
	fi_freeinfo(*info);
	*info = NULL;
	return -FI_ENODATA;
}

struct fi_info *pretend_truth(const struct fi_info *info)
{
	struct fi_info *truth = fi_dupinfo(info), *was = offers[0];
	struct fi_domain_attr *domain;
	struct fi_ep_attr *ep;

	CHECK(truth != NULL && noffers > 0);
	domain = truth->domain_attr;
	ep = truth->ep_attr;
	rename_to(truth, pretend.below);
	truth->caps = was->caps;
	truth->mode = was->mode;
	*truth->tx_attr = *was->tx_attr;
	*truth->rx_attr = *was->rx_attr;
	ep->protocol = was->ep_attr->protocol;
	ep->max_msg_size = was->ep_attr->max_msg_size;
	domain->threading = was->domain_attr->threading;
	domain->control_progress = was->domain_attr->control_progress;
	domain->data_progress = was->domain_attr->data_progress;
	domain->resource_mgmt = was->domain_attr->resource_mgmt;
	domain->av_type = was->domain_attr->av_type;
	domain->mr_mode = was->domain_attr->mr_mode;
	domain->mr_key_size = was->domain_attr->mr_key_size;
	domain->cq_data_size = was->domain_attr->cq_data_size;
	if (pretend_is_opaque()) {
		truth->addr_format = was->addr_format;
		free(truth->src_addr);
		truth->src_addrlen = was->src_addrlen;
		truth->src_addr = make(was->src_addrlen);
		memcpy(truth->src_addr, was->src_addr, was->src_addrlen);
	}
	return truth;
}

/* ---- memory ---- */

static bool key_taken(const struct fid_domain *domain, uint64_t key)
{
	if (pretend.keys_free > 0 && key % 256 >= pretend.keys_free)
		return true;
	xpi_list_for(link, &regions) {
		const struct region *r = xpi_container(link, struct region, link);

		if (r->domain == domain && r->mr.key == key)
			return true;
	}
	return false;
}

static int region_close(struct fid *fid)
{
	struct region *r = xpi_container(fid, struct region, mr.fid);

	CHECK(!pretend_in_use(r), "memory is given back while it is used");
	xpi_list_del(&r->link);
	free(r);
	return 0;
}

static int region_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	struct region *r = xpi_container(fid, struct region, mr.fid);

	CHECK(to->fclass == FI_CLASS_EP && flags == 0 && r->bound == NULL && !r->enabled);
	r->bound = to;
	return 0;
}

static int region_control(struct fid *fid, int command, void *arg)
{
	struct region *r = xpi_container(fid, struct region, mr.fid);

	(void)arg;
	CHECK(command == FI_ENABLE && r->bound != NULL && !r->enabled);
	r->enabled = true;
	return 0;
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
               uint64_t flags, struct fid_mr **mr, void *context)
{
	const struct fi_domain_attr *said = pretend.said->domain_attr;
	struct fid_domain *domain = xpi_container(fid, struct fid_domain, fid);
	struct region *r;

	CHECK(len > 0 && offset == 0 && flags == 0 && (access & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV));
	if (said->mr_mode & FI_MR_PROV_KEY) {
		key = next_key++;
	} else {
		CHECK(said->mr_key_size >= 8 || key >> (8 * said->mr_key_size) == 0, "key %llx for %zu bytes",
		      (unsigned long long)key, said->mr_key_size);
		if (key_taken(domain, key))
			return -FI_ENOKEY;
	}
	r = make(sizeof(*r));
	r->ops = (struct fi_ops){
		.size = sizeof(r->ops), .close = region_close, .bind = region_bind, .control = region_control};
	r->mr = (struct fid_mr){
		.fid = {.fclass = FI_CLASS_MR, .context = context, .ops = &r->ops}, .mem_desc = r, .key = key};
	r->domain = domain;
	r->base = buf;
	r->len = len;
	r->enabled = (said->mr_mode & FI_MR_ENDPOINT) == 0;
	xpi_list_push(&regions, &r->link);
	pretend.regs++;
	*mr = &r->mr;
	return 0;
}

void pretend_check_memory(const struct fid_ep *ep, const void *buf, size_t len, void *desc)
{
	const struct region *r = desc;
	const uint8_t *at = buf;
	bool known = false;

	if ((pretend.said->domain_attr->mr_mode & FI_MR_LOCAL) == 0)
		return;
	xpi_list_for(link, &regions)
		known |= xpi_container(link, struct region, link) == r;
	CHECK(known, "%p is no descriptor", desc);
	CHECK(at >= r->base && at + len <= r->base + r->len, "%zu bytes outside what was registered", len);
	CHECK(r->enabled, "the memory was not enabled");
	CHECK(r->bound == NULL || r->bound == &ep->fid, "the memory is of another endpoint");
}

/* ---- addresses ---- */

static int av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *to, uint64_t flags, void *context)
{
	const struct av_front *f = xpi_container(av->ops, struct av_front, ops);
	uint8_t bytes[sizeof(struct sockaddr_in)] = {0};
	int rc;

	CHECK(count == 1 && flags == 0);
	if (pretend_is_opaque()) {
		memcpy(bytes, addr, pretend.said->src_addrlen);
		pretend_scramble(bytes, pretend.said->src_addrlen);
		addr = bytes;
	}
	rc = f->below->insert(av, addr, count, to, flags, context);
	if (rc == 1)
		*to = pretend_addr_out(*to);
	return rc;
}

static int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
	const struct domain_front *front = xpi_container(domain->ops, struct domain_front, ops);
	enum fi_av_type type = pretend.said->domain_attr->av_type;
	struct fi_av_attr below = *attr;
	struct av_front *f;
	int rc;

	CHECK(type == FI_AV_UNSPEC || attr->type == type, "a vector of type %d", attr->type);
	below.type = FI_AV_UNSPEC;
	rc = front->below->av_open(domain, &below, av, context);
	if (rc != 0)
		return rc;
	f = make(sizeof(*f));
	f->below = (*av)->ops;
	f->ops = *f->below;
	f->ops.insert = av_insert;
	(*av)->ops = &f->ops;
	return 0;
}

/* ---- domain, fabric, events ---- */

static int endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	const struct domain_front *f = xpi_container(domain->ops, struct domain_front, ops);
	int rc = f->below->endpoint(domain, pretend_truth(info), ep, context);

	if (rc == 0)
		pretend_ep(*ep);
	return rc;
}

static int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	const struct domain_front *f = xpi_container(domain->ops, struct domain_front, ops);
	int rc;

	if (pretend.no_wait && attr->wait_obj != FI_WAIT_NONE)
		return -FI_ENOSYS;
	rc = f->below->cq_open(domain, attr, cq, context);
	if (rc == 0)
		pretend_cq(*cq);
	return rc;
}

static int domain_close(struct fid *fid)
{
	struct fid_domain *domain = xpi_container(fid, struct fid_domain, fid);
	struct domain_front *f = xpi_container(fid->ops, struct domain_front, fid_ops);

	xpi_list_for(link, &regions)
		CHECK(xpi_container(link, struct region, link)->domain != domain, "memory is still registered");
	domain->ops = (struct fi_ops_domain *)(uintptr_t)f->below;
	return f->fid_below->close(fid);
}

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	const struct fabric_front *front = xpi_container(fabric->ops, struct fabric_front, ops);
	struct domain_front *f;
	int rc = front->below->domain(fabric, pretend_truth(info), domain, context);

	if (rc != 0)
		return rc;
	f = make(sizeof(*f));
	f->below = (*domain)->ops;
	f->fid_below = (*domain)->fid.ops;
	f->ops = *f->below;
	f->ops.av_open = av_open;
	f->ops.cq_open = cq_open;
	f->ops.endpoint = endpoint;
	f->mr_ops = (struct fi_ops_mr){.size = sizeof(f->mr_ops), .reg = reg};
	f->fid_ops = *f->fid_below;
	f->fid_ops.close = domain_close;
	(*domain)->ops = &f->ops;
	(*domain)->mr = &f->mr_ops;
	(*domain)->fid.ops = &f->fid_ops;
	return 0;
}

static int passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
{
	const struct fabric_front *f = xpi_container(fabric->ops, struct fabric_front, ops);

	return f->below->passive_ep(fabric, pretend_truth(info), pep, context);
}

/* A connection that is asked for is one of this provider's, too. */
static ssize_t eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	const struct eq_front *f = xpi_container(eq->ops, struct eq_front, ops);
	ssize_t n = f->below->read(eq, event, buf, len, flags);

	if (n > 0 && *event == FI_CONNREQ)
		say(((struct fi_eq_cm_entry *)buf)->info, true);
	return n;
}

static int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	const struct fabric_front *front = xpi_container(fabric->ops, struct fabric_front, ops);
	struct eq_front *f;
	int rc = front->below->eq_open(fabric, attr, eq, context);

	if (rc != 0)
		return rc;
	f = make(sizeof(*f));
	f->below = (*eq)->ops;
	f->ops = *f->below;
	f->ops.read = eq_read;
	(*eq)->ops = &f->ops;
	return 0;
}

int __wrap_fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct fabric_front *f;
	int rc;

	if (strcmp(attr->prov_name, PRETEND) != 0)
		return __real_fi_fabric(attr, fabric, context);
	rc = __real_fi_fabric(fi_dupinfo(offers[0])->fabric_attr, fabric, context);
	if (rc != 0)
		return rc;
	f = make(sizeof(*f));
	f->below = (*fabric)->ops;
	f->ops = *f->below;
	f->ops.domain = domain_open;
	f->ops.passive_ep = passive_ep;
	f->ops.eq_open = eq_open;
	(*fabric)->ops = &f->ops;
	return 0;
}
