/* SPDX-License-Identifier: BSD-3-Clause */
/* source.c - the side that reads. */
#include "tools/cp/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cp/plant.h"
#include "tools/cp/safe_path.h"
#include "tools/cp/sum.h"

enum { BUSY_MS = 100, BUSY_PATIENCE_MS = 15000, TICKS = 250 };

static uint64_t source_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool cp_source_init(struct cp_source *s, struct cp_link *l, uint32_t flags, const struct cp_observer *see)
{
	*s = (struct cp_source){.link = l, .see = see, .flags = flags, .fd = -1, .state = CP_SOURCE_IDLE};
	return cp_link_slots(l, 0, NULL, NULL);
}

void cp_source_fini(struct cp_source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	cp_walk_end(&s->walk);
}

bool cp_source_begin(struct cp_source *s, int root, const char *path, const char *as)
{
	if (!cp_walk_begin(&s->walk, root, path, as, (s->flags & CP_RECURSIVE) != 0))
		return false;
	s->walking = true;
	return true;
}

bool cp_source_resting(const struct cp_source *s)
{
	return s->state == CP_SOURCE_IDLE && !s->walking;
}

/* ---- telling ---- */

/* Reports once, here, what is not copied. If the sink is the client, a NOTE tells it too. */
static void source_complain(struct cp_source *s, const char *text)
{
	char line[CP_PATH * 2 + CP_TEXT], shown[CP_PATH * 2];

	s->tally.failed++;
	if (s->see == NULL || s->see->note == NULL)
		return;
	snprintf(line, sizeof(line), "%s: %s",
	         cp_show(*s->item.path != '\0' ? s->item.path : ".", shown, sizeof(shown)), text);
	s->see->note(s->see->arg, line);
}

static void source_moved(struct cp_source *s, uint64_t bytes)
{
	if (s->see != NULL && s->see->moved != NULL)
		s->see->moved(s->see->arg, bytes);
}

/* The answer of the sink to what it could not do. */
static void complain_of(struct cp_source *s, const struct cp_msg *m)
{
	char text[CP_PATH], shown[CP_PATH], line[CP_PATH + 32];

	if (!cp_msg_string(&m->text, text, sizeof(text)) || *text == '\0')
		snprintf(text, sizeof(text), "error %u", m->status);
	snprintf(line, sizeof(line), "at the target: %s", cp_show(text, shown, sizeof(shown)));
	source_complain(s, line);
}

static void send_item(struct cp_source *s, uint32_t kind, enum cp_source_state then)
{
	const struct stat *st = &s->item.st;
	struct cp_msg m = {.kind = kind,
	                   .mode = st->st_mode & 07777,
	                   .length = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
	                   .mtime_s = st->st_mtim.tv_sec,
	                   .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
	                   .atime_s = st->st_atim.tv_sec,
	                   .atime_ns = (uint32_t)st->st_atim.tv_nsec,
	                   .flags = s->flags & CP_UPDATE,
	                   .path = {s->item.as, strlen(s->item.as)}};

	if (kind == CP_LINK)
		m.text = (struct cp_bytes){s->item.text, strlen(s->item.text)};
	if (kind == CP_FILE && s->data_end < m.length)
		m.flags |= CP_SPARSE;
	s->state = then;
	cp_link_send(s->link, &m);
}

/* ---- a file ---- */

static void source_give_up(struct cp_source *s, int error, const char *text)
{
	if (s->error != 0)
		return;
	s->error = error != 0 ? error : EIO;
	snprintf(s->text, sizeof(s->text), "%s%s%s", text, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
}

static void close_file(struct cp_source *s)
{
	close(s->fd);
	s->fd = -1;
	s->state = CP_SOURCE_IDLE;
}

/* The end of the extent of data that begins at s->offset; s->offset itself if there is a hole. */
static uint64_t extent(const struct cp_source *s)
{
	uint64_t size = (uint64_t)s->item.st.st_size;
	off_t at = lseek(s->fd, (off_t)s->offset, SEEK_HOLE);

	/* Not every file system knows its holes. */
	return at < 0 || (uint64_t)at > size ? size : (uint64_t)at;
}

/*
 * Whether who writes to it from now on gives it another time.  Most file systems take the time of the kernel's last tick, some
 * whole seconds, or every other one: that would be the same again.
 */
static bool is_past(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	if (t->tv_nsec == 0)
		return now.tv_sec - t->tv_sec >= 2 || t->tv_sec - now.tv_sec > 2;
	return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec > t->tv_nsec) ||
	       t->tv_sec - now.tv_sec > 2; /* another machine's clock */
}

/* False: errno; 0: it is written to all the time. */
static bool source_look_at(int fd, struct stat *st)
{
	static const struct timespec tick = {.tv_nsec = 10000000};

	for (int i = 0; i < TICKS; i++) {
		if (fstat(fd, st) != 0)
			return false;
		if (!S_ISREG(st->st_mode) || is_past(&st->st_mtim))
			return true;
		nanosleep(&tick, NULL);
	}
	errno = 0;
	return false;
}

static void begin_file(struct cp_source *s)
{
	struct stat st;

	s->error = 0;
	s->offset = s->covered = s->sum[0] = s->sum[1] = 0;
	s->fd = cp_safe_path_open(s->walk.root, s->item.path, O_RDONLY | O_NONBLOCK);
	if (s->fd < 0 || !source_look_at(s->fd, &st)) {
		source_give_up(s, errno,
		               errno == 0 ? "it keeps changing; repeat the command when no program writes to it"
		                          : "opening it");
	} else if (st.st_ino != s->item.st.st_ino || st.st_dev != s->item.st.st_dev || !S_ISREG(st.st_mode)) {
		source_give_up(s, 0, "it was just replaced; repeat the command");
	}
	if (s->error != 0) {
		source_complain(s, s->text);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		return;
	}
	s->item.st = st;
	s->data_end = extent(s);
	(void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	s->give_up_at = source_now_ms() + BUSY_PATIENCE_MS;
	if (s->see != NULL && s->see->began != NULL)
		s->see->began(s->see->arg, s->item.path, (uint64_t)st.st_size);
	send_item(s, CP_FILE, CP_SOURCE_ASKED);
}

/* The sink may have some of it, or all, or not want it. */
static void source_opened(struct cp_source *s, const struct cp_msg *m)
{
	if (m->status == CP_BUSY && source_now_ms() < s->give_up_at) {
		s->again_at = source_now_ms() + BUSY_MS;
		s->state = CP_SOURCE_BUSY;
		return;
	}
	if (m->status != 0) {
		complain_of(s, m);
		close_file(s);
		return;
	}
	if ((m->flags & CP_SAME) != 0) {
		s->tally.same++;
		source_moved(s, (uint64_t)s->item.st.st_size);
		close_file(s);
		return;
	}
	s->have = m->offset;
	s->state = CP_SOURCE_SENDING;
}

/* Says where there is nothing; true: there was such a hole, and the next extent is known. */
static bool send_hole(struct cp_source *s)
{
	struct cp_msg m = {.kind = CP_HOLE, .offset = s->offset};
	uint64_t size = (uint64_t)s->item.st.st_size, sum[2];
	off_t at = lseek(s->fd, (off_t)s->offset, SEEK_DATA);

	/* ENXIO: there is no data any more; else the file system does not know. */
	at = at < 0 && errno == ENXIO ? (off_t)size : at;
	if (at < 0 || (uint64_t)at <= s->offset) {
		s->data_end = extent(s);
		s->data_end = s->data_end > s->offset ? s->data_end : size;
		return false;
	}
	m.length = ((uint64_t)at < size ? (uint64_t)at : size) - s->offset;
	cp_sum_hole(m.offset, m.length, sum);
	cp_sum_add(s->sum, sum);
	s->covered += m.length;
	s->offset += m.length;
	source_moved(s, m.length);
	if (s->offset < size)
		s->data_end = extent(s);
	return cp_link_send(s->link, &m);
}

static bool read_block(struct cp_source *s, uint8_t *to, size_t n, uint64_t offset)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = pread(s->fd, to + got, n - got, (off_t)(offset + got));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			source_give_up(s, errno, "reading it");
		else if (r == 0)
			source_give_up(
				s, 0,
				"it became shorter during the copy; repeat the command when no program writes to it");
		if (r <= 0)
			return false;
		got += (size_t)r;
	}
	return true;
}

static int free_slot(const struct cp_source *s)
{
	for (int i = 0; i < CP_SLOTS; i++)
		if (!s->slots[i].waits_ack && !s->slots[i].waits_put && !s->slots[i].ready)
			return i;
	return -1;
}

/* Asks whether the sink has this block. */
static void send_check(struct cp_source *s, unsigned slot)
{
	const struct cp_head *h = &s->slots[slot].head;
	struct cp_msg m = {.kind = CP_CHECK,
	                   .slot = slot,
	                   .offset = h->offset,
	                   .length = h->length,
	                   .hash = {h->hash[0], h->hash[1]}};

	s->slots[slot].waits_ack = true;
	cp_link_send(s->link, &m);
}

/* Reads the next block into a slot. */
static bool next_block(struct cp_source *s, unsigned slot)
{
	uint64_t left = s->data_end - s->offset;
	struct cp_head *h = &s->slots[slot].head;
	uint8_t *data = cp_link_data(s->link, slot);

	*h = (struct cp_head){.offset = s->offset, .length = left < CP_BLOCK ? left : CP_BLOCK};
	if (!read_block(s, data, (size_t)h->length, h->offset))
		return true;
	cp_sum_block(data, (size_t)h->length, h->offset, h->hash);
	if (cp_plant == CP_PLANT_BLOCK)
		data[0] ^= 1;
	cp_sum_add(s->sum, h->hash);
	s->offset += h->length;
	s->covered += h->length;
	s->open++;
	if (cp_plant == CP_PLANT_PAUSE)
		s->pause = h->offset == 0;
	if (h->offset + h->length <= s->have)
		send_check(s, slot);
	else
		s->slots[slot].ready = true;
	return true;
}

static bool put_ready(struct cp_source *s)
{
	bool any = false;

	for (unsigned i = 0; i < CP_SLOTS; i++) {
		if (!s->slots[i].ready || !cp_link_put(s->link, i, &s->slots[i].head))
			continue;
		s->slots[i].ready = false;
		s->slots[i].waits_put = s->slots[i].waits_ack = true;
		any = true;
	}
	return any;
}

static void slot_done(struct cp_source *s, unsigned slot)
{
	if (!s->slots[slot].waits_ack && !s->slots[slot].waits_put && !s->slots[slot].ready)
		s->open--;
}

static void source_acknowledged(struct cp_source *s, const struct cp_msg *m)
{
	unsigned i = m->slot;

	if (i >= CP_SLOTS || !s->slots[i].waits_ack) {
		cp_link_fail(s->link, "the peer acknowledged data that was not sent");
		return;
	}
	s->slots[i].waits_ack = false;
	if (m->status == CP_NEED && s->error == 0) {
		s->slots[i].ready = true;
		return;
	}
	if (m->status == 0 || m->status == CP_HAVE) {
		s->tally.resumed_bytes += m->status == CP_HAVE ? s->slots[i].head.length : 0;
		source_moved(s, s->slots[i].head.length);
	} else if (m->status != CP_NEED && s->error == 0) {
		s->error = (int)m->status; /* what it is the sink says at the end */
		s->text[0] = '\0';
	}
	slot_done(s, i);
}

/* Nothing is compared with what the file was before but its size and times; who writes without them changing cannot be
 * seen. */
static void compare_source(struct cp_source *s)
{
	const struct stat *was = &s->item.st;
	struct stat is;
	char one;

	if (fstat(s->fd, &is) != 0)
		source_give_up(s, errno, "looking at it again");
	else if (is.st_size != was->st_size || is.st_mtim.tv_sec != was->st_mtim.tv_sec ||
	         is.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
		source_give_up(s, 0, "it changed during the copy; repeat the command when no program writes to it");
	else if (pread(s->fd, &one, 1, was->st_size) > 0)
		source_give_up(s, 0, "it is longer than its size, like files of /proc; copy the output of cat instead");
}

static void finish_file(struct cp_source *s)
{
	struct cp_msg m = {.kind = CP_FINISH};

	if (s->error == 0)
		compare_source(s);
	m.status = (uint32_t)s->error;
	m.offset = s->covered;
	m.hash[0] = s->sum[0] + (cp_plant == CP_PLANT_FILE);
	m.hash[1] = s->sum[1];
	s->state = CP_SOURCE_TOLD;
	cp_link_send(s->link, &m);
}

static bool send_more(struct cp_source *s)
{
	bool any = put_ready(s);
	int slot = free_slot(s);

	if (s->pause && s->open == 0) { /* for tests: time to do something to the file */
		sleep(2);
		s->pause = false;
	}
	if (s->pause)
		return any;

	if (s->offset >= (uint64_t)s->item.st.st_size || s->error != 0) {
		if (s->open > 0)
			return any;
		finish_file(s);
		return true;
	}
	if (s->offset >= s->data_end && send_hole(s))
		return true;
	return (slot >= 0 && s->offset < s->data_end && next_block(s, (unsigned)slot)) || any;
}

/* ---- what was said about it ---- */

static void source_told(struct cp_source *s, const struct cp_msg *m)
{
	bool file = s->fd >= 0;

	if (s->state == CP_SOURCE_LEAVING) {
		s->state = CP_SOURCE_ENDED;
		return;
	}
	if (file && s->error != 0 && s->text[0] != '\0') {
		source_complain(s, s->text);
	} else if (m->status != 0 || (file && s->error != 0)) {
		complain_of(s, m);
	} else if (file) {
		s->tally.files++;
		s->tally.bytes += (uint64_t)s->item.st.st_size;
	}
	if (file)
		close_file(s);
	s->state = CP_SOURCE_IDLE;
}

void cp_source_message(struct cp_source *s, const struct cp_msg *m)
{
	if (m->kind == CP_OPENED && s->state == CP_SOURCE_ASKED)
		source_opened(s, m);
	else if (m->kind == CP_ACK && s->state == CP_SOURCE_SENDING)
		source_acknowledged(s, m);
	else if (m->kind == CP_DONE && (s->state == CP_SOURCE_TOLD || s->state == CP_SOURCE_LEAVING))
		source_told(s, m);
	else if (m->kind == CP_NOTE && s->notes > 0)
		s->notes--;
	else
		cp_link_fail(s->link, "the peer sent an unexpected message of kind %u", m->kind);
}

void cp_source_sent(struct cp_source *s, unsigned slot)
{
	if (!s->slots[slot].waits_put)
		return;
	s->slots[slot].waits_put = false;
	slot_done(s, slot);
}

void cp_source_bye(struct cp_source *s)
{
	struct cp_msg m = {.kind = CP_BYE};

	s->state = CP_SOURCE_LEAVING;
	cp_link_send(s->link, &m);
}

static void source_next_item(struct cp_source *s)
{
	if (!cp_walk_next(&s->walk, &s->item)) {
		cp_walk_end(&s->walk);
		s->walking = false;
		return;
	}
	switch (s->item.kind) {
	case CP_ITEM_FILE:
		begin_file(s);
		break;
	case CP_ITEM_DIR:
		send_item(s, CP_DIR, CP_SOURCE_TOLD);
		break;
	case CP_ITEM_DIREND:
		send_item(s, CP_DIREND, CP_SOURCE_TOLD);
		break;
	case CP_ITEM_LINK:
		send_item(s, CP_LINK, CP_SOURCE_TOLD);
		break;
	case CP_ITEM_BAD:
		source_complain(s, s->item.text);
		break;
	}
}

bool cp_source_step(struct cp_source *s)
{
	if (s->link->failed)
		return false;
	if (s->state == CP_SOURCE_SENDING)
		return send_more(s);
	if (s->state == CP_SOURCE_BUSY && source_now_ms() >= s->again_at) {
		send_item(s, CP_FILE, CP_SOURCE_ASKED);
		return true;
	}
	if (s->state != CP_SOURCE_IDLE || !s->walking || s->notes >= CP_SLOTS)
		return false;
	source_next_item(s);
	return true;
}
