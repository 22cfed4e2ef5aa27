/* SPDX-License-Identifier: BSD-3-Clause */
#include "end.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "conform/shared.h"

enum { PORTS = 256 };

extern char **environ;

/* ---- the ends ---- */

/* The runner fails the test when a process ends whose end nobody asked for. */
static void stamp(struct h *h, struct kl_board *b, bool process_ends)
{
	atomic_store(&b->ended_us, h_now_us());
	if (process_ends)
		atomic_store(&h->shared->role[h->role].gone, 1);
	atomic_store(&b->phase, KL_ENDING);
}

void end_leave_child(struct h *h, struct kl_board *b)
{
	pid_t pid = fork();

	H_CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		alarm(60);
		for (;;)
			pause();
	}
	atomic_store(&b->child, pid);
}

static void abort_quietly(void)
{
	struct rlimit none = {0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	abort();
}

static int port_of(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? atoi(colon + 1) : 0;
}

/* Shuts each TCP connection that this end's listener took or that leads to the survivor's. */
static int shut_control(const struct kl_board *b)
{
	int mine = port_of(b->victim_address), other = port_of(b->survivor_address), n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_in local = {0}, peer = {0};
		socklen_t l = sizeof(local), p = sizeof(peer);

		if (getsockname(fd, (struct sockaddr *)&local, &l) || local.sin_family != AF_INET ||
		    getpeername(fd, (struct sockaddr *)&peer, &p))
			continue;
		if ((b->order.part == KL_TARGET && ntohs(local.sin_port) == mine) ||
		    (b->order.part == KL_ORIGIN && ntohs(peer.sin_port) == other))
			n += shutdown(fd, SHUT_RDWR) == 0;
	}
	return n;
}

static void shut(struct actor *a)
{
	struct kl_board *b = a->board;
	struct h *h = a->h;
	int64_t limit = h_now_us() + (int64_t)h_ms(2000) * 1000;

	atomic_store(&b->ended_us, h_now_us());
	while (shut_control(b) == 0) { /* it may not be there yet */
		H_CHECK(h_now_us() < limit, "there is no control socket");
		atomic_store(&b->ended_us, h_now_us());
		actor_turn(a, false);
	}
	atomic_store(&b->phase, KL_ENDING);
}

void end_self(struct actor *a)
{
	struct kl_board *b = a->board;
	bool ends = !kl_lives_on(b->order.way);

	if (b->order.way == KL_SHUT) {
		shut(a);
		return;
	}
	if (b->order.way == KL_CUT) {
		end_cut_off(a->h, getpid());
		stamp(a->h, b, false);
		return;
	}
	stamp(a->h, b, ends);
	switch (b->order.way) {
	case KL_EXITED:
		if (b->order.seed >> 4 & 1)
			exit(0);
		_exit(0);
	case KL_ABORTED:
		abort_quietly();
		break;
	case KL_STOPPED:
		raise(SIGSTOP);
		break;
	default:
		raise(SIGKILL);
	}
}

/* ---- cutting off ---- */

static int nft(const char *const *args)
{
	const char *argv[16] = {"nft"};
	int n = 1, status = -1;
	pid_t pid;

	for (; args[n - 1]; n++)
		argv[n] = args[n - 1];
	argv[n] = NULL;
	if (posix_spawnp(&pid, "nft", NULL, NULL, (char **)argv, environ) != 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}
#define NFT(...) nft((const char *const[]){__VA_ARGS__, NULL})

static bool loopback_up(void)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &r) == 0;

	r.ifr_flags |= IFF_UP;
	ok = ok && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
	if (fd >= 0)
		close(fd);
	return ok;
}

bool end_own_network(char *why, size_t len)
{
	if (unshare(CLONE_NEWNET) != 0 || !loopback_up()) {
		snprintf(why, len, "capability 'network namespaces' is absent: %s", strerror(errno));
		return false;
	}
	if (NFT("add table inet kl") != 0 || NFT("add set inet kl gone { type inet_service; }") != 0 ||
	    NFT("add chain inet kl in { type filter hook input priority 0; }") != 0 ||
	    NFT("add rule inet kl in tcp dport @gone drop") != 0 ||
	    NFT("add rule inet kl in tcp sport @gone drop") != 0) {
		snprintf(why, len, "capability 'nftables' is absent: Debian has it in the package nftables");
		return false;
	}
	return true;
}

/* The inodes of the process's sockets. */
static int sockets_of(int pid, unsigned long *inode, int max)
{
	char path[300], text[64];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	while (d && (e = readdir(d)) != NULL && n < max) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, text, sizeof(text) - 1);

		text[len > 0 ? len : 0] = 0;
		n += sscanf(text, "socket:[%lu]", &inode[n]) == 1;
	}
	if (d)
		closedir(d);
	return n;
}

/* Their local ports. */
static int ports_of(int pid, int *port, int max)
{
	unsigned long inode[PORTS], one;
	int ninode = sockets_of(pid, inode, PORTS), n = 0, local;
	FILE *f = fopen("/proc/self/net/tcp", "r");
	char line[256];

	while (f && fgets(line, sizeof(line), f) && n < max) {
		if (sscanf(line, " %*d: %*x:%x %*x:%*x %*x %*x:%*x %*x:%*x %*x %*d %*d %lu", (unsigned *)&local,
		           &one) != 2)
			continue;
		for (int i = 0; i < ninode; i++)
			if (inode[i] == one) {
				port[n++] = local;
				break;
			}
	}
	if (f)
		fclose(f);
	return n;
}

void end_cut_off(struct h *h, int pid)
{
	int port[PORTS], n = ports_of(pid, port, PORTS), at;
	char text[PORTS * 8];

	H_CHECK(n > 0, "process %d has no TCP port", pid);
	at = snprintf(text, sizeof(text), "add element inet kl gone {");
	for (int i = 0; i < n && at < (int)sizeof(text) - 16; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%d", i ? "," : "", port[i]);
	snprintf(text + at, sizeof(text) - (size_t)at, "}");
	H_CHECK(NFT(text) == 0, "nft %s", text);
}

bool end_mend(void)
{
	return NFT("flush set inet kl gone") == 0;
}
