/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "tools/tax/baseline.h"

/* What the other process needs to know. */
struct told {
	size_t worker_len, rkey_len, long_len;
	uint64_t at;
	atomic_bool connected;
	char worker[2048], long_worker[1536], rkey[2048], long_rkey[1536];
};
_Static_assert(sizeof(struct told) <= sizeof(((struct pair_shared *)0)->direct[0]), "it fits");

static struct pair *this_pair; /* for UCX's callback of requests */

static void ucx_direct_sent(void *request, ucs_status_t status, void *arg)
{
	(void)arg;
	CHECK(status == UCS_OK);
	this_pair->pending--;
	ucp_request_free(request);
}

ucp_request_param_t direct_am = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.flags = UCP_AM_SEND_FLAG_EAGER,
	.cb.send = ucx_direct_sent,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};
ucp_request_param_t direct_rma = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.cb.send = ucx_direct_sent,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};

static ucs_status_t direct_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                   const ucp_am_recv_param_t *param)
{
	struct pair *p = arg;

	(void)header, (void)header_length, (void)param;
	CHECK(length == sizeof(p->direct->last));
	memcpy(&p->direct->last, data, sizeof(p->direct->last));
	p->arrived++;
	return UCS_OK;
}

/* As src/backends/ucx/ucx.c does it. */
static void ucx_direct_open_worker(struct pair *p)
{
	bool shm = strcmp(p->beside, "ucx:shm") == 0;
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
	                       .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP};
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
	CHECK(ucp_init(&params, config, &p->direct->context) == UCS_OK);
	ucp_config_release(config);
	CHECK(ucp_worker_create(p->direct->context, &wparams, &p->direct->worker) == UCS_OK);
	CHECK(ucp_worker_get_efd(p->direct->worker, &p->direct->fd) == UCS_OK);
	CHECK(ucp_worker_set_am_recv_handler(p->direct->worker, &am) == UCS_OK);
}

/* ---- long messages ---- */

static void long_sent(void *request, ucs_status_t status, void *arg)
{
	(void)arg;
	CHECK(status == UCS_OK);
	this_pair->direct->long_pending--;
	ucp_request_free(request);
}

static void long_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	(void)info;
	long_sent(request, status, arg);
}

void direct_long(struct pair *p, bool sending, void *buf, size_t len)
{
	struct direct *d = p->direct;
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	                             .memory_type = UCS_MEMORY_TYPE_HOST};
	ucs_status_ptr_t r;

	if (sending)
		param.cb.send = long_sent;
	else
		param.cb.recv = long_received;
	r = sending ? ucp_tag_send_nbx(d->long_ep, buf, len, 6, &param)
	            : ucp_tag_recv_nbx(d->long_worker, buf, len, 6, UINT64_MAX, &param);
	if (r == NULL)
		return;
	CHECK(UCS_PTR_IS_PTR(r));
	d->long_pending++;
}

void direct_long_wait(struct pair *p)
{
	while (p->direct->long_pending > 0)
		ucp_worker_progress(p->direct->long_worker);
}

static const ucp_request_param_t direct_default = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
	.cb.send = long_sent,
};

static void default_track(struct pair *p, ucs_status_ptr_t r)
{
	if (r == NULL)
		return;
	CHECK(UCS_PTR_IS_PTR(r));
	p->direct->long_pending++;
}

void direct_default_put(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;

	default_track(p, ucp_put_nbx(d->long_ep, buf, len, d->long_at + offset, d->long_rkey, &direct_default));
}

void direct_default_get(struct pair *p, void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;

	default_track(p, ucp_get_nbx(d->long_ep, buf, len, d->long_at + offset, d->long_rkey, &direct_default));
}

void direct_default_flush(struct pair *p)
{
	default_track(p, ucp_ep_flush_nbx(p->direct->long_ep, &direct_default));
	direct_long_wait(p);
}

void direct_default_serve(struct pair *p)
{
	while (!atomic_load(&p->sh->done))
		ucp_worker_progress(p->direct->long_worker);
}

static void open_long(struct pair *p)
{
	bool shm = strcmp(p->beside, "ucx:shm") == 0;
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
	ucp_worker_params_t wparams = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                               .thread_mode = UCS_THREAD_MODE_SINGLE};
	struct told *told = (struct told *)p->sh->direct[p->id];
	struct direct *d = p->direct;
	ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
	                            .address = p->mem[1],
	                            .length = MEM};
	ucp_address_t *address;
	ucp_config_t *config;
	void *packed;
	size_t len;

	CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	CHECK(ucp_config_modify(config, "TLS", shm ? "shm" : "tcp") == UCS_OK);
	CHECK(ucp_init(&params, config, &d->long_context) == UCS_OK);
	ucp_config_release(config);
	CHECK(ucp_worker_create(d->long_context, &wparams, &d->long_worker) == UCS_OK);
	CHECK(ucp_worker_get_address(d->long_worker, &address, &told->long_len) == UCS_OK);
	CHECK(told->long_len <= sizeof(told->long_worker));
	memcpy(told->long_worker, address, told->long_len);
	ucp_worker_release_address(d->long_worker, address);
	CHECK(ucp_mem_map(d->long_context, &map, &d->long_mr) == UCS_OK);
	CHECK(ucp_rkey_pack(d->long_context, d->long_mr, &packed, &len) == UCS_OK);
	CHECK(len <= sizeof(told->long_rkey));
	memcpy(told->long_rkey, packed, len);
	ucp_rkey_buffer_release(packed);
}

/* To connect, each worker needs the progress of its peer: so both make progress of both workers until both have connected. */
static void connect_wait(struct pair *p, struct told *theirs)
{
	struct told *own = (struct told *)p->sh->direct[p->id];

	while (!atomic_load(&own->connected) || !atomic_load(&theirs->connected)) {
		ucp_worker_progress(p->direct->worker);
		ucp_worker_progress(p->direct->long_worker);
		if (p->pending == 0 && p->direct->long_pending == 0)
			atomic_store(&own->connected, true);
	}
}

/* By a message each way: UCX ends the process that closes an endpoint whose first message has not left yet, as where a row
 * uses it for nothing. */
static void connect_long(struct pair *p, struct told *told)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
	                          .address = (ucp_address_t *)told->long_worker};
	char out = 0, in;

	CHECK(ucp_ep_create(p->direct->long_worker, &params, &p->direct->long_ep) == UCS_OK);
	CHECK(ucp_ep_rkey_unpack(p->direct->long_ep, told->long_rkey, &p->direct->long_rkey) == UCS_OK);
	p->direct->long_at = atomic_load(&p->sh->long_mem[!p->id]);
	direct_long(p, false, &in, 1);
	direct_long(p, true, &out, 1);
	connect_wait(p, told);
}

static void close_ep(ucp_ep_h ep)
{
	ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &force);

	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
}

/* ---- opening ---- */

static void ucx_direct_publish(struct pair *p)
{
	struct direct *d = p->direct;
	struct told *told = (struct told *)p->sh->direct[p->id];
	ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
	                            .length = MEM,
	                            .flags = UCP_MEM_MAP_ALLOCATE};
	ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
	ucp_address_t *address;
	void *packed;

	CHECK(ucp_mem_map(d->context, &map, &d->mr) == UCS_OK);
	CHECK(ucp_mem_query(d->mr, &attr) == UCS_OK);
	p->direct_mem = attr.address;
	memset(p->direct_mem, 0, MEM);
	told->at = (uint64_t)(uintptr_t)attr.address;
	CHECK(ucp_rkey_pack(d->context, d->mr, &packed, &told->rkey_len) == UCS_OK);
	CHECK(told->rkey_len <= sizeof(told->rkey));
	memcpy(told->rkey, packed, told->rkey_len);
	ucp_rkey_buffer_release(packed);
	CHECK(ucp_worker_get_address(d->worker, &address, &told->worker_len) == UCS_OK);
	CHECK(told->worker_len <= sizeof(told->worker));
	memcpy(told->worker, address, told->worker_len);
	ucp_worker_release_address(d->worker, address);
}

void direct_open(struct pair *p)
{
	this_pair = p;
	p->direct = calloc(1, sizeof(*p->direct));
	CHECK(p->direct != NULL);
	ucx_direct_open_worker(p);
	open_long(p);
	ucx_direct_publish(p);
}

void direct_connect(struct pair *p)
{
	struct told *told = (struct told *)p->sh->direct[!p->id];
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.address = (ucp_address_t *)told->worker,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
	};

	CHECK(ucp_ep_create(p->direct->worker, &params, &p->direct->ep) == UCS_OK);
	direct_flush_begin(p);
	connect_long(p, told);
	CHECK(ucp_ep_rkey_unpack(p->direct->ep, told->rkey, &p->direct->rkey) == UCS_OK);
	p->direct->at = told->at;
}

void direct_close(struct pair *p)
{
	struct direct *d = p->direct;

	ucp_rkey_destroy(d->rkey);
	ucp_rkey_destroy(d->long_rkey);
	p->barrier(p);
	close_ep(d->ep);
	close_ep(d->long_ep);
	ucp_mem_unmap(d->long_context, d->long_mr);
	ucp_worker_destroy(d->long_worker);
	ucp_cleanup(d->long_context);
	ucp_mem_unmap(d->context, d->mr);
	ucp_worker_destroy(d->worker);
	ucp_cleanup(d->context);
	free(d);
	p->direct = NULL;
}
