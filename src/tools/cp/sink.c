/* SPDX-License-Identifier: BSD-3-Clause */
/* sink.c - the side that writes. */
#include "tools/cp/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp/safe_path.h"

bool cp_sink_init(struct cp_sink *s, struct cp_link *l, int root, bool sync, const struct cp_observer *see,
                  const struct cp_sink_answers *answers)
{
	*s = (struct cp_sink){.link = l, .answers = *answers, .root = root, .see = see};
	if (!cp_part_init(&s->part))
		return false;
	s->part.sync = sync;
	return true;
}

void cp_sink_fini(struct cp_sink *s)
{
	cp_part_fini(&s->part);
}

/* ---- answers ---- */

static void sink_reply(struct cp_sink *s, const struct cp_msg *m)
{
	s->answers.reply(s->answers.arg, m);
}

static bool sink_refuse(struct cp_sink *s, const char *text)
{
	s->answers.refuse(s->answers.arg, text);
	return false;
}

static void sink_answer(struct cp_sink *s, uint32_t kind, int status, const char *what)
{
	struct cp_msg m = {.kind = kind, .status = (uint32_t)status};
	char text[CP_TEXT] = "";

	if (status != 0) {
		snprintf(text, sizeof(text), "%s", what);
		m.text = (struct cp_bytes){text, strlen(text)};
	}
	sink_reply(s, &m);
}

/* DONE, with the errno of what was tried. */
static void sink_done(struct cp_sink *s, bool good, const char *what)
{
	char text[CP_TEXT];
	int error = errno;

	snprintf(text, sizeof(text), "%s: %s", what, strerror(error));
	sink_answer(s, CP_DONE, good ? 0 : error, text);
}

static void acknowledge(struct cp_sink *s, unsigned slot, int status)
{
	struct cp_msg m = {.kind = CP_ACK, .slot = slot, .status = (uint32_t)status};

	sink_reply(s, &m);
}

static void sink_moved(struct cp_sink *s, uint64_t bytes)
{
	if (s->see != NULL && s->see->moved != NULL)
		s->see->moved(s->see->arg, bytes);
}

void cp_sink_expect(struct cp_sink *s, const char *only, bool tree)
{
	s->only = only;
	s->tree = tree;
}

static bool sink_expected(const struct cp_sink *s, const struct cp_msg *m, const char *path)
{
	size_t n = s->only != NULL ? strlen(s->only) : 0;

	if (s->only == NULL)
		return true;
	if (!s->tree)
		return m->kind == CP_FILE && strcmp(path, s->only) == 0;
	return n == 0 || (strncmp(path, s->only, n) == 0 && (path[n] == '\0' || path[n] == '/'));
}

/* The path of a message; false: it was refused. */
static bool path_of(struct cp_sink *s, const struct cp_msg *m, uint32_t answer_by, char path[CP_PATH])
{
	char text[CP_TEXT];
	const char *fault = "it contains a NUL byte";

	if (cp_msg_string(&m->path, path, CP_PATH))
		fault = cp_path_fault(path);
	if (fault == NULL && !sink_expected(s, m, path))
		fault = "it was not requested";
	if (fault == NULL)
		return true;
	snprintf(text, sizeof(text), "the path was refused: %s", fault);
	sink_answer(s, answer_by, EINVAL, text);
	return false;
}

static void look_of(const struct cp_msg *m, struct cp_look *look)
{
	look->mode = m->mode;
	look->times[0] = (struct timespec){.tv_sec = m->atime_s, .tv_nsec = m->atime_ns};
	look->times[1] = (struct timespec){.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns};
}

/* ---- files ---- */

/* Whether what is there has the size and the time of the source's. */
static bool is_same(const struct cp_sink *s, const char *path, const struct cp_msg *m)
{
	int fd = cp_safe_path_open(s->root, path, O_PATH);
	struct stat st;
	bool same = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == m->length &&
	            st.st_mtim.tv_sec == m->mtime_s && st.st_mtim.tv_nsec == m->mtime_ns;

	if (fd >= 0)
		close(fd);
	return same;
}

static void take_file(struct cp_sink *s, const struct cp_msg *m)
{
	struct cp_msg opened = {.kind = CP_OPENED};
	struct cp_part *p = &s->part;
	char path[CP_PATH];

	if (cp_part_is_open(p)) {
		sink_refuse(s, "the peer began a file before the previous one ended");
		return;
	}
	if (!path_of(s, m, CP_OPENED, path))
		return;
	if (s->see != NULL && s->see->began != NULL)
		s->see->began(s->see->arg, path, m->length);
	if ((m->flags & CP_UPDATE) != 0 && is_same(s, path, m)) {
		opened.flags = CP_SAME;
		s->tally.same++;
		sink_reply(s, &opened);
		return;
	}
	look_of(m, &s->look);
	if (cp_part_open(p, s->root, path, m->length, (m->flags & CP_SPARSE) != 0)) {
		opened.offset = p->have;
		sink_reply(s, &opened);
		return;
	}
	/* What an earlier copy left may be worth its room; what is another's is not ours. */
	cp_part_drop(p, p->error != CP_BUSY && p->have == 0);
	sink_answer(s, CP_OPENED, p->error, p->text);
}

static bool has_file(struct cp_sink *s)
{
	return cp_part_is_open(&s->part) || sink_refuse(s, "the peer sent data without a file");
}

void cp_sink_block(struct cp_sink *s, unsigned slot)
{
	struct cp_part *p = &s->part;
	struct cp_head h;

	if (!has_file(s))
		return;
	cp_link_head(s->link, slot, &h);
	s->blocks++;
	if (p->error == 0 && cp_part_block(p, &h, cp_link_data(s->link, slot))) {
		sink_moved(s, h.length);
	}
	acknowledge(s, slot, p->error);
}

static void take_check(struct cp_sink *s, const struct cp_msg *m)
{
	struct cp_head h = {m->offset, m->length, {m->hash[0], m->hash[1]}};
	struct cp_part *p = &s->part;
	bool same = false;

	if (!has_file(s))
		return;
	if (p->error == 0 && cp_part_check(p, &h, &same) && same) {
		s->tally.resumed_bytes += h.length;
		sink_moved(s, h.length);
	}
	acknowledge(s, m->slot, p->error != 0 ? p->error : same ? CP_HAVE : CP_NEED);
}

static void take_hole(struct cp_sink *s, const struct cp_msg *m)
{
	struct cp_part *p = &s->part;

	if (has_file(s) && p->error == 0 && cp_part_hole(p, m->offset, m->length))
		sink_moved(s, m->length);
}

static void take_finish(struct cp_sink *s, const struct cp_msg *m)
{
	struct cp_part *p = &s->part;

	if (!has_file(s))
		return;
	if (m->status == 0 && p->error == 0 && cp_part_finish(p, m->hash, &s->look)) {
		s->tally.files++;
		s->tally.bytes += p->size;
		sink_answer(s, CP_DONE, 0, "");
		return;
	}
	cp_part_drop(p, true);
	sink_answer(s, CP_DONE, p->error, p->text);
}

/* ---- directories and links ---- */

/* One of ours, which an earlier copy may have given its permissions already; DIREND gives them again. */
static void let_us_in(int fd)
{
	char name[64];
	struct stat st;

	if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 0700) == 0700)
		return;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd); /* fchmod refuses what was opened by O_PATH */
	(void)chmod(name, (st.st_mode & 07777) | 0700);
}

static bool make_dir(struct cp_sink *s, const char *path)
{
	const char *base;
	int parent, fd;
	bool made;

	if (*path == '\0')
		return true;
	parent = cp_safe_path_parent(s->root, path, &base);
	if (parent < 0)
		return false;
	made = mkdirat(parent, base, 0700) == 0;
	if (!made && errno == EEXIST) {
		fd = cp_safe_path_open(s->root, path, O_PATH | O_DIRECTORY);
		made = fd >= 0;
		if (fd >= 0) {
			let_us_in(fd);
			close(fd);
		}
	}
	fd = errno;
	close(parent);
	errno = fd;
	return made;
}

/* With --fsync a directory is on the disk with what is in it, and with its own name. */
static bool sync_both(struct cp_sink *s, int fd, const char *path)
{
	const char *base;
	int parent = cp_safe_path_parent(s->root, path, &base);
	bool good = parent >= 0 && fsync(fd) == 0 && cp_sync_dir(parent);
	int error = errno;

	if (parent >= 0)
		close(parent);
	errno = error;
	return good;
}

static bool end_dir(struct cp_sink *s, const char *path, const struct cp_msg *m)
{
	struct cp_look look;
	bool good;
	int fd, error;

	if (*path == '\0')
		return !s->part.sync || cp_sync_dir(s->root);
	fd = cp_safe_path_open(s->root, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return false;
	look_of(m, &look);
	good = fchmod(fd, look.mode & 0777) == 0 && futimens(fd, look.times) == 0 &&
	       (!s->part.sync || sync_both(s, fd, path));
	error = errno;
	close(fd);
	errno = error;
	return good;
}

/* Another copy may make the same link now: each has a name of its own until it is made. */
static bool make_link(int parent, const char *base, const char *to, const struct cp_look *look, bool sync)
{
	char temp[CP_TEMP];
	bool good;

	if (!cp_part_own_temp(temp, base) || symlinkat(to, parent, temp) != 0)
		return false;
	(void)utimensat(parent, temp, look->times, AT_SYMLINK_NOFOLLOW); /* some file systems keep none of a link */
	good = renameat(parent, temp, parent, base) == 0;
	if (!good) {
		int error = errno;

		unlinkat(parent, temp, 0);
		errno = error;
	}
	return good && (!sync || cp_sync_dir(parent));
}

static void take_link(struct cp_sink *s, const struct cp_msg *m)
{
	char path[CP_PATH], to[CP_PATH];
	struct cp_look look;
	const char *base;
	int parent;

	if (!path_of(s, m, CP_DONE, path))
		return;
	if (!cp_msg_string(&m->text, to, sizeof(to)) || !cp_link_stays(path, to)) {
		sink_answer(s, CP_DONE, EXDEV, "the symbolic link may lead out of the directory, and was not created");
		return;
	}
	look_of(m, &look);
	parent = cp_safe_path_parent(s->root, path, &base);
	sink_done(s, parent >= 0 && make_link(parent, base, to, &look, s->part.sync), "creating the symbolic link");
	if (parent >= 0)
		close(parent);
}

static void take_dir(struct cp_sink *s, const struct cp_msg *m)
{
	char path[CP_PATH];

	if (!path_of(s, m, CP_DONE, path))
		return;
	if (m->kind == CP_DIR)
		sink_done(s, make_dir(s, path), "creating the directory");
	else
		sink_done(s, end_dir(s, path, m), "setting the directory's permissions and times");
}

static void take_note(struct cp_sink *s, const struct cp_msg *m)
{
	char text[CP_PATH], shown[CP_PATH];

	s->tally.failed++;
	if (s->see != NULL && s->see->note != NULL && cp_msg_string(&m->text, text, sizeof(text)))
		s->see->note(s->see->arg, cp_show(text, shown, sizeof(shown)));
	sink_reply(s, &(struct cp_msg){.kind = CP_NOTE});
}

void cp_sink_message(struct cp_sink *s, const struct cp_msg *m)
{
	switch (m->kind) {
	case CP_FILE:
		take_file(s, m);
		break;
	case CP_HOLE:
		take_hole(s, m);
		break;
	case CP_CHECK:
		take_check(s, m);
		break;
	case CP_FINISH:
		take_finish(s, m);
		break;
	case CP_DIR:
	case CP_DIREND:
		take_dir(s, m);
		break;
	case CP_LINK:
		take_link(s, m);
		break;
	case CP_NOTE:
		take_note(s, m);
		break;
	case CP_BYE:
		sink_reply(s, &(struct cp_msg){.kind = CP_DONE, .flags = CP_LAST});
		break;
	default:
		sink_refuse(s, "the peer sent a message that this side does not accept");
	}
}
