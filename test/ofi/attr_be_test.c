/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attr_be_test.c - the libfabric back end over a provider that says other things of itself than those that run here do:
 * what it takes, demands and leaves out as efa, psm3, opx, cxi and verbs have it (pretend.h).  Each case is opened by the
 * code that any provider is opened by, carries frames of all sizes both ways, and must keep to what was said.
 *
 *   attr_be_test [CASE]
 *
 * Each case is a process of its own; libfabric is not touched before.
 */
#include <signal.h>
#include <sys/wait.h>

#include "pretend.h"

extern const struct xpi_backend xpi_backend_ofi;

enum { BURST = 600, BURSTS = 8 };

static bool over_rdm(void)
{
	return pretend.said->ep_attr->type == FI_EP_RDM;
}

/* ---- traffic ---- */

static void sizes(struct end *from, struct end *to)
{
	size_t max = from->side->caps.am_max;

	for (size_t len = 1; len <= max; len = len < 40 ? len + 1 : len < 4000 ? len + 371 : 2 * len - 100)
		for (int k = 0; k < 3; k++) {
			must_send(from, to, to->side->frames, len, k == 0 ? len : k == 1 ? 1 : len / 2 + 1);
			await(from, to, to->side->frames + 1);
		}
	must_send(from, to, to->side->frames, max, 24);
	await(from, to, to->side->frames + 1);
}

/* As many as are taken before anybody polls, long ones and short ones, both ways. */
static void burst(void)
{
	uint64_t to_b = B.frames, to_a = A.frames;

	for (int i = 0; i < BURST; i++) {
		size_t len = i % 3 == 0 ? A.caps.am_max : i % 3 == 1 ? 9 : 700;

		if (send_frame(&a, to_b, len, i % 2 == 0 ? len / 3 + 1 : len) >= 0)
			to_b++;
		if (send_frame(&b, to_a, len, i % 2 == 0 ? len / 3 + 1 : len) >= 0)
			to_a++;
	}
	await(&a, &b, to_b);
	await(&b, &a, to_a);
	for (int64_t end = now_ms() + 10000; busy(&A) || busy(&B); run_both(&A, &B, 1))
		CHECK(now_ms() < end, "they do not leave");
}

static void carry(void)
{
	sizes(&a, &b);
	sizes(&b, &a);
	for (int i = 0; i < BURSTS; i++)
		burst();
	CHECK(a.core_ep.failed == 0 && b.core_ep.failed == 0);
	CHECK(pretend.recvs > 0 && pretend.sends + pretend.injects > 0);
}

static void close_all(void)
{
	leave(&a);
	leave(&b);
	ops->close(A.be);
	ops->close(B.be);
}

/* ---- cases ---- */

static void no_change(void)
{
	CHECK(pretend.injects > 0 && pretend.sends > 0 && pretend.regs == 0);
	CHECK(A.caps.am_max == (over_rdm() ? OFI_FRAME_MAX : OFI_BULK_MAX));
}

static void one_piece(struct fi_info *info)
{
	info->tx_attr->iov_limit = info->rx_attr->iov_limit = 1;
}

static void no_inject(struct fi_info *info)
{
	info->tx_attr->inject_size = 0;
}

static void no_injects(void)
{
	CHECK(pretend.injects == 0 && pretend.sends > 0);
}

/* opx; shorter than a greeting. */
static void inject_16(struct fi_info *info)
{
	info->tx_attr->inject_size = 16;
}

static void local_memory(struct fi_info *info)
{
	info->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info->domain_attr->mr_key_size = 4;
}

static void registered(void)
{
	CHECK(pretend.regs >= 2);
}

static void local_no_inject(struct fi_info *info)
{
	local_memory(info);
	no_inject(info);
}

static void registered_no_injects(void)
{
	registered();
	no_injects();
}

static void memory_of_endpoint(struct fi_info *info)
{
	local_memory(info);
	info->domain_attr->mr_mode |= FI_MR_ENDPOINT;
}

static void contexts(struct fi_info *info)
{
	info->mode |= FI_CONTEXT | FI_CONTEXT2;
}

static void keys(struct fi_info *info, size_t size)
{
	info->domain_attr->mr_mode = FI_MR_LOCAL;
	info->domain_attr->mr_key_size = size;
	info->tx_attr->size = 8; /* so that many endpoints are little memory */
}

static void keys_1(struct fi_info *info)
{
	keys(info, 1);
}

static void keys_2(struct fi_info *info)
{
	keys(info, 2);
}

static void keys_4(struct fi_info *info)
{
	keys(info, 4);
}

static void keys_8(struct fi_info *info)
{
	keys(info, 8);
}

static void small_queues(struct fi_info *info)
{
	info->tx_attr->size = info->rx_attr->size = 4;
}

static void filled_queues(void)
{
	CHECK(pretend.most_sends == 4 && pretend.most_recvs == 4, "%u, %u", pretend.most_sends, pretend.most_recvs);
	/* Who sleeps wakes by a descriptor or by the clock, but does sleep. */
	for (int i = 0; i < 1000 && ops->arm(A.be) != XPORT_OK; i++)
		CHECK(ops->poll(A.be) >= 0 && i < 999, "never rests");
}

/* The same where the provider waits for its peer before it says that something has left. */
static void late_sends(struct fi_info *info)
{
	small_queues(info);
	no_inject(info);
	pretend.late = true;
}

static void late_local_sends(struct fi_info *info)
{
	late_sends(info);
	local_memory(info);
}

/* More than what an unsigned holds. */
static void long_queues(struct fi_info *info)
{
	info->tx_attr->size = info->rx_attr->size = (size_t)1 << 32;
}

static void endless_queues(struct fi_info *info)
{
	info->tx_attr->size = info->rx_attr->size = SIZE_MAX;
	info->tx_attr->iov_limit = SIZE_MAX;
}

static void short_messages(struct fi_info *info)
{
	info->ep_attr->max_msg_size = 8000;
}

static void nothing_longer(void)
{
	CHECK(A.caps.am_max == 8000 && pretend.longest == 8000, "%zu", pretend.longest);
}

static void address_map(struct fi_info *info)
{
	info->domain_attr->av_type = FI_AV_MAP;
}

static void address_table(struct fi_info *info)
{
	info->domain_attr->av_type = FI_AV_TABLE;
}

static void any_order_of_completions(struct fi_info *info)
{
	info->rx_attr->comp_order = info->tx_attr->comp_order = FI_ORDER_NONE;
	pretend.reversed = true;
}

static void turned_around(void)
{
	CHECK(pretend.turned > 0);
}

static void no_wait(struct fi_info *info)
{
	(void)info;
	pretend.no_wait = true;
}

static void order_as_asked(struct fi_info *info)
{
	(void)info;
	pretend.order_as_asked = true;
}

/* Nothing keeps it from overrunning its queues but their user. */
static void unmanaged(struct fi_info *info)
{
	info->domain_attr->resource_mgmt = FI_RM_DISABLED;
	info->tx_attr->size = 8;
	info->rx_attr->size = 64;
}

static void stayed_inside(void)
{
	CHECK(pretend.injects == 0 && pretend.most_sends <= 8);
	/* As many may come as the peer has credits, and as many more that need none. */
	CHECK(A.caps.am_credits >= 4 && pretend.most_recvs >= A.caps.am_credits && pretend.most_recvs <= 64);
}

/* Eight bytes that mean nothing to anybody else; at first sight they may look like one of IPv6, of which they are less. */
static void opaque(struct fi_info *info)
{
	info->addr_format = FI_ADDR_OPX;
	free(info->src_addr);
	info->src_addrlen = 8;
	info->src_addr = calloc(1, info->src_addrlen);
	CHECK(info->src_addr != NULL);
	*(sa_family_t *)info->src_addr = AF_INET6;
}

/* Who polls moves it, and nobody else. */
static void manual(struct fi_info *info)
{
	info->domain_attr->data_progress = info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->threading = FI_THREAD_DOMAIN;
}

/* What only puts and gets, remote data or buffered messages would need. */
static void what_is_not_used(struct fi_info *info)
{
	info->domain_attr->cq_data_size = 0;
	info->domain_attr->mr_iov_limit = 1;
	info->ep_attr->max_order_raw_size = info->ep_attr->max_order_war_size = info->ep_attr->max_order_waw_size = 0;
	info->rx_attr->total_buffered_recv = 0;
	info->tx_attr->rma_iov_limit = 0;
	info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAS;
}

/* ---- whole providers, as libfabric 1.17 has them ---- */

static void as_efa(struct fi_info *info)
{
	info->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info->domain_attr->mr_key_size = 4;
	info->domain_attr->av_type = FI_AV_TABLE;
	info->tx_attr->iov_limit = info->rx_attr->iov_limit = 4;
	any_order_of_completions(info);
	order_as_asked(info);
}

static void as_psm3(struct fi_info *info)
{
	info->mode |= FI_CONTEXT;
	info->tx_attr->inject_size = 64;
	endless_queues(info);
	info->tx_attr->iov_limit = 512;
	info->rx_attr->iov_limit = 1;
	info->ep_attr->max_msg_size = UINT32_MAX & ~(size_t)0xfff;
	any_order_of_completions(info);
}

static void as_opx(struct fi_info *info)
{
	info->mode |= FI_CONTEXT2;
	endless_queues(info);
	inject_16(info);
	address_map(info);
	info->domain_attr->mr_key_size = 2;
	opaque(info);
	manual(info);
	any_order_of_completions(info);
}

static void as_cxi(struct fi_info *info)
{
	info->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info->domain_attr->mr_key_size = 4;
	info->domain_attr->av_type = FI_AV_TABLE;
	info->tx_attr->inject_size = 192;
	info->tx_attr->iov_limit = info->rx_attr->iov_limit = 1;
	any_order_of_completions(info);
}

static void as_verbs(struct fi_info *info)
{
	local_memory(info);
	info->mode |= FI_RX_CQ_DATA;
	info->tx_attr->inject_size = 64;
	info->tx_attr->size = info->rx_attr->size = 384;
	info->tx_attr->iov_limit = info->rx_attr->iov_limit = 4;
	info->ep_attr->max_msg_size = (size_t)1 << 30;
}

/* ---- cases of their own ---- */

/* Another one's keys, which come and go: whatever is free is found, and when none is, the error says so. */
static void run_out_of_keys(const char *provider)
{
	enum { FREE = 3 };
	struct end from[FREE + 1], to[FREE + 1];
	int rc = XPORT_ERR_AGAIN;

	(void)provider;
	pretend.keys_free = FREE;
	open_side(&A, PRETEND);
	for (int i = 0; i <= FREE; i++)
		open_side(i == 0 ? &B : &C, PRETEND); /* a domain of its own for each peer */
	for (int i = 0; i < FREE; i++) {
		prepare(&from[i], &A);
		prepare(&to[i], i == 0 ? &B : &C);
		join(&from[i], &to[i]);
		must_send(&from[i], &to[i], to[i].side->frames, 3000, 24);
		await(&from[i], &to[i], to[i].side->frames + 1);
	}
	prepare(&to[FREE], &B);
	memset(&from[FREE], 0, sizeof(from[FREE]));
	from[FREE].side = &A;
	from[FREE].ep = calloc(1, A.caps.ep_size);
	from[FREE].len = sizeof(from[FREE].addr);
	CHECK(from[FREE].ep != NULL);
	err.text[0] = err.hint[0] = '\0';
	rc = ops->address(A.be, from[FREE].ep, &from[FREE].core_ep, from[FREE].addr, &from[FREE].len);
	if (rc == XPORT_OK)
		rc = ops->ep_connect(A.be, from[FREE].ep, XPI_ACTIVE, to[FREE].addr, to[FREE].len);
	CHECK(rc < 0 && rc != XPORT_ERR_AGAIN, "%d", rc);
	CHECK(strstr(err.text, "key") != NULL && strstr(err.hint, "keys") != NULL, "%s (%s)", err.text, err.hint);
	leave(&from[1]); /* its key is free again */
	prepare(&from[1], &A);
	prepare(&to[1], &B);
	leave(&to[FREE]);
	join(&from[1], &to[1]);
	must_send(&from[1], &to[1], B.frames, 3000, 24);
	await(&from[1], &to[1], B.frames + 1);
}

static void no_order(struct fi_info *info)
{
	info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_NONE;
}

static void refuse_disorder(const char *provider)
{
	(void)provider;
	CHECK(try_open(&A, PRETEND) == XPORT_ERR_NO_BACKEND);
	CHECK(strstr(err.text, "order") != NULL, "%s", err.text);
}

static void very_short_messages(struct fi_info *info)
{
	info->ep_attr->max_msg_size = 2048;
}

static void very_small_queues(struct fi_info *info)
{
	info->domain_attr->resource_mgmt = FI_RM_DISABLED;
	info->rx_attr->size = 8;
}

static void refuse_small(const char *provider)
{
	(void)provider;
	CHECK(try_open(&A, PRETEND) == XPORT_ERR_NO_BACKEND);
	CHECK(strstr(err.text, "too low") != NULL, "%s", err.text);
}

/* Demands that are not known to us: such a provider is not there for us, rather than opened and misused. */
static void unknown_demand(struct fi_info *info)
{
	info->mode |= FI_MSG_PREFIX;
}

static void refuse_demand(const char *provider)
{
	(void)provider;
	CHECK(try_open(&A, PRETEND) == XPORT_ERR_NO_BACKEND, "%s", err.text);
}

/* The first offer is of an adapter that has no address of IP; those that have one are taken. */
static void skip_offer(const char *provider)
{
	(void)provider;
	pretend.no_ip_first = true;
	open_pair(PRETEND);
	carry();
}

/* ---- running ---- */

enum { MSG = 1, RDM = 2, BOTH = MSG | RDM };

static const struct {
	const char *name;
	int over;
	void (*tell)(struct fi_info *info);
	void (*then)(void);                  /* what else must hold, after the traffic */
	void (*alone)(const char *provider); /* in place of all that */
} cases[] = {
	{"no_change", BOTH, NULL, no_change, NULL},
	{"one_piece", BOTH, one_piece, NULL, NULL},
	{"no_inject", BOTH, no_inject, no_injects, NULL},
	{"inject_16", BOTH, inject_16, NULL, NULL},
	{"local_memory", BOTH, local_memory, registered, NULL},
	{"local_no_inject", BOTH, local_no_inject, registered_no_injects, NULL},
	{"memory_of_endpoint", BOTH, memory_of_endpoint, registered, NULL},
	{"contexts", BOTH, contexts, NULL, NULL},
	{"keys_1", BOTH, keys_1, registered, NULL},
	{"keys_2", BOTH, keys_2, registered, NULL},
	{"keys_4", BOTH, keys_4, registered, NULL},
	{"keys_8", BOTH, keys_8, registered, NULL},
	{"no_keys_left", MSG, keys_1, NULL, run_out_of_keys},
	{"small_queues", BOTH, small_queues, filled_queues, NULL},
	{"late_sends", BOTH, late_sends, filled_queues, NULL},
	{"late_local_sends", BOTH, late_local_sends, filled_queues, NULL},
	{"long_queues", BOTH, long_queues, NULL, NULL},
	{"endless_queues", BOTH, endless_queues, NULL, NULL},
	{"short_messages", BOTH, short_messages, nothing_longer, NULL},
	{"too_short_messages", BOTH, very_short_messages, NULL, refuse_small},
	{"too_small_queues", BOTH, very_small_queues, NULL, refuse_small},
	{"address_map", RDM, address_map, NULL, NULL},
	{"address_table", RDM, address_table, NULL, NULL},
	{"any_order_of_completions", BOTH, any_order_of_completions, turned_around, NULL},
	{"order_as_asked", BOTH, order_as_asked, NULL, NULL},
	{"no_order", BOTH, no_order, NULL, refuse_disorder},
	{"unmanaged", BOTH, unmanaged, stayed_inside, NULL},
	{"opaque", RDM, opaque, NULL, NULL},
	{"no_ip_first", MSG, NULL, NULL, skip_offer},
	{"manual", BOTH, manual, NULL, NULL},
	{"no_wait", MSG, no_wait, NULL, NULL},
	{"unknown_demand", BOTH, unknown_demand, NULL, refuse_demand},
	{"what_is_not_used", BOTH, what_is_not_used, NULL, NULL},
	{"as_efa", RDM, as_efa, turned_around, NULL},
	{"as_psm3", RDM, as_psm3, turned_around, NULL},
	{"as_opx", RDM, as_opx, turned_around, NULL},
	{"as_cxi", RDM, as_cxi, turned_around, NULL},
	{"as_verbs", MSG, as_verbs, registered, NULL},
};

static void run_here(size_t i, const char *below)
{
	alarm(120);
	ops = &xpi_backend_ofi;
	pretend.below = below;
	pretend.tell = cases[i].tell;
	if (cases[i].alone != NULL) {
		cases[i].alone(below);
		return;
	}
	open_pair(PRETEND);
	carry();
	if (cases[i].then != NULL)
		cases[i].then();
	close_all();
}

static bool run(size_t i, const char *below)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		run_here(i, below);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	printf("%s %s over %s\n", status == 0 ? "ok" : "FAILED", cases[i].name, below);
	if (WIFSIGNALED(status))
		printf("  signal %d\n", WTERMSIG(status));
	return status == 0;
}

int main(int argc, char **argv)
{
	int bad = 0, ran = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
			continue;
		if (cases[i].over & MSG)
			bad += !run(i, "tcp");
		if (cases[i].over & RDM)
			bad += !run(i, "tcp;ofi_rxm");
		ran++;
	}
	if (ran == 0) {
		fprintf(stderr, "usage: attr_be_test [CASE]\n");
		return 2;
	}
	printf("%s: %d failed\n", bad == 0 ? "ok" : "FAILED", bad);
	return bad != 0;
}
