/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source dir:PATH. Each member writes its card to the file PATH/NAME.RANK, which appears whole: it is linked there from a
 * file of its own. A card has the random number of rank 0's card, so that files of an earlier job are recognised. A
 * member removes its file when it leaves.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/group_fd.h"
#include "services/group_source.h"
#include "services/last_error.h"

struct dir_source {
	struct svc_group_source head;
	char *path;
	bool written, all; /* this member's file; those of all were seen */
	uint64_t group;    /* the number of rank 0; 0: unknown */
	uint8_t present[];
};

enum { DIR_PATH_MAX = 4096 };

static void file_name(const struct dir_source *d, int rank, char *file, size_t size)
{
	snprintf(file, size, "%s/%s.%d", d->path, d->head.name, rank);
}

static int dir_system(const struct dir_source *d, const char *what, const char *file)
{
	return svc_fail(XPORT_ERR_SYSTEM, d->head.operation,
	                "all members need to read and write the directory; it must allow links", "cannot %s %.200s: %s",
	                what, file, strerror(errno));
}

static int dir_stale(const struct dir_source *d, const char *file, const struct svc_group_card *c)
{
	char hint[400];

	snprintf(hint, sizeof(hint), "rm -f %.100s/%.63s.* %.100s/.%.63s.*, or set another XPORT_GROUP_NAME", d->path,
	         d->head.name, d->path, d->head.name);
	return svc_fail(XPORT_ERR_BUSY, d->head.operation, hint,
	                "%.200s is a file of an earlier job, by process %lld on %s: this job cannot use its name", file,
	                (long long)c->pid, c->host);
}

/* Reads a card. AGAIN: there is no such file. */
static int dir_read(const struct dir_source *d, int rank, struct svc_group_card *card, char *file, size_t size)
{
	uint8_t bytes[SVC_CARD_MAX + 1];
	ssize_t n;
	int fd;

	file_name(d, rank, file, size);
	fd = svc_fd_open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0); /* somebody may have put a FIFO there */
	if (fd < 0)
		return errno == ENOENT ? XPORT_ERR_AGAIN : dir_system(d, "open", file);
	n = read(fd, bytes, sizeof(bytes));
	close(fd);
	if (n < 0)
		return dir_system(d, "read", file);
	if (!svc_card_decode(card, bytes, (size_t)n) || card->rank != rank)
		return svc_fail(XPORT_ERR_PROTOCOL, d->head.operation, "remove the file, or use another directory",
		                "%.200s is not a file of a group", file);
	return XPORT_OK;
}

/* Somebody has this rank already. */
static int dir_taken(const struct dir_source *d, const char *file)
{
	struct svc_group_card c;
	char again[DIR_PATH_MAX];
	int r = dir_read(d, d->head.rank, &c, again, sizeof(again));

	if (r == XPORT_ERR_AGAIN)
		return svc_fail(XPORT_ERR_BUSY, d->head.operation, "give each process a rank of its own",
		                "two processes have rank %d", d->head.rank);
	if (r != XPORT_OK)
		return r;
	if (svc_card_dead(&c))
		return dir_stale(d, file, &c);
	return svc_fail(XPORT_ERR_BUSY, d->head.operation,
	                "give each process a rank of its own, or each job a XPORT_GROUP_NAME; if no such process runs, "
	                "remove the file",
	                "two processes have rank %d: %.150s is of process %lld on %s", d->head.rank, file,
	                (long long)c.pid, c.host);
}

static int dir_write(struct dir_source *d, const struct svc_group_card *card)
{
	uint8_t bytes[SVC_CARD_MAX];
	size_t len = svc_card_encode(card, bytes);
	char file[DIR_PATH_MAX], own[DIR_PATH_MAX];
	int fd, r = XPORT_OK;
	ssize_t n;

	file_name(d, d->head.rank, file, sizeof(file));
	snprintf(own, sizeof(own), "%s/.%s.%d.%llx", d->path, d->head.name, d->head.rank,
	         (unsigned long long)card->own);
	fd = svc_fd_open(own, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return dir_system(d, "create", own);
	n = write(fd, bytes, len);
	if (n != (ssize_t)len) {
		errno = n < 0 ? errno : ENOSPC;
		r = dir_system(d, "write", own);
	}
	if (close(fd) != 0 && r == XPORT_OK)
		r = dir_system(d, "write", own);
	if (r == XPORT_OK && link(own, file) != 0)
		r = errno == EEXIST ? dir_taken(d, file) : dir_system(d, "link", file);
	else if (r == XPORT_OK)
		d->written = true;
	unlink(own);
	return r;
}

static int dir_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct dir_source *d = (struct dir_source *)s;
	struct svc_group_card mine = *card, first;
	char file[DIR_PATH_MAX];
	int r;

	if (s->rank == 0) {
		d->group = card->own;
	} else {
		r = dir_read(d, 0, &first, file, sizeof(file));
		if (r == XPORT_ERR_AGAIN)
			poll(NULL, 0, slice_ms);
		if (r != XPORT_OK)
			return r;
		if (svc_card_dead(&first))
			return dir_stale(d, file, &first);
		if (first.members != s->members)
			return svc_fail(XPORT_ERR_CONFIG, s->operation, "give all processes the same number",
			                "rank 0 says that the group has %d members, and rank %d says %d", first.members,
			                s->rank, s->members);
		d->group = first.own;
	}
	mine.group = d->group;
	return dir_write(d, &mine);
}

static int dir_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	struct dir_source *d = (struct dir_source *)s;
	char file[DIR_PATH_MAX];
	int r = dir_read(d, rank, card, file, sizeof(file));

	if (r == XPORT_ERR_AGAIN && d->all)
		return svc_fail(XPORT_ERR_PEER_CLOSED, s->operation, NULL, "rank %d has left the group", rank);
	if (r == XPORT_ERR_AGAIN)
		poll(NULL, 0, slice_ms);
	if (r != XPORT_OK)
		return r;
	if (card->group != d->group)
		return dir_stale(d, file, card);
	if (card->members != s->members)
		return svc_fail(XPORT_ERR_CONFIG, s->operation, "give all processes the same number",
		                "rank %d says that the group has %d members, and rank %d says %d", rank, card->members,
		                s->rank, s->members);
	return XPORT_OK;
}

static int dir_ready(struct svc_group_source *s, int slice_ms)
{
	struct dir_source *d = (struct dir_source *)s;
	struct svc_group_card card;
	int missing = 0, r;

	for (int i = 0; i < s->members; i++) {
		if (d->present[i])
			continue;
		r = dir_card(s, i, &card, 0);
		if (r != XPORT_OK && r != XPORT_ERR_AGAIN)
			return r;
		d->present[i] = r == XPORT_OK;
		missing += r != XPORT_OK;
	}
	if (missing == 0) {
		d->all = true;
		return XPORT_OK;
	}
	poll(NULL, 0, slice_ms);
	return XPORT_ERR_AGAIN;
}

static void dir_missing(struct svc_group_source *s, char *text, size_t size)
{
	struct dir_source *d = (struct dir_source *)s;

	if (d->written)
		svc_group_list_ranks(d->present, s->members, text, size);
	else
		snprintf(text, size, "rank 0");
}

static void dir_close(struct svc_group_source *s)
{
	struct dir_source *d = (struct dir_source *)s;
	char file[DIR_PATH_MAX];

	file_name(d, s->rank, file, sizeof(file));
	if (d->written)
		unlink(file);
	free(d->path);
	free(d);
}

static const struct svc_group_source_ops dir_ops = {
	.name = "dir",
	.offer = dir_offer,
	.ready = dir_ready,
	.card = dir_card,
	.missing = dir_missing,
	.close = dir_close,
};

int svc_group_dir_open(const struct svc_group_choice *c, const char *path, struct svc_group_source **source,
                       const char *operation)
{
	struct dir_source *d;
	struct stat st;

	if (path[0] == '\0' || strlen(path) > DIR_PATH_MAX - 200)
		return svc_fail(XPORT_ERR_CONFIG, operation, "for example XPORT_GROUP=dir:/shared/jobs/17",
		                "the path after dir: is empty or too long");
	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return svc_fail(XPORT_ERR_CONFIG, operation, "make the directory before the job starts: mkdir -m 700",
		                "dir:%.200s is not a directory", path);
	d = calloc(1, sizeof(*d) + (size_t)c->members);
	if (d != NULL)
		d->path = strdup(path);
	if (d == NULL || d->path == NULL) {
		free(d);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	d->head.ops = &dir_ops;
	d->head.rank = c->rank;
	d->head.members = c->members;
	*source = &d->head;
	return XPORT_OK;
}
