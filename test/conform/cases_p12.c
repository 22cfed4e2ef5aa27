/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_p12.c - P12, no side effects on the process: signals, files, descriptors, mappings, threads, the environment.
 *
 * The runner checks in every test that nothing is written to standard output or error.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "harness.h"

enum { LEN = 65536, SHM_NAMES = 1024 };

/* ---- what is there ---- */

static int count_dir(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* A thread that was joined is there for a moment more. */
static bool threads_gone(int all_but)
{
	for (int i = 0; i < 1000 && count_dir("/proc/self/task") > all_but; i++)
		usleep(10000);
	return count_dir("/proc/self/task") <= all_but;
}

static int count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int c, n = 0;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* True if some process maps or holds the file in /dev/shm; others on this machine use it as well. */
static bool in_use(const char *name)
{
	char path[300], line[600];
	DIR *d = opendir("/proc");
	struct dirent *e;
	bool used = false;

	while (d && !used && (e = readdir(d)) != NULL) {
		FILE *f;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/maps", e->d_name);
		f = fopen(path, "r");
		while (f && !used && fgets(line, sizeof(line), f))
			used = strstr(line, name) != NULL;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return used;
}

struct shm {
	int n;
	char name[SHM_NAMES][64];
};

static void shm_read(struct shm *s)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;

	s->n = 0;
	while (d && (e = readdir(d)) != NULL && s->n < SHM_NAMES)
		snprintf(s->name[s->n++], sizeof(s->name[0]), "%.60s", e->d_name);
	if (d)
		closedir(d);
}

static bool has(const struct shm *s, const char *name)
{
	for (int i = 0; i < s->n; i++)
		if (strcmp(s->name[i], name) == 0)
			return true;
	return false;
}

/*
 * Files that are new since `before` and that nobody holds, nor takes away within two seconds: another process of this machine
 * that is just ending, or was killed, has such for a moment.
 */
static int orphans(const struct shm *before, char *name, size_t len)
{
	static struct shm found, now;
	int n = 1;

	shm_read(&found);
	for (int look = 0; look < 20 && n > 0; look++, usleep(100000)) {
		n = 0;
		shm_read(&now);
		for (int i = 0; i < found.n; i++)
			if (!has(before, found.name[i]) && has(&now, found.name[i]) && !in_use(found.name[i]))
				memmove(found.name[n++], found.name[i], sizeof(found.name[0]));
		found.n = n;
	}
	if (n > 0)
		snprintf(name, len, "%s", found.name[0]);
	return n;
}

/* ---- the cases ---- */

static void signals(struct h *h)
{
	struct sigaction before[65], after;
	sigset_t mask, now;

	for (int i = 1; i < 65; i++)
		sigaction(i, NULL, &before[i]);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	h_mesh(h, NULL);
	h_sync(h);
	for (int i = 1; i < 65; i++) {
		if (sigaction(i, NULL, &after) < 0)
			continue;
		H_CHECK(after.sa_handler == before[i].sa_handler, "the action of signal %d was changed", i);
	}
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	for (int i = 1; i < 65; i++)
		H_CHECK(sigismember(&mask, i) == sigismember(&now, i), "signal %d was blocked or unblocked", i);
}

/* One round of a life: open, connect, move something, close. */
static void life(struct h *h)
{
	struct h_mem m, l;
	struct h_rkey r;
	uint64_t word = 1;

	h_mesh(h, NULL);
	if (h->role == 0) {
		m = h_mem_target(h, LEN, 0, H_ALL);
		h_share(h, 1, &m);
		H_DONE(h_recv(h, NULL, &word, 8, 1, UINT64_MAX));
		h_sync(h);
		h_mem_free(h, &m);
	} else {
		l = h_mem_local(h, LEN, 0);
		r = h_import(h, 0);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
		H_DONE(h_send(h, h->ep[0], &word, 8, 1));
		h_sync(h);
		xport_rkey_destroy(r.k);
		h_mem_free(h, &l);
	}
	h_sync(h);
	xport_close(h->x);
	h_forget(h);
	h_sync(h);
}

/*
 * Mappings that come and go with the allocator's moods.  AddressSanitizer's maps each large block by itself, and keeps what was
 * freed for a while, up to 256 MB: over ucx:tcp, whose pools are made of such blocks, 66 to 72 in 12 lives.
 */
#ifdef __SANITIZE_ADDRESS__
enum { SPARE_MAPS = 160 };
#else
enum { SPARE_MAPS = 6 };
#endif

static void leaks(struct h *h)
{
	struct shm *shm = h_buf(h, sizeof(*shm));
	int fds, maps, threads;
	char name[64] = "";

	for (int i = 0; i < 3; i++)
		life(h);
	fds = count_dir("/proc/self/fd");
	maps = count_maps();
	threads = count_dir("/proc/self/task");
	shm_read(shm);
	for (int i = 0; i < 12; i++)
		life(h);
	h_record(h, "fds_more", (uint64_t)(count_dir("/proc/self/fd") - fds));
	h_record(h, "maps_more", (uint64_t)(count_maps() > maps ? count_maps() - maps : 0));
	H_EQ(fds, count_dir("/proc/self/fd"));
	H_CHECK(count_maps() <= maps + SPARE_MAPS, "%d mappings more", count_maps() - maps);
	H_CHECK(threads_gone(threads), "threads remain");
	H_CHECK(orphans(shm, name, sizeof(name)) == 0, "left in /dev/shm: %s", name);
}

/* One helper thread a process at most, however many instances; none left when the last is closed. */
static void threads(struct h *h)
{
	struct xport_attr a = h_attr(h);
	xport *x[4];
	struct xport_info info = {.size = sizeof(info)};
	int before = count_dir("/proc/self/task"), with;

	for (int i = 0; i < 4; i++)
		H_OK(xport_open(&a, &x[i]));
	H_OK(xport_query(x[0], &info));
	with = count_dir("/proc/self/task");
	h_record(h, "threads_more", (uint64_t)(with - before));
	for (int i = 0; i < 4; i++)
		xport_close(x[i]);
	H_CHECK(threads_gone(before), "threads remain after the last close");
	H_CHECK(with - before <= 2 + 4 * info.stack_threads, "%d threads for four instances", with - before);
}

/* A killed peer leaves nothing behind either, here or in /dev/shm. */
static void victim(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, 1 << 20, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync_with(h, 1);
	h->idle = true;
	h_hear_u64(h, 1);
}

static void after_kills(struct h *h)
{
	struct shm *shm = h_buf(h, sizeof(*shm));
	struct h_mem l;
	struct h_rkey r;
	char name[64] = "";
	int fds = 0, n = 0;

	shm_read(shm);
	h_open(h, NULL);
	l = h_mem_local(h, 1 << 20, 0);
	for (int i = 0; i < 6; i++) {
		h_pair(h, 0);
		h_sync(h);
		r = h_import(h, 0);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 1 << 20), &r, 0, 0));
		h_sync_with(h, 0);
		h_kill(h, 0, SIGKILL);
		H_EVENT(XPORT_EVENT_LOST);
		xport_rkey_destroy(r.k);
		xport_ep_destroy(h->ep[0]);
		h_run_for(h, 50);
		if (i == 1)
			fds = count_dir("/proc/self/fd");
		if (i < 5)
			h_restart(h, 0);
	}
	H_EQ(fds, count_dir("/proc/self/fd"));
	h_mem_free(h, &l);
	xport_close(h->x);
	h_forget(h);
	for (int i = 0; i < 20 && (n = orphans(shm, name, sizeof(name))) > 0; i++)
		usleep(100000);
	H_CHECK(n == 0, "%d files left in /dev/shm, among them %s", n, name);
}

/* ---- the environment ---- */

/* Readings of XPORT_ names by anybody in this process, counted by standing in front of the C library. */
static atomic_int readings;

static char *look_up(const char *which, const char *name)
{
	char *(*real)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, which);

	if (!strncmp(name, "XPORT_", 6))
		atomic_fetch_add(&readings, 1);
	return real ? real(name) : NULL;
}

H_INTERPOSE char *getenv(const char *name)
{
	return look_up("getenv", name);
}

H_INTERPOSE char *secure_getenv(const char *name)
{
	return look_up("secure_getenv", name);
}

/* What the environment says after opening is of no interest any more. */
static void environment(struct h *h)
{
	static const char *const names[] = {"XPORT_BACKEND", "XPORT_PEER_TIMEOUT", "XPORT_QUEUE_DEPTH",
	                                    "XPORT_EMULATE", "XPORT_LOG",          "XPORT_REQUIRE",
	                                    "XPORT_AUTH",    "XPORT_PROGRESS"};
	struct xport_info info = {.size = sizeof(info)};
	struct h_mem m, l;
	struct h_rkey r;

	h_open(h, NULL);
	H_CHECK(atomic_load(&readings) > 0, "the count does not work");
	atomic_store(&readings, 0);
	if (!h->config->threads)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			setenv(names[i], "nonsense", 1);
	h_pair(h, !h->role);
	if (h->role == 0) {
		m = h_mem_target(h, LEN, 0, H_ALL);
		h_share(h, 1, &m);
	} else {
		l = h_mem_local(h, LEN, 0);
		r = h_import(h, 0);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
	}
	h_sync(h);
	H_OK(xport_query(h->x, &info));
	H_TRUE(!memcmp(&info, &h->info, sizeof(info)));
	H_EQ(0, atomic_load(&readings));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

/* ---- the process ---- */

enum { CODE = 24, NCALLS = 9, NLIMITS = 16 };

/* What others in this process rely on. */
struct process {
	uint8_t code[NCALLS][CODE]; /* where C library calls that memory watchers hook begin */
	struct rlimit limit[NLIMITS];
	sigset_t blocked;
	size_t nenv;
	uint64_t env; /* a hash */
};

static void read_code(struct process *p)
{
	static const char *const calls[NCALLS] = {"mmap",  "munmap", "mremap", "madvise", "shmat",
	                                          "shmdt", "brk",    "sbrk",   "malloc"};
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	for (int i = 0; libc != NULL && i < NCALLS; i++) {
		const void *at = dlsym(libc, calls[i]);

		if (at != NULL)
			memcpy(p->code[i], at, CODE);
	}
	if (libc != NULL)
		dlclose(libc);
}

static void read_process(struct process *p)
{
	memset(p, 0, sizeof(*p));
	read_code(p);
	for (int i = 0; i < NLIMITS; i++)
		(void)!getrlimit((__rlimit_resource_t)i, &p->limit[i]);
	pthread_sigmask(SIG_SETMASK, NULL, &p->blocked);
	for (; environ[p->nenv] != NULL; p->nenv++)
		for (const char *c = environ[p->nenv]; *c != '\0'; c++)
			p->env = p->env * 31 + (uint8_t)*c;
}

/* No code of the C library, limit, signal mask or variable changes, neither while an instance is open nor afterwards. */
static void process(struct h *h)
{
	struct process before, now;

	read_process(&before);
	h_open(h, NULL);
	read_process(&now);
	H_CHECK(memcmp(before.code, now.code, sizeof(now.code)) == 0, "code of the C library was changed");
	H_TRUE(memcmp(before.limit, now.limit, sizeof(now.limit)) == 0);
	H_TRUE(memcmp(&before.blocked, &now.blocked, sizeof(now.blocked)) == 0);
	H_EQ(before.nenv, now.nenv);
	H_EQ(before.env, now.env);
	h_pair(h, !h->role);
	xport_close(h->x);
	h_forget(h);
	read_process(&now);
	H_TRUE(memcmp(&before, &now, sizeof(now)) == 0);
}

/* No file appears in the working directory, no limit, mask or directory changes. */
static void surroundings(struct h *h)
{
	char before[512], after[512], dir[] = "/tmp/xport_conform_XXXXXX";
	mode_t mask = umask(022);

	umask(mask);
	if (!h->config->threads) {
		H_TRUE(mkdtemp(dir) && chdir(dir) == 0);
	}
	H_TRUE(getcwd(before, sizeof(before)) != NULL);
	for (int i = 0; i < 2; i++)
		life(h);
	H_TRUE(getcwd(after, sizeof(after)) != NULL);
	H_TRUE(!strcmp(before, after));
	H_EQ(mask, umask(mask));
	if (!h->config->threads) {
		H_EQ(2, count_dir("."));
		H_TRUE(chdir("/") == 0 && rmdir(dir) == 0);
	}
}

const struct h_scenario cases_p12[] = {
	{.name = "P12_signals_untouched", .role = {signals, signals}},
	{.name = "P12_no_leak_by_open_and_close", .role = {leaks, leaks}, .flags = H_TARGET | H_KILLS, .timeout_s = 60},
	{.name = "P12_one_helper_thread", .role = {threads}, .flags = H_KILLS},
	{.name = "P12_nothing_left_by_the_killed", .role = {victim, after_kills}, .flags = H_TARGET | H_KILLS},
	{.name = "P12_environment_read_once", .role = {environment, environment}, .flags = H_KILLS},
	{.name = "P12_process_untouched", .role = {process, process}, .flags = H_KILLS},
	{.name = "P12_surroundings_untouched", .role = {surroundings, surroundings}},
	{.name = NULL},
};
