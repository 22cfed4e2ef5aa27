/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/exporter/publishers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 63, PID_DIGITS = 10, INSTANCE_DIGITS = 16, FILE_BYTES = 128, FRESH_S = 60, TRIES = 5 };

const char *const ex_reason_names[EX_REASONS] = {
	[EX_ENDED] = "ended",         [EX_STALE] = "stale",           [EX_MALFORMED] = "malformed",
	[EX_TOO_LARGE] = "too_large", [EX_UNREADABLE] = "unreadable", [EX_TOO_MANY] = "too_many"};

/* A reading of the directory. */
struct look {
	struct ex_publishers *p;
	int dirfd, stale_s;
	bool explain;
	size_t total; /* bytes of the page so far */
	size_t read;  /* bytes that were read so far */
};

static void publisher_free(struct ex_publisher *b)
{
	if (b == NULL)
		return;
	free(b->bytes);
	free(b);
}

static void look_out(struct look *l, const char *file, enum ex_reason reason, const char *why)
{
	l->p->left_out[reason]++;
	if (l->explain)
		fprintf(stderr, "xport_exporter: %s is left out: %s\n", file, why);
}

/* ---- names ---- */

/* Divides NAME-PID-INSTANCE.suffix.  False: it is another file. */
static bool file_name_parse(const char *file, const char *suffix, char labels[EX_LABEL_MAX])
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strlen(file), end = strlen(suffix), name, pid;
	const char *instance, *digits;

	if (len < end + INSTANCE_DIGITS + 4 || strcmp(file + len - end, suffix) != 0)
		return false;
	instance = file + len - end - INSTANCE_DIGITS;
	if (instance[-1] != '-' || strspn(instance, "0123456789abcdef") != INSTANCE_DIGITS)
		return false;
	digits = instance - 1;
	while (digits > file && digits[-1] >= '0' && digits[-1] <= '9')
		digits--;
	pid = (size_t)(instance - 1 - digits);
	if (digits - file < 2 || digits[-1] != '-' || pid < 1 || pid > PID_DIGITS)
		return false;
	name = (size_t)(digits - 1 - file);
	if (name > NAME_BYTES || file[0] == '.' || strspn(file, allowed) != len)
		return false;
	snprintf(labels, EX_LABEL_MAX, "program=\"%.*s\",program_pid=\"%.*s\",program_instance=\"%.*s\"", (int)name,
	         file, (int)pid, digits, (int)INSTANCE_DIGITS, instance);
	return true;
}

/* The process that wrote it lives.  The lock ends with the process. */
static bool file_locked(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* The name is still that of this file.  Its process may have renamed a new text to it. */
static bool file_named(const struct look *l, const char *file, const struct stat *st)
{
	struct stat named;

	return fstatat(l->dirfd, file, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == st->st_ino &&
	       named.st_dev == st->st_dev;
}

static int64_t file_age_ms(const struct stat *st)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	if (st->st_mtim.tv_sec < 0)
		return (int64_t)now.tv_sec * 1000;
	if (st->st_mtim.tv_sec > now.tv_sec)
		return 0;
	age = ((int64_t)now.tv_sec - st->st_mtim.tv_sec) * 1000 + (now.tv_nsec - st->st_mtim.tv_nsec) / 1000000;
	return age < 0 ? 0 : age;
}

/* ---- files ---- */

/* Opens a regular file.  A link, a FIFO or a device is never waited for. */
static int file_open(const struct look *l, const char *file, struct stat *st)
{
	int fd = openat(l->dirfd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

/* What a process left that was killed while it wrote. */
static void fresh_remove(const struct look *l, const char *file)
{
	char labels[EX_LABEL_MAX];
	struct stat st;
	int fd;

	if (file[0] != '.' || !file_name_parse(file + 1, ".fresh", labels))
		return;
	fd = file_open(l, file, &st);
	if (fd < 0)
		return;
	if (!file_locked(fd) && file_age_ms(&st) > FRESH_S * 1000 && file_named(l, file, &st))
		unlinkat(l->dirfd, file, 0);
	close(fd);
}

/* Reads it all.  A file that grows meanwhile is cut off, and so malformed. */
static char *file_read(int fd, size_t size, size_t *len)
{
	char *bytes = malloc(size + 1);

	*len = 0;
	while (bytes != NULL && *len < size) {
		ssize_t n = read(fd, bytes + *len, size - *len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			free(bytes);
			return NULL;
		}
		if (n == 0)
			break;
		*len += (size_t)n;
	}
	return bytes;
}

/* Takes the bytes over. */
static void look_add(struct look *l, const char *file, struct ex_publisher *b, size_t len)
{
	const char *why = ex_text_parse(&b->text, b->bytes, len);
	size_t need = len + b->text.samples * (strlen(b->labels) + 3);
	char words[120];

	if (why != NULL) {
		snprintf(words, sizeof(words), "line %d: %s", b->text.line, why);
		look_out(l, file, EX_MALFORMED, words);
	} else if (need > EX_TOTAL_MAX - l->total) {
		look_out(l, file, EX_TOO_LARGE, "all texts together are too long");
	} else {
		for (int i = 0; i < b->text.families; i++) {
			const struct ex_family *f = &b->text.family[i];

			if (f->kind >= 0 && l->p->kind[f->kind] == NULL)
				l->p->kind[f->kind] = f;
		}
		l->total += need;
		l->p->list[l->p->n++] = b;
		return;
	}
	publisher_free(b);
}

static void look_read(struct look *l, const char *file, const char *labels, int fd, const struct stat *st)
{
	struct ex_publisher *b;
	size_t len;

	b = calloc(1, sizeof(*b));
	if (b != NULL)
		b->bytes = file_read(fd, (size_t)st->st_size, &len);
	if (b == NULL || b->bytes == NULL) {
		look_out(l, file, EX_UNREADABLE, strerror(errno));
		publisher_free(b);
		return;
	}
	memcpy(b->labels, labels, EX_LABEL_MAX);
	b->age_ms = file_age_ms(st);
	look_add(l, file, b, len);
}

/* Opens the file of a publisher.  -1: errno says why.  *lives: it is locked. */
static int file_open_live(const struct look *l, const char *file, struct stat *st, bool *lives)
{
	for (int i = 0; i < TRIES; i++) {
		int fd = file_open(l, file, st);

		*lives = fd >= 0 && file_locked(fd);
		/* A process closes a text after it has renamed the next one: without a lock, and replaced, it lives. */
		if (fd < 0 || *lives || file_named(l, file, st))
			return fd;
		close(fd);
	}
	errno = EBUSY;
	return -1;
}

static void look_at(struct look *l, const char *file)
{
	char labels[EX_LABEL_MAX];
	struct stat st;
	bool lives;
	int fd;

	fresh_remove(l, file);
	if (!file_name_parse(file, ".xport", labels))
		return;
	fd = file_open_live(l, file, &st, &lives);
	if (fd < 0 && errno == ENOENT)
		return; /* it ended just now */
	if (fd < 0) {
		look_out(l, file, EX_UNREADABLE, errno == EINVAL ? "not a regular file" : strerror(errno));
		return;
	}
	if (!lives) {
		look_out(l, file, EX_ENDED, "its process has ended");
		unlinkat(l->dirfd, file, 0);
	} else if (st.st_nlink > 1) {
		look_out(l, file, EX_UNREADABLE, "it has another name, too");
	} else if (file_age_ms(&st) > (int64_t)l->stale_s * 1000) {
		look_out(l, file, EX_STALE, "its process has not written it for too long");
	} else if (l->p->n == EX_PUBLISHERS) {
		look_out(l, file, EX_TOO_MANY, "there are too many publishers");
	} else if (st.st_size > EX_FILE_MAX) {
		look_out(l, file, EX_TOO_LARGE, "it is longer than 16 MiB");
	} else if ((size_t)st.st_size > EX_READ_MAX - l->read) {
		look_out(l, file, EX_TOO_LARGE, "all files together are too long");
	} else {
		l->read += (size_t)st.st_size;
		look_read(l, file, labels, fd, &st);
	}
	close(fd);
}

static int publisher_order(const void *a, const void *b)
{
	return strcmp((*(struct ex_publisher *const *)a)->labels, (*(struct ex_publisher *const *)b)->labels);
}

int ex_publishers_read(struct ex_publishers *p, const char *dir, int stale_s, bool explain)
{
	struct look l = {.p = p, .stale_s = stale_s, .explain = explain};
	DIR *d;

	*p = (struct ex_publishers){.list = calloc(EX_PUBLISHERS, sizeof(struct ex_publisher *))};
	if (p->list == NULL)
		return -1;
	d = opendir(dir);
	if (d == NULL)
		return -1;
	l.dirfd = dirfd(d);
	for (int i = 0;; i++) {
		const struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (e == NULL)
			break;
		if (i >= EX_NAMES)
			look_out(&l, e->d_name, EX_TOO_MANY, "there are too many files");
		else if (strlen(e->d_name) < FILE_BYTES)
			look_at(&l, e->d_name);
	}
	if (errno != 0) {
		int error = errno;

		closedir(d);
		errno = error;
		return -1;
	}
	closedir(d);
	qsort(p->list, (size_t)p->n, sizeof(struct ex_publisher *), publisher_order);
	return 0;
}

void ex_publishers_free(struct ex_publishers *p)
{
	for (int i = 0; i < p->n; i++)
		publisher_free(p->list[i]);
	free(p->list);
	p->list = NULL;
	p->n = 0;
}
