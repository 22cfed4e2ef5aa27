/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p07_users.c - P7: processes of different users share no memory, whatever one of them has prepared. */
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "harness.h"

enum { NOBODY = 65534, RIGHT = 1 };
enum who { CLIENT, SERVER };

static const struct h_param sides[] = {{"client", CLIENT}, {"server", SERVER}, {NULL, 0}};

static bool is_unprivileged(const struct h *h)
{
	return (h->role == 1) == (h->param == CLIENT);
}

/* Opens as the user that this role is to be.  Modules are loaded before: the other user may not be able to read them. */
static void open_as(struct h *h)
{
	if (geteuid() != 0)
		h_skip(h, "a process of another user is absent: only root can become another user");
	h_open(h, NULL);
	if (!is_unprivileged(h))
		return;
	xport_close(h->x);
	h_forget(h);
	if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		h_skip(h, "a process of another user is absent: root cannot become user %d here", NOBODY);
	prctl(PR_SET_DUMPABLE, 1); /* as if it had never been root's */
	h_open(h, NULL);
}

/* Memory of the other user's in this process: the line of /proc/self/maps, or "". */
static void find_foreign(char line[512])
{
	FILE *f = fopen("/proc/self/maps", "re");

	while (f != NULL && fgets(line, 512, f) != NULL) {
		char range[64], rights[8], path[128];
		struct stat st;

		if (sscanf(line, "%63s %7s", range, rights) != 2 || rights[3] != 's')
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%s", range);
		if (stat(path, &st) == 0 && st.st_uid == NOBODY) {
			fclose(f);
			return;
		}
	}
	line[0] = '\0';
	if (f != NULL)
		fclose(f);
}

static void check_maps(struct h *h)
{
	char line[512];

	if (is_unprivileged(h))
		return;
	find_foreign(line);
	H_CHECK(line[0] == '\0', "root maps memory of user %d: %s", NOBODY, line);
}

/* A provider that shares memory must have refused, and said why. */
static void check_outcome(struct h *h, int s, const char *text)
{
	H_CHECK(s == XPORT_OK || (s == XPORT_ERR_AUTH && strstr(text, "different users (") != NULL), "%s: %s",
	        xport_status_name(s), text);
}

static void connects(struct h *h)
{
	struct xport_error err = {.size = sizeof(err)};
	char address[80];
	int s;

	open_as(h);
	h_hear(h, 0, address, sizeof(address));
	s = xport_connect(h->x, address, NULL, h_ms(20000), &h->ep[0]);
	xport_last_error(h->x, &err);
	H_CHECK(s == XPORT_OK || strstr(err.text, "gave up") != NULL || err.hint[0] != '\0', "no hint: %s", err.text);
	check_outcome(h, s, err.text);
	h_tell_u64(h, 0, s == XPORT_OK);
	if (s == XPORT_OK) {
		static uint8_t bytes[1 << 20];
		struct h_mem l = h_mem_local(h, sizeof(bytes), 0);
		struct h_rkey r = h_import(h, 0);

		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, sizeof(bytes)), &r, 0, 0));
		H_DONE(h_send(h, h->ep[0], bytes, sizeof(bytes), RIGHT));
		H_DONE(h_flush(h, h->ep[0]));
		h_mem_free(h, &l);
	}
	check_maps(h);
	h_sync(h);
}

static void accepts(struct h *h)
{
	static uint8_t bytes[1 << 20];
	xport_ep *ep = NULL;

	open_as(h);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1))
		h_breathe(h);
	if (h_hear_u64(h, 1)) {
		struct h_mem t = h_mem_target(h, sizeof(bytes), 0, H_ALL);

		H_OK(xport_accept(h->listener, h_ms(20000), &ep));
		h->ep[1] = ep;
		h_share(h, 1, &t);
		H_DONE(h_recv(h, ep, bytes, sizeof(bytes), RIGHT, UINT64_MAX));
		check_maps(h);
		h_sync(h);
		h_mem_free(h, &t);
		return;
	}
	H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(h->listener, 0, &ep));
	check_maps(h);
	h_sync(h);
}

/* ---- an attacker ---- */

/* The file of a mapping: by its name, or, if it has none any more, by a descriptor of it. */
static int open_mapped(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	for (int i = 3; fd < 0 && i < 256; i++) {
		char link[64], is[256];
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", i);
		n = readlink(link, is, sizeof(is) - 1);
		is[n > 0 ? n : 0] = '\0';
		if (n > 0 && strncmp(is, path, strlen(path)) == 0)
			fd = open(link, O_RDWR | O_CLOEXEC);
	}
	return fd;
}

/* Calls `act` for each file that this process shares with peers, where it is mapped; returns how many there are. */
static int for_shared(void (*act)(uint64_t *from, uint64_t *to, const char *path))
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		unsigned long from, to;
		char rights[8], path[256] = "";

		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, rights, path) != 4 ||
		    strcmp(rights, "rw-s") != 0 ||
		    (strncmp(path, "/dev/shm/", 9) != 0 && strncmp(path, "/memfd:", 7) != 0))
			continue;
		act((uint64_t *)from, (uint64_t *)to, path);
		n++;
	}
	if (f != NULL)
		fclose(f);
	return n;
}

/* Every number becomes one that is far off. */
static void scribble(uint64_t *from, uint64_t *to, const char *path)
{
	(void)path;
	for (volatile uint64_t *at = from + 8; at < to; at++)
		*at += UINT64_C(1) << 40;
}

static void cut(uint64_t *from, uint64_t *to, const char *path)
{
	int fd = open_mapped(path);

	(void)from;
	(void)to;
	if (fd < 0)
		return;
	(void)!ftruncate(fd, 0);
	close(fd);
}

static void attacks(struct h *h)
{
	struct xport_completion c;
	char address[80];

	open_as(h);
	h->idle = true;
	h_hear(h, 0, address, sizeof(address));
	H_OK(xport_connect(h->x, address, NULL, 0, &h->ep[0]));
	for (int i = 0; i < 20; i++) { /* its HELLO leaves; the other side does not answer yet */
		H_TRUE(xport_poll(h->x, &c, 1) == 0);
		usleep(1000);
	}
	h_record(h, "files_spoiled", (uint64_t)for_shared(scribble));
	for_shared(cut);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	h_exit(h, false);
}

static void survives(struct h *h)
{
	open_as(h);
	h->idle = true;
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_hear_u64(h, 1);
	h_run_for(h, 300);
	check_maps(h);
	h_tell_u64(h, 1, 1);
}

static const struct h_param attackers[] = {{"client", CLIENT}, {NULL, 0}};

const struct h_scenario cases_p07_users[] = {
	{.name = "P7_other_user", .role = {accepts, connects}, .params = sides, .flags = H_KILLS, .timeout_s = 60},
	{.name = "P7_other_user_spoils_what_it_shares",
         .role = {survives, attacks},
         .params = attackers,
         .flags = H_KILLS,
         .timeout_s = 60},
	{.name = NULL},
};
