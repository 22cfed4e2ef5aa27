/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_status.c - what UCX's codes mean, and where the lines of its log go.
 *
 * For one killed peer UCX gives five different codes, so none of them is passed on as it is: whatever ends a connection
 * is PEER_LOST, and UCX's own name stands in the text.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "ucx.h"

struct code {
	ucs_status_t ucs;
	const char *name;
	int status;
};

#define CODE(c, s) \
	{ \
		c, #c, s \
	}
static const struct code codes[] = {
	CODE(UCS_OK, XPORT_OK),
	CODE(UCS_ERR_NO_RESOURCE, XPORT_ERR_AGAIN),
	CODE(UCS_ERR_BUSY, XPORT_ERR_AGAIN),
	CODE(UCS_ERR_NO_MEMORY, XPORT_ERR_NO_MEMORY),
	CODE(UCS_ERR_SHMEM_SEGMENT, XPORT_ERR_NO_MEMORY),
	CODE(UCS_ERR_EXCEEDS_LIMIT, XPORT_ERR_NO_MEMORY),
	CODE(UCS_ERR_INVALID_PARAM, XPORT_ERR_INVALID),
	CODE(UCS_ERR_INVALID_ADDR, XPORT_ERR_PROTOCOL),
	CODE(UCS_ERR_UNREACHABLE, XPORT_ERR_UNREACHABLE),
	CODE(UCS_ERR_NO_DEVICE, XPORT_ERR_NO_BACKEND),
	CODE(UCS_ERR_UNSUPPORTED, XPORT_ERR_NOT_SUPPORTED),
	CODE(UCS_ERR_NOT_IMPLEMENTED, XPORT_ERR_NOT_SUPPORTED),
	CODE(UCS_ERR_IO_ERROR, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_TIMED_OUT, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_CANCELED, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_NOT_CONNECTED, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_CONNECTION_RESET, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_ENDPOINT_TIMEOUT, XPORT_ERR_PEER_LOST),
	CODE(UCS_ERR_REJECTED, XPORT_ERR_PEER_LOST),
};

static const struct code *ucs_code_find(ucs_status_t status)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].ucs == status)
			return &codes[i];
	return NULL;
}

int ucx_status(ucs_status_t status)
{
	const struct code *c;

	if (status == UCS_OK)
		return XPORT_OK;
	c = ucs_code_find(status);
	return c != NULL ? c->status : XPORT_ERR_SYSTEM;
}

const char *ucx_status_name(ucs_status_t status)
{
	const struct code *c = ucs_code_find(status);

	return c != NULL ? c->name : ucs_status_string(status);
}

/* Describes that `what` failed; adds what UCX logged meanwhile, if this instance was listening. */
int ucx_fail(struct xpi_be *be, ucs_status_t status, const char *hint, const char *what)
{
	char said[UCX_SAID];

	ucx_sink_said(&be->sink, said);
	return xpi_fail(be->err, ucx_status(status), status, ucx_status_name(status), hint, "%s failed: %s%s%s", what,
	                ucs_status_string(status), said[0] != '\0' ? ": UCX says: " : "", said);
}

/* ---- UCX's log ---- */

static pthread_mutex_t sinks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_list sinks = {&sinks, &sinks};

/* Lines that only tell what the endpoint's failure tells anyway. */
static bool about_peer(const char *line)
{
	static const char *const said[] = {"reset by peer", "Connection refused", "not connected", "Broken pipe",
	                                   "timed out", "Endpoint timeout", "remote connection", "error event",
	                                   "was unsuccessful", "peer", "recv(-1)",
	                                   "send(-1)", /* an event of a connection that it has just closed itself */
	                                   /* the segment of a process that has just ended */
	                                   "open(file_name=/proc/", "shmat(", "failed to connect to remote FIFO"};

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		if (strstr(line, said[i]) != NULL)
			return true;
	return false;
}

/*
 * The sink of a line from this thread: the open that it is probing for, else the newest instance; if there is none, any
 * open, as a thread of UCX's own speaks for it.  Lock held.
 */
static struct ucx_sink *sink_of_thread(void)
{
	struct ucx_sink *newest = NULL, *opening = NULL;

	xpi_list_for(link, &sinks) {
		struct ucx_sink *sink = xpi_container(link, struct ucx_sink, link);

		if (!sink->probing)
			newest = sink;
		else if (pthread_equal(sink->thread, pthread_self()))
			return sink;
		else
			opening = sink;
	}
	return newest != NULL ? newest : opening;
}

/* At every fork, where ucx.c has seen that the kernel copies what adapters use. */
static bool about_fork(const char *line)
{
	return (strncmp(line, "IB: ibv_fork_init()", 19) == 0 ||
	        strncmp(line, "IB: data corruption might occur", 31) == 0) &&
	       ucx_fork_copies();
}

/* What ucx.c sets for shared memory, sockets or adapters, if there are any; nothing else is in the line. */
static bool about_some_transports(const char *line)
{
	static const char *const names[] = {
		"MM_ERROR_HANDLING=", "CONN_NB=", "TX_SEG_SIZE=", "FORK_INIT=", "IB_TRAFFIC_CLASS="};
	const char *word = strchr(line, ':');

	while (word != NULL) {
		bool known = false;

		word += strspn(word, ":, ");
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			known = known || strncmp(word, names[i], strlen(names[i])) == 0;
		if (!known)
			return false;
		word = strchr(word, ',');
	}
	return true;
}

static ucs_log_func_rc_t on_line(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                 const ucs_log_component_config_t *comp_conf, const char *message, va_list ap)
{
	int mine = level <= UCS_LOG_LEVEL_WARN ? XPORT_LOG_WARN : XPORT_LOG_DEBUG;
	struct ucx_sink *sink;
	char text[400];
	const char *base = strrchr(file, '/');
	bool unneeded;

	(void)function;
	(void)comp_conf;
	vsnprintf(text, sizeof(text), message, ap);
	unneeded = about_fork(text);
	if (mine == XPORT_LOG_WARN && about_peer(text))
		mine = XPORT_LOG_INFO;
	if (unneeded)
		mine = XPORT_LOG_DEBUG;
	pthread_mutex_lock(&sinks_lock);
	sink = sink_of_thread();
	if (sink != NULL) {
		if (sink->probing && level <= UCS_LOG_LEVEL_WARN) {
			if (level <= UCS_LOG_LEVEL_ERROR || sink->last[0] == '\0')
				snprintf(sink->last, sizeof(sink->last), "%.*s", UCX_SAID - 1, text);
			/* A setting of ours that had no effect is worth a warning, where it should have had one. */
			if (strncmp(text, "invalid configuration", 21) != 0 ||
			    (sink->may_ignore && about_some_transports(text)))
				mine = XPORT_LOG_DEBUG;
		}
		xpi_log(sink->log, mine, "1001", "UCX: %s (%s:%u)", text, base != NULL ? base + 1 : file, line);
	}
	pthread_mutex_unlock(&sinks_lock);
	/* Nobody listens: then it is about an application that uses UCX itself, and goes where that wants it. */
	return sink != NULL || unneeded ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

/*
 * UCX's handlers are a stack of the process, of which only the top can be taken off, and the top may be somebody
 * else's: ours stays, and so must the code of this module.
 */
static void handler_push(void)
{
	Dl_info info;

	if (dladdr((void *)(uintptr_t)handler_push, &info) != 0 && info.dli_fname != NULL)
		(void)dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
	ucs_log_push_handler(on_line);
}

void ucx_sink_add(struct ucx_sink *sink, const struct xpi_log *log)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, handler_push);
	sink->log = log;
	pthread_mutex_lock(&sinks_lock);
	xpi_list_push(&sinks, &sink->link);
	pthread_mutex_unlock(&sinks_lock);
}

/* From now on, or no longer, ucx_fail reports the failures of what this thread does. */
void ucx_sink_probe(struct ucx_sink *sink, bool probing)
{
	pthread_mutex_lock(&sinks_lock);
	sink->probing = probing;
	sink->thread = pthread_self();
	sink->last[0] = '\0';
	pthread_mutex_unlock(&sinks_lock);
}

void ucx_sink_said(struct ucx_sink *sink, char said[UCX_SAID])
{
	pthread_mutex_lock(&sinks_lock);
	snprintf(said, UCX_SAID, "%s", sink->probing ? sink->last : "");
	pthread_mutex_unlock(&sinks_lock);
}

void ucx_sink_del(struct ucx_sink *sink)
{
	pthread_mutex_lock(&sinks_lock);
	if (xpi_list_linked(&sink->link))
		xpi_list_del(&sink->link);
	pthread_mutex_unlock(&sinks_lock);
}
