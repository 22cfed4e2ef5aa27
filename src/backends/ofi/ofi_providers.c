/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_providers.c - the table of providers: which exist, which can be used, and why not.
 *
 * A provider is used as fi_getinfo describes it: with connected endpoints (FI_EP_MSG), or else with unconnected ones
 * (FI_EP_RDM). Names matter for two things only: the order of preference, and the short table of quirks that cannot
 * be found out otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "ofi.h"

/* In order of preference: adapters first, then the fastest over sockets.  Of those that libfabric has besides these, adapters of
 * other makers, by their fi_info.nic, come after verbs, the rest at the end: it may be anything. */
static const char adapters[] = "", others[] = "";
static const char *const known[] = {"verbs",       adapters,      "tcp",         "net",           "sockets", "shm",
                                    "tcp;ofi_rxm", "net;ofi_rxm", "udp;ofi_rxd", "verbs;ofi_rxm", others};

/* 1.17 believes them: sockets in sock_ep_cm_handle_rx; rxm in rxm_rndv_handle_rd_done, where a number of
 * theirs is an index. */
static const char stray_bytes[] = "anyone who can reach its port can crash the process";

/* 1.17 to 2.6 (psmx3_epid_to_epaddr, psmx2_epid_to_epaddr): abort() where the other end does not answer in time, and until
 * then, as when an endpoint is closed, nothing else goes on. */
static const char aborts[] = "it aborts the process if a peer does not answer";

static const struct ofi_quirk quirks[] = {
	/* 1.17 (tcpx_report_success, tcpx_progress), and those before it; 1.18 is another program. */
	{.name = "tcp", .wakes_itself = true, .waits = true},
	/* 1.17: its descriptor stays readable for ever. */
	{.name = "net", .no_fd = true, .waits = true},
	/* Its thread beside a user that polls takes milliseconds for a message, and without it there is no descriptor.
	 * It reads nothing before a header of its own, 24 bytes, is there as a whole.  TCP may cut there when its window is
	 * full, and then opens none before something is read, since few unread bytes can hold much memory: both wait for
	 * ever.  So all that can be under way fits into the window that TCP begins with.  Its variable makes that larger,
	 * but only at the end that did not send first.
	 * A send has one of 128 entries until the peer's provider has answered, and keeps it if its endpoint is closed before;
	 * what it takes at once has one only until it stands in the socket, which has room for all that may be under way. */
	{.name = "sockets",
         .manual = true,
         .no_fd = true,
         .threads = 4,
         .sends = 2,
         .entries = 128,
         .credits = 64,
         .frame = 16384,
         .env = "FI_SOCKETS_MAX_BUF_SZ=1048576",
         .blocks = true,
         .ends_request = true,
         .caution = stray_bytes},
	/* libsiw cannot map what the kernel puts at page 144 of a device's file: to it that is the number of nothing.  After
	 * 16384 completions and one send queue a receive queue would be there.  This many reach beyond it, and for good;
	 * more the kernel's rxe does not make.
	 * A sender that finds no receive waits for 655 ms on InfiniBand and RoCE; on iWARP the connection ends.  Receives are
	 * registered memory, so not too many of them. */
	{.name = "verbs", .cq = 32767, .unready = true, .credits = 32},
	/* What it does not copy at once it leaves to the peer, and waits for it behind all that the peer did not do.
	 * An endpoint is for one peer, and has at most OFI_CREDITS frames of it waiting: a queue of its usual 1024 entries,
	 * each with 4 KiB of /dev/shm, would be for a crowd. */
	{.name = "shm",
         .no_fd = true,
         .inject_only = true,
         .shm_prefix = "fi_shm://",
         .rx = OFI_CREDITS,
         .tx = OFI_CREDITS,
         .cq = 1024},
	/* Any datagram is a peer's to it.  And it sends more of them than the peer's socket has room for while the peer
	 * does something else; what is lost it sends again after up to 4 s. */
	{.name = "udp;ofi_rxd", .no_fd = true, .filtered = true, .sends = 12},
	{.name = "tcp;ofi_rxm", .caution = stray_bytes},
	{.name = "net;ofi_rxm", .caution = stray_bytes},
	{.name = "verbs;ofi_rxm", .caution = stray_bytes},
	/* What it cannot tell anybody ends the process (1.17: efa_eq_write_error).  And between processes of one host it goes by shm,
	 * where small frames overtake long ones, and a killed peer may have taken a lock with it: so not there. */
	{.name = "efa", .tells = true, .remote_only = true},
	{.name = "psm2", .refused = aborts},
	{.name = "psm3", .refused = aborts},
	/* To it every name is one of this host. */
	{.name = "sm2", .refused = "libxport does not support it: use ofi:shm"},
	/* Sending and closing wait for the peer there. */
	{.name = "ucx", .refused = "it blocks while it waits for peers: use the back end ucx"},
	{.name = "mlx", .refused = "it blocks while it waits for peers: use the back end ucx"},
	{.name = NULL},
};

const struct ofi_quirk *ofi_quirk(const char *name)
{
	const struct ofi_quirk *q = quirks;

	while (q->name != NULL && strcmp(q->name, name) != 0)
		q++;
	return q;
}

/* ---- asking libfabric ---- */

/* The core counts frames: they come in the order of their sending. */
enum { ORDER = FI_ORDER_SAS };

/* What we can live with.  libfabric answers with what it wants of it. */
static struct fi_info *hints_new(enum fi_ep_type type, const char *name, uint64_t order)
{
	struct fi_info *h = fi_allocinfo();

	if (h == NULL)
		return NULL;
	h->caps = FI_MSG | (name != NULL && ofi_quirk(name)->remote_only ? FI_REMOTE_COMM : 0);
	h->tx_attr->msg_order = h->rx_attr->msg_order = order;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->ep_attr->type = type;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	if (name != NULL)
		h->fabric_attr->prov_name = strdup(name);
	if (name != NULL && h->fabric_attr->prov_name == NULL) {
		fi_freeinfo(h);
		return NULL;
	}
	if (name != NULL && ofi_quirk(name)->manual)
		h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	return h;
}

static int getinfo(enum fi_ep_type type, const char *name, uint64_t order, struct fi_info **out)
{
	struct fi_info *hints = hints_new(type, name, order);
	int rc;

	*out = NULL;
	if (hints == NULL)
		return -FI_ENOMEM;
	rc = fi_getinfo(OFI_API, NULL, NULL, 0, hints, out);
	fi_freeinfo(hints);
	return rc;
}

/* Takes out of the list what is not of exactly this name - "tcp" also brings "tcp;ofi_rxm" - and what was asked for its order
 * and does not promise it. */
static struct fi_info *exactly(struct fi_info *list, const char *name, uint64_t order)
{
	struct fi_info **p = &list;

	while (*p != NULL) {
		struct fi_info *i = *p;

		if (strcmp(i->fabric_attr->prov_name, name) == 0 &&
		    (i->tx_attr->msg_order & i->rx_attr->msg_order & order) == order) {
			p = &i->next;
			continue;
		}
		*p = i->next;
		i->next = NULL;
		fi_freeinfo(i);
	}
	return list;
}

/* ---- names ---- */

struct names {
	char (*name)[OFI_NAME_LEN];
	int n;
};

static void names_add(struct names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (strcmp(names->name[i], name) == 0)
			return;
	if (names->n < OFI_NAMES && strlen(name) < OFI_NAME_LEN)
		snprintf(names->name[names->n++], OFI_NAME_LEN, "%s", name);
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i], name) == 0)
			return true;
	return false;
}

/* Those with endpoints of this type that are in no table of ours; hooks are not networks. */
static void add_others(struct names *names, enum fi_ep_type type, bool nic)
{
	struct fi_info *list;

	if (getinfo(type, NULL, 0, &list) != 0)
		return;
	for (struct fi_info *i = list; i != NULL; i = i->next)
		if (!is_known(i->fabric_attr->prov_name) && strstr(i->fabric_attr->prov_name, "hook") == NULL &&
		    (i->nic != NULL || !nic))
			names_add(names, i->fabric_attr->prov_name);
	fi_freeinfo(list);
}

int ofi_names(char names[OFI_NAMES][OFI_NAME_LEN])
{
	struct names all = {.name = names};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i] != adapters && known[i] != others) {
			names_add(&all, known[i]);
			continue;
		}
		add_others(&all, FI_EP_MSG, known[i] == adapters);
		add_others(&all, FI_EP_RDM, known[i] == adapters);
	}
	return all.n;
}

/* ---- one of them ---- */

static int provider_unknown(const char *name, struct xport_error *err)
{
	struct xpi_nearest nearest = xpi_nearest(name);
	char names[OFI_NAMES][OFI_NAME_LEN], all[256] = "";
	int n = ofi_names(names);
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		xpi_nearest_look(&nearest, names[i]);
		if (at < sizeof(all))
			at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s", i > 0 ? ", " : "", names[i]);
	}
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, "with XPORT_BACKEND=ofi the best usable provider is chosen",
	                "ofi has no provider '%.60s'; its providers are %s%s%s", name, all,
	                nearest.name != NULL ? "; the nearest is ofi:" : "", nearest.name != NULL ? nearest.name : "");
}

/* One that has a name with us, but that libfabric does not offer. */
static int absent(const char *name, struct xport_error *err)
{
	const char *filter = secure_getenv("FI_PROVIDER");

	if (filter != NULL && filter[0] != '\0')
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, FI_ENODATA, "FI_ENODATA", "unset FI_PROVIDER",
		                "FI_PROVIDER=%.40s excludes it", filter);
	if (strncmp(name, "verbs", 5) == 0)
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, FI_ENODATA, "FI_ENODATA",
		                "ibv_devices lists the RDMA devices; give their ports addresses, and raise `ulimit -l`",
		                "libfabric finds no RDMA device with an address");
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, FI_ENODATA, "FI_ENODATA", "`fi_info -l` lists its providers",
	                "this libfabric does not have it");
}

static const enum fi_ep_type types[] = {FI_EP_MSG, FI_EP_RDM};

/* Whether it is there, but for the order of messages. */
static bool disordered(const char *name)
{
	bool found = false;

	for (int i = 0; i < 2 && !found; i++) {
		struct fi_info *list;

		if (getinfo(types[i], name, 0, &list) == 0)
			list = exactly(list, name, 0);
		found = list != NULL;
		fi_freeinfo(list);
	}
	return found;
}

int ofi_find(const char *name, struct xport_error *err, struct fi_info **out)
{
	char names[OFI_NAMES][OFI_NAME_LEN];
	int n, rc = -FI_ENODATA, broke = 0;

	if (ofi_quirk(name)->refused != NULL)
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, "use ofi:tcp", "%s", ofi_quirk(name)->refused);
	for (int i = 0; i < 2; i++) {
		rc = getinfo(types[i], name, ORDER, out);
		if (rc == 0)
			*out = exactly(*out, name, ORDER);
		if (*out != NULL)
			return XPORT_OK;
		if (rc == -FI_ENOMEM)
			return ofi_fail(err, rc, NULL, "querying libfabric for its providers");
		if (rc != 0 && rc != -FI_ENODATA && rc != -FI_ENOSYS && rc != -FI_ENODEV)
			broke = rc;
	}
	if (disordered(name))
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, "use ofi:tcp",
		                "it does not guarantee message order (FI_ORDER_SAS)");
	n = ofi_names(names);
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return broke != 0 ? ofi_fail(err, broke, "`fi_info` says more, with FI_LOG_LEVEL=info",
			                             "querying libfabric for its providers")
			                  : absent(name, err);
	return provider_unknown(name, err);
}
