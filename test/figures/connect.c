/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.c - connect [ROUNDS]: the time of a connection over ucx:tcp, made to an address and closed again, through
 * libxport and by UCX directly (ucp_listener_create, ucp_ep_create with a socket address, a flush, ucp_ep_close_nbx).
 * The same two processes do both in turn, MANY of one kind and then of the other. It prints the medians, and the median
 * and the quartiles of the ratios of the rounds.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>
#include <xport.h>

enum { MANY = 20, ROUNDS = 60, ROUNDS_MAX = 1000, ROOM = 64 };

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1); \
		} \
	} while (0)

/* Where the other process listens. */
static struct told {
	char ours[ROOM];
	struct sockaddr_in direct;
	volatile int ready;
} * told;

static xport *x;
static ucp_context_h context;
static ucp_worker_h worker;

/* ---- what both have ---- */

static void open_both(void)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = "ucx:tcp"};
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
	                       .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP};
	ucp_worker_params_t wparams = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                               .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_config_t *config;

	CHECK(xport_open(&attr, &x) == XPORT_OK);
	CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	CHECK(ucp_config_modify(config, "TLS", "tcp") == UCS_OK);
	CHECK(ucp_init(&params, config, &context) == UCS_OK);
	ucp_config_release(config);
	CHECK(ucp_worker_create(context, &wparams, &worker) == UCS_OK);
}

/* Of a connection that ends, whoever ends it. */
static void close_direct(ucp_ep_h ep, unsigned flags)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
	ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &param);

	while (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
}

/* ---- who is connected to ---- */

static ucp_ep_h ended[MANY];
static unsigned nended;

static void on_end(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)arg, (void)status;
	CHECK(nended < MANY);
	ended[nended++] = ep;
}

static void on_request(ucp_conn_request_h request, void *arg)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
	                                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
	                          .conn_request = request,
	                          .err_mode = UCP_ERR_HANDLING_MODE_PEER,
	                          .err_handler.cb = on_end};
	ucp_ep_h ep;

	(void)arg;
	CHECK(ucp_ep_create(worker, &params, &ep) == UCS_OK);
}

static void listen_directly(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
	                                              UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
	                                .sockaddr = {(struct sockaddr *)&any, sizeof(any)},
	                                .conn_handler.cb = on_request};
	ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
	ucp_listener_h listener;

	CHECK(ucp_listener_create(worker, &params, &listener) == UCS_OK);
	CHECK(ucp_listener_query(listener, &attr) == UCS_OK);
	memcpy(&told->direct, &attr.sockaddr, sizeof(told->direct));
}

static void serve(void)
{
	struct xport_completion c[16];
	xport_listener *listener;
	xport_ep *ep;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_both();
	CHECK(xport_listen(x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
	CHECK(xport_listener_name(listener, told->ours, sizeof(told->ours)) == XPORT_OK);
	listen_directly();
	told->ready = 1;
	for (;;) {
		int n = xport_poll(x, c, 16);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			if (c[i].type == XPORT_EVENT_INCOMING)
				CHECK(xport_accept(listener, 0, &ep) == XPORT_OK);
			else
				xport_ep_destroy(c[i].ep);
		}
		ucp_worker_progress(worker);
		while (nended > 0)
			close_direct(ended[--nended], UCP_EP_CLOSE_FLAG_FORCE);
	}
}

/* ---- who connects ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void ours(void)
{
	xport_ep *ep;

	CHECK(xport_connect(x, told->ours, NULL, 10000, &ep) == XPORT_OK);
	CHECK(xport_ep_close(ep, 10000) == XPORT_OK);
	xport_ep_destroy(ep);
}

static void broken(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)arg, (void)ep;
	fprintf(stderr, "the direct connection broke: %s\n", ucs_status_string(status));
	_exit(1);
}

static void direct(void)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
	                                        UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
	                          .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
	                          .sockaddr = {(struct sockaddr *)&told->direct, sizeof(told->direct)},
	                          .err_mode = UCP_ERR_HANDLING_MODE_PEER,
	                          .err_handler.cb = broken};
	ucp_request_param_t none = {0};
	ucs_status_ptr_t r;
	ucp_ep_h ep;

	CHECK(ucp_ep_create(worker, &params, &ep) == UCS_OK);
	r = ucp_ep_flush_nbx(ep, &none);
	while (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	CHECK(UCS_PTR_IS_PTR(r) ? ucp_request_check_status(r) == UCS_OK : r == NULL);
	if (UCS_PTR_IS_PTR(r))
		ucp_request_free(r);
	close_direct(ep, 0);
}

static double batch(void (*one)(void))
{
	double from = now();

	for (int i = 0; i < MANY; i++)
		one();
	return (now() - from) / MANY;
}

static int compare(const void *a, const void *b)
{
	double v = *(const double *)a, w = *(const double *)b;

	return v < w ? -1 : v > w;
}

static double quantile(double *v, int n, int percent)
{
	qsort(v, (size_t)n, sizeof(*v), compare);
	return v[(n - 1) * percent / 100];
}

int main(int argc, char **argv)
{
	static double a[ROUNDS_MAX], b[ROUNDS_MAX], ratio[ROUNDS_MAX];
	int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
	pid_t child;

	if (rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: connect [ROUNDS, 1 to %d]\n", ROUNDS_MAX);
		return 2;
	}
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(told != MAP_FAILED);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		serve();
	open_both();
	while (told->ready == 0) {
		CHECK(waitpid(child, NULL, WNOHANG) == 0);
		usleep(1000);
	}
	batch(ours);
	batch(direct);
	for (int i = 0; i < rounds; i++) {
		a[i] = batch(direct);
		b[i] = batch(ours);
		ratio[i] = a[i] / b[i];
	}
	printf("connect and close: directly %.0f us, through libxport %.0f us, ratio %.2f (%.2f to %.2f), %d "
	       "rounds\n",
	       quantile(a, rounds, 50), quantile(b, rounds, 50), quantile(ratio, rounds, 50),
	       quantile(ratio, rounds, 25), quantile(ratio, rounds, 75), rounds);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	xport_close(x);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return 0;
}
