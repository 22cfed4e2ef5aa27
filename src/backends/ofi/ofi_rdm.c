/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_rdm.c - unconnected endpoints (FI_EP_RDM), where a provider has no connected ones.
 *
 * Such an endpoint talks to many, tells of nobody's end, and some of them keep what was posted for a peer that has
 * died, or stand still behind it: closing the endpoint is the only way out.  So there is one for each peer, with an
 * address vector of one.  It is there from `address` on, which tells its name.
 *
 * Connected is who was greeted: each side sends, as the first frame, the cookie that stood in the other's address, and
 * whatever comes before that is dropped.  So both directions are known to work, and a stranger is not heard until then;
 * later the core's session number keeps him out.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ofi.h"

enum { SWEEP_AFTER_S = 1 };

static const uint8_t magic[4] = {'X', 'P', 'O', '2'};

/* ---- what a kill leaves in /dev/shm ---- */

/* libfabric's name for such a file: process:user:number. */
static bool is_file_name(const char *name, pid_t *pid)
{
	int colons = 0;

	for (const char *c = name; *c != '\0'; c++) {
		if (!isdigit((unsigned char)*c) && (*c != ':' || c == name || c[1] == '\0'))
			return false;
		colons += *c == ':';
	}
	*pid = (pid_t)atoi(name);
	return colons == 2 && *pid > 0;
}

/* Both sides have mapped each other: nobody needs our file's name any more, and a kill leaves nothing. */
static void forget_name(const struct ofi_ep *ep)
{
	const char *prefix = ep->be->quirk->shm_prefix, *name = (const char *)ep->name.bytes;
	pid_t pid;

	if (prefix != NULL && strncmp(name, prefix, strlen(prefix)) == 0 && is_file_name(name + strlen(prefix), &pid))
		(void)shm_unlink(name + strlen(prefix));
}

/*
 * Whether nobody has it open or mapped: a process of another container may have an identity that is nobody's here.  Asked for
 * by a lease, which is refused while somebody has; true where there are none.
 */
static bool deserted(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool alone = false;

	if (fd < 0)
		return false;
	/* Who opens it meanwhile makes the kernel tell us, by a signal that does nothing. */
	if (fcntl(fd, F_SETSIG, SIGURG) == 0)
		alone = fcntl(fd, F_SETLEASE, F_WRLCK) == 0 || errno == EINVAL;
	close(fd);
	return alone;
}

/* Takes away what processes of this user left that were killed before they were connected. */
static void sweep(const struct xpi_be *be)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *e;
	struct stat st;
	pid_t pid;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (!is_file_name(e->d_name, &pid) || kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_uid != geteuid() ||
		    time(NULL) - st.st_mtime < SWEEP_AFTER_S)
			continue;
		if (deserted(dirfd(dir), e->d_name) && unlinkat(dirfd(dir), e->d_name, 0) == 0)
			xpi_log(be->log, XPORT_LOG_INFO, "3013", "ofi: removed /dev/shm/%s of a killed process",
			        e->d_name);
	}
	if (dir != NULL)
		closedir(dir);
}

/* ---- opening ---- */

/* *step: what it was at if that failed. */
static int open_endpoint(struct ofi_ep *ep, const char **step)
{
	struct xpi_be *be = ep->be;
	bool map = be->info->domain_attr->av_type == FI_AV_MAP; /* it has no other */
	struct fi_av_attr attr = {.type = map ? FI_AV_MAP : FI_AV_TABLE, .count = 1};
	int rc = fi_av_open(be->domain, &attr, &ep->av, NULL);

	*step = "opening an address vector of libfabric";
	if (rc != 0) {
		ep->av = NULL;
		return rc;
	}
	if (be->quirk->shm_prefix != NULL) {
		*step = "making a page that peers share";
		rc = ofi_guard_open(ep);
		if (rc != 0)
			return rc;
		*step = "opening a completion queue of libfabric";
		rc = ofi_comp_queue(be, &ep->cq);
		if (rc != 0)
			return rc;
	}
	if (be->quirk->tells) {
		struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};

		*step = "opening an event queue of libfabric";
		rc = fi_eq_open(be->fabric, &eq, &ep->eq, NULL);
		if (rc != 0) {
			ep->eq = NULL;
			return rc;
		}
	}
	*step = "opening an endpoint of libfabric";
	rc = ofi_ep_open(ep, NULL);
	if (rc != 0)
		return rc;
	ep->name.len = sizeof(ep->name.bytes);
	rc = fi_getname(&ep->fid->fid, ep->name.bytes, &ep->name.len);
	return rc == 0 && be->quirk->walled ? ofi_wall_build(ep) : rc;
}

int ofi_rdm_prepare(struct ofi_ep *ep)
{
	const char *step = "";
	sigset_t all, mask;
	int rc = ofi_room(ep->be->quirk, ep->be->err);

	if (rc != XPORT_OK)
		return rc;
	sigfillset(&all); /* see ofi_status.c */
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	rc = open_endpoint(ep, &step);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return rc == 0 ? XPORT_OK
	               : ofi_fail(ep->be->err, rc, rc == -FI_ENOKEY ? ofi_lack(rc) : "raise `ulimit -n`?", step);
}

/* Tries it once: what fi_getinfo offers is not always what there is, and some leave signal handlers behind. */
int ofi_rdm_open(struct xpi_be *be)
{
	struct ofi_ep ep = {.be = be};
	int rc;

	if (be->quirk->shm_prefix != NULL)
		sweep(be);
	xpi_list_init(&ep.posted);
	xpi_list_init(&ep.idle);
	xpi_list_init(&ep.early);
	xpi_list_init(&ep.bounces);
	rc = ofi_rdm_prepare(&ep);
	ofi_ep_shut(&ep);
	return rc;
}

void ofi_rdm_close(struct ofi_ep *ep)
{
	if (ep->av != NULL)
		fi_close(&ep->av->fid);
	ep->av = NULL;
	if (ep->eq != NULL)
		fi_close(&ep->eq->fid);
	ep->eq = NULL;
	ofi_guard_close(ep);
}

void ofi_rdm_poll(struct xpi_be *be)
{
	xpi_list_for_safe(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);
		struct fi_eq_err_entry e = {0};
		uint32_t event;
		char entry[64];

		if (ep->eq != NULL && ep->why == 0 &&
		    fi_eq_read(ep->eq, &event, entry, sizeof(entry), 0) == -FI_EAVAIL &&
		    fi_eq_readerr(ep->eq, &e, 0) > 0)
			ofi_ep_lost(ep, e.err > 0 ? -e.err : e.err < 0 ? e.err : -FI_EIO);
	}
}

/* ---- connecting ---- */

/*
 * shm (1.17) takes for success that it could not map a peer, and ends the process at the first thing that comes from
 * there.  So the peer's file must be there to be opened, still after libfabric has looked for it, and nothing is read
 * before libfabric knows the peer: what it finds then makes it map a peer it does not know (read_guarded).
 */
static int mappable(const struct ofi_ep *ep)
{
	const char *prefix = ep->be->quirk->shm_prefix, *name = (const char *)ep->peer[0].bytes;
	int fd;

	if (prefix == NULL)
		return 0;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return -FI_EADDRNOTAVAIL;
	fd = shm_open(name + strlen(prefix), O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return errno == ENOENT ? -FI_EHOSTUNREACH : -errno;
	close(fd);
	return 0;
}

/* False: not now, the peer is inside its page; else `to` or `why` is set. */
static bool introduce(struct ofi_ep *ep)
{
	int rc = mappable(ep);

	if (rc == 0) {
		/* One of this process must not end while libfabric looks into its memory. */
		if (ep->theirs != NULL && !ofi_guard_enter(ep->theirs))
			return false;
		rc = fi_av_insert(ep->av, ep->peer[0].bytes, 1, &ep->to, 0, NULL);
		rc = rc == 1 ? mappable(ep) : rc < 0 ? rc : -FI_EADDRNOTAVAIL;
		if (ep->theirs != NULL)
			ofi_guard_leave(ep->theirs, false);
	}
	if (rc != 0) {
		ep->why = rc;
		ep->to = FI_ADDR_UNSPEC;
	}
	return true;
}

static int resolve(struct ofi_ep *ep, const void *addr, size_t len)
{
	int rc = ofi_addr_unpack(ep, addr, len);

	if (rc != XPORT_OK)
		return rc;
	ep->state = OFI_EP_CONNECTING;
	if (ep->be->quirk->walled)
		ep->why = ofi_wall_open(ep);
	return XPORT_OK;
}

static void greet(struct ofi_ep *ep)
{
	ssize_t rc;

	memcpy(ep->hello, magic, sizeof(magic));
	memcpy(ep->hello + sizeof(magic), ep->peer_cookie, OFI_COOKIE);
	if (ep->theirs != NULL && !ofi_guard_enter(ep->theirs))
		return;
	rc = ofi_am_greet(ep);
	if (ep->theirs != NULL)
		ofi_guard_leave(ep->theirs, rc == 0);
	if (rc == 0)
		ep->greeting = true;
	else if (rc != -FI_EAGAIN)
		ep->why = (int)rc;
}

void ofi_rdm_greeted(struct ofi_ep *ep, const void *buf, size_t len)
{
	if (len == OFI_GREETING && memcmp(buf, magic, sizeof(magic)) == 0 &&
	    memcmp((const uint8_t *)buf + sizeof(magic), ep->cookie, OFI_COOKIE) == 0)
		ep->greeted = true;
	else
		xpi_log(ep->be->log, XPORT_LOG_INFO, "3011", "ofi: dropped %zu bytes of a stranger", len);
}

int ofi_rdm_connect(struct ofi_ep *ep, const void *addr, size_t len)
{
	int rc = ep->state == OFI_EP_NEW ? resolve(ep, addr, len) : XPORT_OK;

	if (rc != XPORT_OK)
		return rc;
	if (ep->why == 0 && ep->to == FI_ADDR_UNSPEC && !introduce(ep))
		return XPORT_ERR_AGAIN;
	if (ep->why == 0 && !ep->greeting)
		greet(ep);
	if (ep->why != 0 || !ep->greeting || !ep->greeted || ofi_am_greeting(ep))
		return XPORT_ERR_AGAIN;
	ofi_ep_connected(ep);
	forget_name(ep);
	return XPORT_OK;
}
