/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_card.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/wire.h"

static const uint32_t MAGIC = 0x01475058; /* "XPG", 1 */

uint64_t svc_group_random(void)
{
	uint64_t n = 0;

	/* Without random numbers, one that differs between processes and between times. */
	if (getrandom(&n, sizeof(n), 0) != (ssize_t)sizeof(n))
		n = ((uint64_t)getpid() << 40) ^ (uint64_t)svc_now_ms();
	return n == 0 ? 1 : n;
}

/* The start time of a process (proc_pid_stat(5), field 22); 0: unknown. */
static uint64_t process_started(int64_t pid)
{
	char path[64], text[1024];
	ssize_t n;
	char *p;
	int fd;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	fd = svc_fd_open(path, 0, 0);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name of the program may have spaces */
	for (int field = 2; p != NULL && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p == NULL ? 0 : strtoull(p, NULL, 10);
}

void svc_card_begin(struct svc_group_card *card)
{
	struct stat space;

	memset(card, 0, sizeof(*card));
	card->own = svc_group_random();
	card->pid = getpid();
	card->started = process_started(card->pid);
	if (stat("/proc/self/ns/pid", &space) == 0)
		card->pid_space = space.st_ino;
	if (gethostname(card->host, sizeof(card->host) - 1) != 0)
		snprintf(card->host, sizeof(card->host), "unknown");
}

size_t svc_card_encode(const struct svc_group_card *card, uint8_t *bytes)
{
	struct xpi_wr w = xpi_wr(bytes, SVC_CARD_MAX);

	xpi_wr_u32(&w, MAGIC);
	xpi_wr_u32(&w, (uint32_t)card->rank);
	xpi_wr_u32(&w, (uint32_t)card->members);
	xpi_wr_u64(&w, card->own);
	xpi_wr_u64(&w, card->group);
	xpi_wr_u64(&w, (uint64_t)card->pid);
	xpi_wr_u64(&w, card->started);
	xpi_wr_u64(&w, card->pid_space);
	xpi_wr_str(&w, card->address);
	xpi_wr_str(&w, card->host);
	return SVC_CARD_MAX - w.left;
}

bool svc_card_decode(struct svc_group_card *card, const uint8_t *bytes, size_t len)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	uint32_t magic = xpi_rd_u32(&r), rank = xpi_rd_u32(&r), members = xpi_rd_u32(&r);

	memset(card, 0, sizeof(*card));
	card->own = xpi_rd_u64(&r);
	card->group = xpi_rd_u64(&r);
	card->pid = (int64_t)xpi_rd_u64(&r);
	card->started = xpi_rd_u64(&r);
	card->pid_space = xpi_rd_u64(&r);
	xpi_rd_str(&r, card->address, sizeof(card->address));
	xpi_rd_str(&r, card->host, sizeof(card->host));
	if (r.bad || r.left != 0 || magic != MAGIC || members < 1 || members > SVC_GROUP_MEMBERS_MAX ||
	    rank >= members || card->own == 0)
		return false;
	card->rank = (int)rank;
	card->members = (int)members;
	return true;
}

bool svc_card_dead(const struct svc_group_card *card)
{
	struct svc_group_card here;
	uint64_t started;

	svc_card_begin(&here);
	if (strcmp(here.host, card->host) != 0 || card->pid <= 0 || card->pid_space == 0 ||
	    here.pid_space != card->pid_space)
		return false;
	if (kill((pid_t)card->pid, 0) != 0 && errno == ESRCH)
		return true;
	started = process_started(card->pid);
	return card->started != 0 && started != 0 && started != card->started;
}
