/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_status.c - the meaning of libfabric's codes, and helpers that several files need.
 *
 * For one killed peer the providers of libfabric report eight different codes, so none is passed on unchanged.
 * Whatever ends a connection is PEER_LOST, and the text contains libfabric's own name.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "ofi.h"

struct code {
	int err;
	const char *name;
	int status;
};

#define CODE(c, s) \
	{ \
		c, #c, s \
	}
static const struct code codes[] = {
	CODE(FI_EAGAIN, XPORT_ERR_AGAIN),
	CODE(FI_EBUSY, XPORT_ERR_AGAIN),
	CODE(FI_ENOMEM, XPORT_ERR_NO_MEMORY),
	CODE(FI_ENOSPC, XPORT_ERR_NO_MEMORY),
	CODE(FI_EINVAL, XPORT_ERR_SYSTEM), /* the core has checked the application's arguments */
	CODE(FI_ENODATA, XPORT_ERR_NO_BACKEND),
	CODE(FI_ENODEV, XPORT_ERR_NO_BACKEND),
	CODE(FI_ENOSYS, XPORT_ERR_NOT_SUPPORTED),
	CODE(FI_EOPNOTSUPP, XPORT_ERR_NOT_SUPPORTED),
	CODE(FI_EMFILE, XPORT_ERR_SYSTEM),
	CODE(FI_ENOKEY, XPORT_ERR_SYSTEM), /* while memory is registered */
	CODE(FI_EACCES, XPORT_ERR_PEER_LOST),
	CODE(FI_ENOENT, XPORT_ERR_PEER_LOST),
	CODE(FI_EIO, XPORT_ERR_PEER_LOST),
	CODE(FI_ECANCELED, XPORT_ERR_PEER_LOST),
	CODE(FI_ENOTCONN, XPORT_ERR_PEER_LOST),
	CODE(FI_ECONNRESET, XPORT_ERR_PEER_LOST),
	CODE(FI_ECONNABORTED, XPORT_ERR_PEER_LOST),
	CODE(FI_ESHUTDOWN, XPORT_ERR_PEER_LOST),
	CODE(FI_ETRUNC, XPORT_ERR_PEER_LOST),
	CODE(FI_ECONNREFUSED, XPORT_ERR_UNREACHABLE),
	CODE(FI_ETIMEDOUT, XPORT_ERR_UNREACHABLE),
	CODE(FI_EHOSTUNREACH, XPORT_ERR_UNREACHABLE),
	CODE(FI_ENETUNREACH, XPORT_ERR_UNREACHABLE),
	CODE(FI_EADDRNOTAVAIL, XPORT_ERR_UNREACHABLE),
};

static const struct code *fi_code_find(int64_t code)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].err == -code)
			return &codes[i];
	return NULL;
}

int ofi_status(int64_t code)
{
	const struct code *c = fi_code_find(code);

	if (code >= 0)
		return XPORT_OK;
	return c != NULL ? c->status : XPORT_ERR_SYSTEM;
}

const char *ofi_lack(int64_t code)
{
	int status = ofi_status(code);

	if (code == -FI_ENOKEY)
		return "the provider has no more keys for registered memory: use fewer endpoints, or ofi:tcp";
	if (status != XPORT_ERR_SYSTEM && status != XPORT_ERR_NO_MEMORY && status != XPORT_ERR_PEER_LOST)
		return NULL;
	/* libfabric has one code for many causes: this one can be checked. */
	if (code == -FI_EMFILE || ofi_descriptors_short())
		return xpi_errno_hint(EMFILE);
	return code == -FI_EINTR ? xpi_errno_hint(EINTR) : NULL;
}

/* Describes that `what` failed. */
int ofi_fail(struct xport_error *err, int64_t code, const char *hint, const char *what)
{
	const struct code *c = fi_code_find(code);

	return xpi_fail(err, ofi_status(code), -code, c != NULL ? c->name : NULL, hint, "%s failed: %s", what,
	                fi_strerror((int)-code));
}

/* ---- signals ---- */

/*
 * The shm provider and some adapters' libraries leave signal handlers behind. Threads of rxm, net and sockets would
 * receive the application's signals, unless they are started with all signals blocked.
 */
void ofi_signals_save(struct ofi_signals *s)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &s->mask);
	xpi_signals_save(&s->actions);
}

void ofi_signals_restore(const struct ofi_signals *s, const struct xpi_log *log)
{
	pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
	xpi_signals_restore(&s->actions, log, "libfabric");
}
