/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx.c - the UCX back end: providers, opening and closing.
 *
 * What UCX does, what it does not do, and why:
 *
 *   frames        native: ucp_am_send_nbx, always eager (RNDV_THRESH=inf), at most one UCX fragment long.
 *   connections   native: worker addresses, sent through the core's control channel; error mode PEER at both ends.
 *   shared memory only ucx:shm uses UCX's queues: one killed peer can block such a queue for all others
 *                 (ucx_watchdog.c). Plain ucx leaves them out, unless UCX_TLS asks for them. Memory of mr_alloc is
 *                 our own (ucx_mr.c says why), and peers of this host map it. UCX unlinks its segments once they are made; a
 *                 process killed just before leaves one in /dev/shm.
 *   put, get      native only where an adapter carries them (rc). Elsewhere UCX emulates them with a message whose
 *                 handler copies to any address it gets, and a wrong one kills the target. The native key is empty then, and
 *                 the core's checked protocol is used.
 *   atomics, tags not used: five different rules for truncation, and NIC atomics are not atomic to the CPU.
 *   flush         for one endpoint only (ucp_worker_flush reports success for a dead peer), and only as `drain`.
 *   failures      UCX's error handler is a hint for the core, whose heartbeat decides. UCX's keepalive is off: it never
 *                 detects a stopped peer, and on shared memory one full queue stops it for all endpoints. UCX pairs the
 *                 endpoints of two workers by counting. If two connections at a time cross over, it takes the closing of one
 *                 endpoint for the loss of the other.
 *
 * UCX endpoints are force-closed: UCX drops what it still queues, so the core must know that the peer has the
 * frames.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/nearest.h"
#include "base/traffic.h"
#include "ucx.h"

enum { SELF_LOOKS = 20000, SELF_MS = 1000, ECT = 2 };

/* In order of preference; the first is UCX's own choice of all but shared memory. */
static const struct ucx_provider providers[] = {
	{"default", NULL, .rdma = true, .sockets = true},
	{"tcp", "tcp", .sockets = true},
	{"shm", "posix", .shm = true},
	{"rc", "rc", .rdma = true, .pairs = true},
};

enum { NPROVIDERS = sizeof(providers) / sizeof(providers[0]) };

#define LOCK_HINT \
	"raise the limit: ulimit -l unlimited; for a service LimitMEMLOCK=infinity; for a container --ulimit " \
	"memlock=-1"
#define LOG_HINT "for more of UCX's messages set XPORT_LOG=debug and UCX_LOG_LEVEL=info"

/* ---- choosing ---- */

/* The provider that has the transport which UCX itself calls so ("rc_mlx5"), or NULL. */
static const char *has_transport(const char *name)
{
	static const char *const of[][2] = {{"rc", "rc"},    {"dc", "rc"},      {"ud", "rc"},    {"ib", "rc"},
	                                    {"mm", "shm"},   {"posix", "shm"},  {"sysv", "shm"}, {"cma", "shm"},
	                                    {"self", "shm"}, {"all", "default"}};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		size_t n = strlen(of[i][0]);

		if (strncmp(name, of[i][0], n) == 0 && (name[n] == '\0' || name[n] == '_'))
			return of[i][1];
	}
	return NULL;
}

static const struct ucx_provider *find_provider(const char *name, struct xport_error *err)
{
	struct xpi_nearest nearest = xpi_nearest(name);

	if (name == NULL)
		return &providers[0];
	for (int i = 0; i < NPROVIDERS; i++) {
		if (strcmp(providers[i].name, name) == 0)
			return &providers[i];
		xpi_nearest_look(&nearest, providers[i].name);
	}
	if (has_transport(name) != NULL)
		nearest.name = has_transport(name);
	xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, "with XPORT_BACKEND=ucx UCX chooses",
	         "ucx has no provider '%s'; its providers are tcp, shm, rc and default%s%s", name,
	         nearest.name != NULL ? "; the nearest is ucx:" : "", nearest.name != NULL ? nearest.name : "");
	return NULL;
}

/* ---- opening ---- */

/* What UCX is to use. */
struct ways {
	const char *tls; /* UCX_TLS; NULL: as it is */
	bool queues;     /* may be queues in shared memory */
};

/* UCX's shared memory is what ucx:shm is named for: without room for it the provider cannot be opened. */
static int check_shm(const struct xpi_be_open_args *args)
{
	char why[160];

	if (!xpi_file_allowed(UCX_FILE_MAX))
		return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, EFBIG, "EFBIG", XPI_FILE_HINT,
		                "UCX needs files of up to %d KiB in /dev/shm, and the limit of file sizes is lower",
		                UCX_FILE_MAX / 1024);
	if (ucx_shm_usable(why, sizeof(why)))
		return XPORT_OK;
	return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL,
	                "mount -o remount,size=1G /dev/shm; in a container: --shm-size=1g", "%s", why);
}

/* A provider asked for by name must have what it is named for; UCX's own choice goes without. */
static int ways_choose(const struct xpi_be_open_args *args, const struct ucx_provider *p, struct ways *ways)
{
	char no_rdma[160] = "";

	if (p->shm && check_shm(args) != XPORT_OK)
		return XPORT_ERR_NO_BACKEND;
	if (p->rdma && !ucx_rdma_usable(no_rdma, sizeof(no_rdma))) {
		if (p->tls != NULL)
			return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, LOCK_HINT, "%s", no_rdma);
		xpi_log(args->log, XPORT_LOG_INFO, "1014", "ucx: does not use the RDMA devices: %s", no_rdma);
	}
	ways->tls = p->tls;
	ways->queues = p->shm;
	if (p->tls != NULL)
		return XPORT_OK;
	/* One asked for by name replaces what the environment says; the default leaves that alone. */
	ways->queues = secure_getenv("UCX_TLS") != NULL;
	if (!ways->queues)
		ways->tls = no_rdma[0] != '\0' ? "^sm,ib" : "^sm"; /* queues, and what copies between processes */
	return XPORT_OK;
}

struct setting {
	const char *name, *value;
};

static bool since_1_14(void)
{
	unsigned major, minor, release;

	ucp_get_version(&major, &minor, &release);
	return major > 1 || minor >= 14;
}

/*
 * ucp_config_modify answers success for any name, and one that no chosen transport knows is no more than a warning in
 * UCX's log (which we let through): each is set only where it means something.  Names of a transport's settings are
 * without its prefix here, CONN_NB for UCX_TCP_CONN_NB, while those of a family keep it, MM_.
 */
static ucs_status_t configure(struct xpi_be *be, struct ways ways, ucp_config_t *config)
{
	const struct ucx_provider *p = be->provider;
	ucs_status_t status = UCS_OK;
	bool marks = p->rdma && be->traffic_class != XPORT_TRAFFIC_DEFAULT;
	char traffic[8];
	const struct setting settings[] = {
		{"TLS", ways.tls},
		{"RNDV_THRESH", "inf"},
		{"MAX_RNDV_RAILS", "1"},
		{"MAX_EAGER_RAILS", "1"}, /* pieces of frames on several ways overtake one another */
		{"MAX_RMA_RAILS", since_1_14() ? "1" : NULL},     /* the same of puts */
		{"KEEPALIVE_INTERVAL", "inf"},                    /* see above */
		{"RESOLVE_REMOTE_EP_ID", p->sockets ? "n" : "y"}, /* see greet() in ucx_ep.c */
		/* Shared memory is left out of error mode PEER without it. */
		{"MM_ERROR_HANDLING", ways.queues ? "y" : NULL},
		/* connect() of an address that does not answer must not block. */
		{"CONN_NB", p->sockets ? "y" : NULL},
		/* Without need UCX would have a child go without all pages in which something is registered. */
		{"FORK_INIT", p->rdma && secure_getenv("UCX_IB_FORK_INIT") == NULL && ucx_fork_copies() ? "n" : NULL},
		/* Of all connections, by adapters. The low bits are those of UCX's default: congestion control. */
		{"IB_TRAFFIC_CLASS", marks ? traffic : NULL},
		/* Bulk frames in one fragment: 6 times the rate of 8 KiB ones, and no cost to small frames (measured). */
		{"TX_SEG_SIZE", p->sockets && secure_getenv("UCX_TCP_TX_SEG_SIZE") == NULL ? "64k" : NULL},
	};

	if (marks)
		snprintf(traffic, sizeof(traffic), "%u", xpi_traffic_tos(be->traffic_class) | ECT);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && status == UCS_OK; i++)
		if (settings[i].value != NULL)
			status = ucp_config_modify(config, settings[i].name, settings[i].value);
	return status;
}

static int open_context(struct xpi_be *be, struct ways ways)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE,
		.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
		.request_size = sizeof(struct ucx_rec),
	};
	const char *hint = LOG_HINT;
	ucp_config_t *config;
	ucs_status_t status = ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return ucx_fail(be, status, "check the UCX_ variables of the environment",
		                "reading UCX's configuration");
	status = configure(be, ways, config);
	if (status == UCS_OK)
		status = ucp_init(&params, config, &be->context);
	ucp_config_release(config);
	if (status == UCS_OK)
		return XPORT_OK;
	be->context = NULL;
	if (be->provider->pairs)
		hint = "ibv_devices lists the RDMA devices of this host";
	return ucx_fail(be, status, hint, "opening UCX");
}

/* Adds a word to a list, once. */
static void add_word(char *list, size_t size, const char *word)
{
	const char *at = strstr(list, word);
	size_t len = strlen(list), n = strlen(word);

	if (at != NULL && (at == list || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
		return;
	snprintf(list + len, size - len, "%s%s", len > 0 ? ", " : "", word);
}

/* Which transports and devices the context really took: UCX tells only people, in lines "... -- tcp/eth0". */
static int read_resources(struct xpi_be *be)
{
	char *text = NULL, *line, *save = NULL, tl[32], dev[40];
	const char *at;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (f != NULL)
		ucp_context_print_info(be->context, f);
	if (f == NULL || fclose(f) != 0 || text == NULL) {
		free(text);
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a UCX instance");
	}
	for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
		at = strstr(line, "-- ");
		if (strstr(line, "resource") == NULL || at == NULL || sscanf(at, "-- %31[^/]/%39s", tl, dev) != 2)
			continue;
		add_word(be->transports, sizeof(be->transports), tl);
		if (strcmp(tl, "posix") == 0 || strcmp(tl, "sysv") == 0 || strcmp(tl, "xpmem") == 0)
			be->queues = be->reaches = true;
		else if (strcmp(tl, "cma") == 0 || strcmp(tl, "knem") == 0)
			be->reaches = true;
		else if (ucx_is_adapter(tl))
			be->rdma = true;
		if (strncmp(dev, "memory", 6) != 0)
			add_word(be->device, sizeof(be->device), dev);
	}
	free(text);
	return XPORT_OK;
}

/*
 * Until the endpoint to ourselves is really connected: UCX's own thread would go on with it behind our back.
 *
 * A network that loses everything is given up after a second, but not before 20,000 looks.  On a loaded machine these take
 * longer than a second, as do the steps of UCX's own thread, which the connection waits for: it has had as many turns.
 */
static ucs_status_t settle_self(struct xpi_be *be)
{
	const ucp_request_param_t none = {0};
	ucs_status_ptr_t flush = ucp_ep_flush_nbx(be->self, &none);
	ucs_status_t status = UCS_OK;
	struct timespec pause = {0, 20000};
	int64_t give_up = xpi_now_ms() + SELF_MS;

	if (UCS_PTR_IS_ERR(flush))
		return UCS_PTR_STATUS(flush);
	if (flush == NULL)
		return UCS_OK;
	for (int i = 0; i < SELF_LOOKS || xpi_now_ms() < give_up; i++) {
		while (ucp_worker_progress(be->worker) != 0)
			;
		status = ucp_request_check_status(flush);
		if (status != UCS_INPROGRESS)
			break;
		nanosleep(&pause, NULL);
	}
	ucp_request_free(flush);
	return status == UCS_INPROGRESS ? UCS_ERR_TIMED_OUT : status;
}

/* Without a handler UCX's ud aborts the process when its own time for an answer is over. */
static void self_lost(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)arg;
	(void)ep;
	(void)status;
}

/* What may help if UCX cannot reach this process itself. */
static const char *self_hint(struct xpi_be *be)
{
	char said[UCX_SAID];

	ucx_sink_said(&be->sink, said);
	if (be->provider->rdma && strstr(said, "allocate memory") != NULL)
		return LOCK_HINT;
	/* The devices of RoCE whose packets UCX takes for somebody else's, as those of rdma_rxe: ud loses every one. */
	if (be->rdma)
		return "on RoCE try UCX_UD_VERBS_ETH_DGID_CHECK=n; otherwise exclude the device with UCX_NET_DEVICES";
	if (be->provider->sockets)
		return "set UCX_NET_DEVICES=lo, or name another device whose address this host can reach";
	return LOG_HINT;
}

/*
 * An endpoint to ourselves, with the error mode that the real ones have: the only way to know that UCX has transports
 * that can be used so.  It stays, because UCX puts a transport without endpoints to sleep, and its shared memory then
 * leaves a wake-up unread for ever: the event descriptor would never be quiet again.
 */
static int open_self(struct xpi_be *be)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
	                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = be->address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler.cb = self_lost,
	};
	ucs_status_t status = ucp_ep_create(be->worker, &params, &be->self);

	if (status == UCS_OK)
		status = settle_self(be);
	else
		be->self = NULL;
	if (status == UCS_OK)
		return XPORT_OK;
	return ucx_fail(be, status, self_hint(be), "a test connection from this process to itself");
}

static int worker_open(struct xpi_be *be)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
		.events = be->queues ? UCP_WAKEUP_RX : UCP_WAKEUP_RX | UCP_WAKEUP_TX, /* see ucx_poll.c */
		.thread_mode = UCS_THREAD_MODE_SERIALIZED, /* one thread at a time, whichever: nothing is locked */
	};
	ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
	ucs_status_t status = ucp_worker_create(be->context, &params, &be->worker);

	if (status != UCS_OK) {
		be->worker = NULL;
		return ucx_fail(be, status, LOG_HINT, "creating a UCX worker");
	}
	status = ucp_worker_query(be->worker, &attr);
	if (status != UCS_OK)
		return ucx_fail(be, status, LOG_HINT, "querying the UCX worker");
	be->hdr_max = attr.max_am_header;
	status = ucp_worker_get_efd(be->worker, &be->fd);
	if (status != UCS_OK)
		return ucx_fail(be, status, LOG_HINT, "getting UCX's event descriptor");
	status = ucp_worker_get_address(be->worker, &be->address, &be->address_len);
	if (status != UCS_OK) {
		be->address = NULL;
		return ucx_fail(be, status, LOG_HINT, "getting the UCX worker's address");
	}
	if (be->address_len > UCX_ADDRESS_MAX)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, "name fewer devices in UCX_NET_DEVICES",
		                "the UCX worker address of %zu bytes is too long", be->address_len);
	return ucx_am_open(be);
}

/*
 * UCX makes endpoints of its own for peers whose first message came, and answers there. UCX 1.13 aborts by a failed assertion
 * (ucp_request_send_state_ff) if a worker is destroyed while such an answer waits for a socket. If the peer has ended, the socket
 * is refused soon, but UCX has to poll to see it. So a worker that has just lost or given up a peer is polled for a moment.
 */
static void settle_answers(struct xpi_be *be)
{
	enum { SETTLE_MS = 50 };

	while (be->ended_early_ms != 0 && xpi_now_ms() - be->ended_early_ms < SETTLE_MS)
		if (ucp_worker_progress(be->worker) == 0)
			(void)poll(NULL, 0, 1);
}

static void ucx_close(struct xpi_be *be)
{
	if (be->worker != NULL && be->provider->sockets)
		settle_answers(be);
	ucx_match_close(be);
	if (be->self != NULL)
		ucx_ep_drop(be->self);
	if (be->address != NULL)
		ucp_worker_release_address(be->worker, be->address);
	if (be->worker != NULL)
		ucp_worker_destroy(be->worker);
	if (be->context != NULL)
		ucp_cleanup(be->context);
	if (be->timer >= 0)
		close(be->timer);
	ucx_am_close(be);
	ucx_sink_del(&be->sink);
	free(be);
}

static int ucx_open(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	const struct ucx_provider *provider = find_provider(args->provider, args->err);
	struct ways ways = {0};
	struct xpi_be *be;
	int rc;

	if (provider == NULL)
		return XPORT_ERR_NO_BACKEND;
	rc = ucx_descriptors(args->err, "an instance");
	if (rc == XPORT_OK)
		rc = ways_choose(args, provider, &ways);
	if (rc != XPORT_OK)
		return rc;
	be = calloc(1, sizeof(*be));
	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a UCX instance");
	be->timer = -1;
	xpi_list_init(&be->eps);
	xpi_list_init(&be->expected);
	xpi_list_init(&be->strays);
	be->core = args->core;
	be->up = args->up;
	be->log = args->log;
	be->err = args->err;
	be->provider = provider;
	be->traffic_class = args->traffic_class;
	be->maps = provider->shm || provider->tls == NULL;
	be->sink.may_ignore = provider->tls == NULL;
	ucx_sink_add(&be->sink, args->log);
	ucx_sink_probe(&be->sink, true);
	rc = open_context(be, ways);
	if (rc == XPORT_OK)
		rc = read_resources(be);
	if (rc == XPORT_OK)
		rc = worker_open(be);
	if (rc == XPORT_OK)
		rc = open_self(be);
	if (rc == XPORT_OK && be->rdma)
		rc = ucx_am_pack(be);
	if (rc != XPORT_OK) {
		ucx_close(be);
		return rc;
	}
	if (be->queues) { /* where open_worker did not ask to be woken for what leaves */
		be->timer = xpi_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
		if (be->timer < 0) {
			rc = xpi_fail_errno(args->err, XPORT_ERR_SYSTEM, NULL, "cannot create a timer descriptor");
			ucx_close(be);
			return rc;
		}
	}
	ucx_sink_probe(&be->sink, false);
	*out = be;
	return XPORT_OK;
}

/* ---- telling ---- */

static void ucx_query(struct xpi_be *be, struct xpi_be_caps *caps)
{
	unsigned major, minor, release;

	memset(caps, 0, sizeof(*caps));
	ucp_get_version(&major, &minor, &release);
	snprintf(caps->provider, sizeof(caps->provider), "%s", be->provider->name);
	snprintf(caps->device, sizeof(caps->device), "%s", be->device[0] != '\0' ? be->device : "memory");
	snprintf(caps->stack, sizeof(caps->stack), "UCX %u.%u.%u", major, minor, release);
	snprintf(caps->protocol, sizeof(caps->protocol), "ucp-am 1%s / %u.%u", be->provider->pairs ? " in pairs" : "",
	         major, minor);
	caps->am_max = be->provider->sockets ? UCX_BULK_MAX : UCX_FRAME_MAX;
	caps->am_credits = 128;
	caps->am_credits_max = be->provider->sockets ? XPI_CREDITS_MAX : 0; /* UCX allocates what arrives */
	caps->am_cheap = be->provider->shm;
	caps->cma_min = be->provider->shm ? UCX_CMA_MIN : 0;
	caps->ep_size = sizeof(struct ucx_ep);
	caps->mr_size = sizeof(struct ucx_mr);
	caps->rkey_size = sizeof(struct ucx_rkey);
	caps->rkey_native_max = be->maps || be->rdma ? UCX_KEY_MAX : 0;
	caps->rma_reg = be->rdma;
	/* UCX orders a message after puts by no more than the flush. */
	caps->put_placed = false;
	caps->am_after_put = false;
	/* A mapping is checked by nobody but its user.  And to an adapter UCX grants all rights to whatever it registers, which may be
	 * more than was asked for, and goes on granting them for a while after that was given back. */
	caps->target_bounds = !be->maps && !be->rdma;
	/* UCX's own choice is sockets for some memory of a peer; and what its flush says of an adapter's puts is not that they
	 * are visible, which takes an answer of the target's core. */
	caps->passive_target = be->provider->shm;
	/* Only adapters mark packets, and all alike: UCX has no setting for its sockets, and does not show them. */
	if (be->provider->shm)
		caps->traffic = XPI_TRAFFIC_LOCAL;
	else if (be->rdma && strstr(be->transports, "tcp") == NULL)
		caps->traffic = XPI_TRAFFIC_OPEN;
}

static void candidate_probe(const struct ucx_provider *p, const struct xpi_log *log, struct xport_candidate *c)
{
	struct xport_error err = {.size = sizeof(err)};
	struct xpi_be_open_args args = {.provider = p->name, .log = log, .err = &err, .peer_timeout_ms = 5000};
	struct xpi_be *be;
	int rc = ucx_open(&args, &be);

	if (rc != XPORT_OK) {
		c->state = err.native_code == UCS_ERR_NO_DEVICE ? XPORT_ABSENT : XPORT_MISCONFIGURED;
		snprintf(c->reason, sizeof(c->reason), "%.*s", (int)sizeof(c->reason) - 1, err.text);
		snprintf(c->hint, sizeof(c->hint), "%.*s", (int)sizeof(c->hint) - 1, err.hint);
		return;
	}
	c->state = XPORT_READY;
	snprintf(c->reason, sizeof(c->reason), "%s%s%.80s%s%.56s", p->tls == NULL ? "UCX's own choice among " : "",
	         p->tls == NULL && !be->queues ? "all but shared memory: " : "", be->transports,
	         be->device[0] != '\0' ? " over " : "", be->device);
	ucx_close(be);
}

static int ucx_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	for (int i = 0; i < NPROVIDERS; i++) {
		struct xport_candidate c = {.name = "ucx"};

		if (i > 0)
			snprintf(c.name, sizeof(c.name), "ucx:%s", providers[i].name);
		candidate_probe(&providers[i], log, &c);
		emit(arg, &c);
	}
	return XPORT_OK;
}

XPI_EXPORT_BACKEND(ucx) = {
	.abi = XPI_BACKEND_ABI,
	.name = "ucx",
	.list = ucx_list,
	.open = ucx_open,
	.close = ucx_close,
	.query = ucx_query,
	.mr_reg = ucx_mr_reg,
	.mr_alloc = ucx_mr_alloc,
	.mr_dereg = ucx_mr_dereg,
	.rkey_pack = ucx_rkey_pack,
	.rkey_unpack = ucx_rkey_unpack,
	.rkey_destroy = ucx_rkey_destroy,
	.address = ucx_address,
	.ep_connect = ucx_ep_connect,
	.ep_quiesce = ucx_ep_quiesce,
	.ep_destroy = ucx_ep_destroy,
	.am_send = ucx_am_send,
	.am_send_two = ucx_am_send_two,
	.put = ucx_put,
	.get = ucx_get,
	.drain = ucx_drain,
	.poll = ucx_poll,
	.fds = ucx_fds,
	.arm = ucx_arm,
};
