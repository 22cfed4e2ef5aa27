/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint32_t all_rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC;
static struct pair *this_pair; /* for UCX's callback of requests, and for last words */

void pair_die(const char *file, int line, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
	if (this_pair != NULL && xport_last_error(this_pair->x, &e) == XPORT_OK && e.text[0] != '\0')
		fprintf(stderr, "the last error: %s: %s (%s)\n", e.operation, e.text, xport_status_name(e.status));
	_exit(1);
}

uint64_t pair_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void pair_pin(const struct pair *p)
{
	cpu_set_t allowed, one;
	int n = p->id;

	CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	if (CPU_COUNT(&allowed) < 2)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
		return;
	}
}

void pair_barrier(struct pair *p)
{
	unsigned mine = atomic_fetch_add(&p->sh->at[p->id], 1) + 1;

	while (atomic_load(&p->sh->at[!p->id]) < mine) {
		if (p->x != NULL)
			CHECK(xport_poll(p->x, NULL, 0) >= 0);
		if (p->worker != NULL)
			ucp_worker_progress(p->worker);
		sched_yield();
	}
}

/* ---- direct ---- */

void direct_sent(void *request, ucs_status_t status, void *arg)
{
	(void)arg;
	CHECK(status == UCS_OK);
	this_pair->pending--;
	ucp_request_free(request);
}

ucp_request_param_t direct_am = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.flags = UCP_AM_SEND_FLAG_EAGER,
	.cb.send = direct_sent,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};
ucp_request_param_t direct_rma = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.cb.send = direct_sent,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};

static ucs_status_t direct_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                   const ucp_am_recv_param_t *param)
{
	struct pair *p = arg;

	(void)header, (void)header_length, (void)param;
	CHECK(length == sizeof(p->last));
	memcpy(&p->last, data, sizeof(p->last));
	p->arrived++;
	return UCS_OK;
}

/* As src/backends/ucx/ucx.c does it. */
static void direct_open(struct pair *p)
{
	bool shm = strcmp(p->provider, "ucx:shm") == 0;
	const char *settings[][2] = {
		{"TLS", shm ? "posix" : "tcp"},
		{"RNDV_THRESH", "inf"},
		{"MAX_RNDV_RAILS", "1"},
		{"KEEPALIVE_INTERVAL", "inf"},
		{"RESOLVE_REMOTE_EP_ID", "y"},
		{shm ? "MM_ERROR_HANDLING" : "CONN_NB", "y"},
		{shm ? NULL : "TX_SEG_SIZE", "64k"},
	};
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
	                       .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP};
	ucp_worker_params_t wparams = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                               .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_am_handler_param_t am = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
	                                           UCP_AM_HANDLER_PARAM_FIELD_ARG,
	                             .id = 0,
	                             .cb = direct_arrived,
	                             .arg = p};
	ucp_config_t *config;

	CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (settings[i][0] != NULL)
			CHECK(ucp_config_modify(config, settings[i][0], settings[i][1]) == UCS_OK);
	CHECK(ucp_init(&params, config, &p->context) == UCS_OK);
	ucp_config_release(config);
	CHECK(ucp_worker_create(p->context, &wparams, &p->worker) == UCS_OK);
	CHECK(ucp_worker_set_am_recv_handler(p->worker, &am) == UCS_OK);
}

static void direct_publish(struct pair *p)
{
	struct pair_shared *sh = p->sh;
	ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
	                            .length = MEM,
	                            .flags = UCP_MEM_MAP_ALLOCATE};
	ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
	ucp_address_t *address;
	void *packed;

	CHECK(ucp_mem_map(p->context, &map, &p->direct_mr) == UCS_OK);
	CHECK(ucp_mem_query(p->direct_mr, &attr) == UCS_OK);
	p->direct_mem = attr.address;
	memset(p->direct_mem, 0, MEM);
	sh->direct_at[p->id] = (uint64_t)(uintptr_t)attr.address;
	CHECK(ucp_rkey_pack(p->context, p->direct_mr, &packed, &sh->rkey_len[p->id]) == UCS_OK);
	CHECK(sh->rkey_len[p->id] <= sizeof(sh->rkey[0]));
	memcpy(sh->rkey[p->id], packed, sh->rkey_len[p->id]);
	ucp_rkey_buffer_release(packed);
	CHECK(ucp_worker_get_address(p->worker, &address, &sh->worker_len[p->id]) == UCS_OK);
	CHECK(sh->worker_len[p->id] <= sizeof(sh->worker[0]));
	memcpy(sh->worker[p->id], address, sh->worker_len[p->id]);
	ucp_worker_release_address(p->worker, address);
}

static void direct_connect(struct pair *p)
{
	struct pair_shared *sh = p->sh;
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.address = (ucp_address_t *)sh->worker[!p->id],
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
	};

	CHECK(ucp_ep_create(p->worker, &params, &p->direct) == UCS_OK);
	direct_flush(p);
	CHECK(ucp_ep_rkey_unpack(p->direct, sh->rkey[!p->id], &p->direct_rkey) == UCS_OK);
	p->direct_at = sh->direct_at[!p->id];
}

/* ---- through libxport ---- */

static void xport_side_open(struct pair *p)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = p->provider, .queue_depth = DEPTH};
	struct xport_mr_info info = {.size = sizeof(info)};

	CHECK(xport_open(&attr, &p->x) == XPORT_OK);
	CHECK(xport_mr_alloc(p->x, MEM, all_rights, &p->mr[0]) == XPORT_OK);
	CHECK(xport_mr_query(p->mr[0], &info) == XPORT_OK);
	p->mem[0] = info.base;
	p->mem[1] = aligned_alloc(4096, MEM);
	CHECK(p->mem[1] != NULL);
	memset(p->mem[1], 0, MEM);
	CHECK(xport_mr_reg(p->x, p->mem[1], MEM, all_rights, &p->mr[1]) == XPORT_OK);
	for (int i = 0; i < 2; i++) {
		p->sh->key_len[p->id][i] = sizeof(p->sh->key[0][0]);
		CHECK(xport_rkey_pack(p->mr[i], p->sh->key[p->id][i], &p->sh->key_len[p->id][i]) == XPORT_OK);
	}
}

static void xport_side_connect(struct pair *p)
{
	xport_listener *listener = NULL;

	if (p->id == 1) {
		CHECK(xport_listen(p->x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
		CHECK(xport_listener_name(listener, p->sh->address, sizeof(p->sh->address)) == XPORT_OK);
	}
	pair_barrier(p);
	if (p->id == 1) {
		CHECK(xport_accept(listener, 30000, &p->ep) == XPORT_OK);
		xport_listener_close(listener);
	} else {
		CHECK(xport_connect(p->x, p->sh->address, NULL, 30000, &p->ep) == XPORT_OK);
	}
	for (int i = 0; i < 2; i++)
		CHECK(xport_rkey_unpack(p->ep, p->sh->key[!p->id][i], p->sh->key_len[!p->id][i], &p->rkey[i]) ==
		      XPORT_OK);
}

/* A key is used natively once its owner confirmed it. */
static void await_native(struct pair *p)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	bool shm = strcmp(p->provider, "ucx:shm") == 0;
	uint64_t until = pair_ns() + UINT64_C(30000000000);

	do {
		CHECK(xport_poll(p->x, NULL, 0) >= 0);
		CHECK(xport_rkey_query(p->rkey[0], &info) == XPORT_OK);
		CHECK(pair_ns() < until);
	} while (shm && !info.direct);
}

static void pair_close(struct pair *p)
{
	ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t r;

	xport_ep_close(p->ep, 5000);
	for (int i = 0; i < 2; i++)
		xport_rkey_destroy(p->rkey[i]);
	xport_ep_destroy(p->ep);
	for (int i = 0; i < 2; i++)
		CHECK(xport_mr_dereg(p->mr[i]) == XPORT_OK);
	xport_close(p->x);
	p->x = NULL;
	free(p->mem[1]);
	ucp_rkey_destroy(p->direct_rkey);
	pair_barrier(p);
	r = ucp_ep_close_nbx(p->direct, &force);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
	ucp_mem_unmap(p->context, p->direct_mr);
	ucp_worker_destroy(p->worker);
	p->worker = NULL;
	ucp_cleanup(p->context);
}

static void side(struct pair *p, void (*work)(struct pair *p))
{
	this_pair = p;
	xport_side_open(p);
	direct_open(p);
	direct_publish(p);
	pair_barrier(p);
	direct_connect(p);
	xport_side_connect(p);
	await_native(p);
	pair_barrier(p);
	work(p);
	pair_barrier(p);
	pair_close(p);
}

int pair_run(const char *provider, void (*work)(struct pair *p))
{
	struct pair p = {.provider = provider};
	int status;
	pid_t child;

	p.sh = mmap(NULL, sizeof(*p.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p.sh != MAP_FAILED);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p.id = 1;
		side(&p, work);
		fflush(NULL);
		exit(0);
	}
	/* The barriers have no time limit: an initiator left alone must not wait for ever. */
	alarm(600);
	side(&p, work);
	CHECK(waitpid(child, &status, 0) == child);
	munmap(p.sh, sizeof(*p.sh));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
