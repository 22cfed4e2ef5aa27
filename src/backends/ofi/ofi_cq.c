/* SPDX-License-Identifier: BSD-3-Clause */
/* ofi_cq.c - the completion queue, and the descriptors to wait on. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "ofi.h"

/*
 * Whether the queue has no usable descriptor. The queue of unconnected endpoints outlives them, and rxm (1.17) keeps
 * accessing closed ones.
 */
static bool no_fd(const struct xpi_be *be)
{
	return be->rdm || be->quirk->no_fd || be->no_wait;
}

static int wait_fd(struct fid *fid)
{
	int fd = -1;

	return fi_control(fid, FI_GETWAIT, &fd) == 0 ? fd : -1;
}

static size_t cq_size(const struct xpi_be *be)
{
	return be->quirk->cq > 0 ? be->quirk->cq : OFI_CQ_SIZE;
}

int ofi_cq_new(struct xpi_be *be, struct fid_cq **cq)
{
	struct fi_cq_attr attr = {
		.size = cq_size(be),
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = !no_fd(be) ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	int rc = fi_cq_open(be->domain, &attr, cq, NULL);

	if (rc == -FI_ENOSYS && attr.wait_obj == FI_WAIT_FD) {
		be->no_wait = true; /* such a queue must not be asked for its descriptor */
		attr.wait_obj = FI_WAIT_NONE;
		rc = fi_cq_open(be->domain, &attr, cq, NULL);
	}
	if (rc != 0)
		*cq = NULL;
	return rc;
}

int ofi_cq_open(struct xpi_be *be)
{
	int rc = ofi_cq_new(be, &be->cq);

	if (rc != 0)
		return ofi_fail(be->err, rc, NULL, "opening a completion queue of libfabric");
	xpi_pool_init(&be->recs, sizeof(struct ofi_rec), 64);
	be->cq_left = cq_size(be);
	return XPORT_OK;
}

/*
 * Removes the wake-up descriptor of the tcp provider from its epoll set. tcp writes a byte to itself for each
 * completion, to wake another thread, and the next poll reads it: two system calls for each message, about a fifth of
 * its time. They are useless here: an instance is polled by one thread, and ofi_arm checks before anybody sleeps. The
 * byte is read when epoll reports it, and none is written while one is there. So it is enough that epoll does not
 * report it. The descriptor is the only one in the set of a new queue, and the kernel lists it.
 */
static void mute(int epoll)
{
	char path[64], line[256];
	int fd, n = 0, its = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll);
	f = xpi_fd_stream(path);
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "tfd: %d", &fd) != 1)
			continue;
		its = fd;
		n++;
	}
	fclose(f);
	if (n == 1)
		(void)epoll_ctl(epoll, EPOLL_CTL_DEL, its, NULL);
}

/* Called after the event queue was opened. A provider that promises descriptors and has none uses a timer. */
int ofi_cq_fds(struct xpi_be *be)
{
	if (!no_fd(be)) {
		be->fd[0] = wait_fd(&be->cq->fid);
		be->fd[1] = be->eq != NULL ? wait_fd(&be->eq->fid) : -1;
	}
	if (be->fd[0] >= 0 && be->quirk->wakes_itself && fi_version() < FI_VERSION(1, 18))
		mute(be->fd[0]);
	if (be->fd[0] >= 0 && (be->eq == NULL || be->fd[1] >= 0))
		return XPORT_OK;
	be->fd[0] = be->fd[1] = -1;
	be->timer = xpi_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	if (be->timer >= 0)
		return XPORT_OK;
	return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot create a timer descriptor");
}

void ofi_cq_close(struct xpi_be *be)
{
	if (be->cq != NULL)
		fi_close(&be->cq->fid);
	if (be->timer >= 0)
		close(be->timer);
	xpi_pool_fini(&be->recs);
}

/* ---- waiting ---- */

int ofi_fds(struct xpi_be *be, int *fds, int max)
{
	const int all[] = {be->fd[0], be->fd[1], be->timer};
	int n = 0;

	for (int i = 0; i < 3; i++)
		if (all[i] >= 0 && n < max)
			fds[n++] = all[i];
	return n;
}

/* Without a descriptor: sleeps until a timer expires, longer the longer nothing happens, however often it is called. */
static int cq_nap(struct xpi_be *be)
{
	static const struct {
		int64_t after_ms;
		long ns;
	} steps[] = {{1000, 16000000}, {80, 8000000}, {10, 1000000}, {0, 200000}};
	struct itimerspec in = {{0, 0}, {0, 0}};
	int64_t now = xpi_now_ms();
	int i = 0;

	if (!be->idle) {
		be->idle = true;
		be->idle_ms = now;
		return XPORT_ERR_AGAIN; /* the completions read may have freed space for waiting operations */
	}
	while (now - be->idle_ms < steps[i].after_ms)
		i++;
	in.it_value.tv_nsec = steps[i].ns;
	return timerfd_settime(be->timer, 0, &in, NULL) == 0 ? XPORT_OK : XPORT_ERR_AGAIN;
}

int ofi_arm(struct xpi_be *be)
{
	struct fid *fids[] = {&be->cq->fid, be->eq != NULL ? &be->eq->fid : NULL};
	int rc;

	be->look = true;
	be->calm = 0;
	if (be->ngone > 0 || !xpi_list_empty(&be->hungry))
		return XPORT_ERR_AGAIN;
	if (be->timer >= 0)
		return cq_nap(be);
	rc = fi_trywait(be->fabric, fids, be->eq != NULL ? 2 : 1);
	if (rc == 0)
		return XPORT_OK;
	if (rc == -FI_EAGAIN)
		return XPORT_ERR_AGAIN;
	return ofi_fail(be->err, rc, NULL, "arming libfabric's descriptors");
}
