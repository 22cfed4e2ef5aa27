/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.c - a long wire between two network namespaces, for kernels without netem.
 *
 *   far_wire LEFT RIGHT DELAY_MS LOSS_PPM
 *
 * Makes an interface "wire" in each of the two namespaces of ip-netns(8). A packet arrives DELAY_MS later on the other
 * side. LOSS_PPM of a million are lost, the same ones of each way in each run.
 * Prints "ready", runs until it gets SIGTERM, and then prints how many packets went and were lost.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_MAX = 9216, SLOTS = 16384 }; /* 16384 of 9 KB are 147 MB: what 50 ms of 2.9 GB/s are */

struct packet {
	uint64_t due_ns;
	uint32_t len;
	uint8_t bytes[PACKET_MAX];
};

struct way {
	int from, to;
	struct packet *ring;
	uint32_t head, tail;
	uint64_t went, lost, full;
};

static volatile sig_atomic_t ends;

static void on_signal(int sig)
{
	(void)sig;
	ends = 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int tun_open(const char *netns)
{
	struct ifreq ifr = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	char path[256];
	int ns, tun;

	snprintf(path, sizeof(path), "/var/run/netns/%s", netns);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
		return -1;
	close(ns);
	tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "wire");
	if (tun < 0 || ioctl(tun, TUNSETIFF, &ifr) != 0)
		return -1;
	return tun;
}

/* xorshift64: the same packets of a way are lost in each run. */
static bool is_lost(uint64_t *state, uint32_t ppm)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % 1000000 < ppm;
}

static void take(struct way *w, uint64_t delay_ns, uint64_t *dice, uint32_t ppm)
{
	for (int i = 0; i < 64; i++) {
		struct packet *p = &w->ring[w->tail % SLOTS];
		ssize_t n;

		if (w->tail - w->head == SLOTS)
			return; /* the interface's own queue fills, and drops */
		n = read(w->from, p->bytes, PACKET_MAX);
		if (n <= 0)
			return;
		w->went++;
		if (is_lost(dice, ppm)) {
			w->lost++;
			continue;
		}
		p->len = (uint32_t)n;
		p->due_ns = now_ns() + delay_ns;
		w->tail++;
	}
}

static void deliver(struct way *w)
{
	uint64_t now = now_ns();

	while (w->head != w->tail && w->ring[w->head % SLOTS].due_ns <= now) {
		struct packet *p = &w->ring[w->head % SLOTS];

		if (write(w->to, p->bytes, p->len) < 0)
			w->full++;
		w->head++;
	}
}

/* Until the next packet is due. */
static void wait_for_work(struct way *ways)
{
	struct pollfd p[2] = {{.fd = ways[0].from, .events = POLLIN}, {.fd = ways[1].from, .events = POLLIN}};
	uint64_t now = now_ns(), wait = 100000000;
	struct timespec t;

	for (int i = 0; i < 2; i++) {
		const struct packet *first = &ways[i].ring[ways[i].head % SLOTS];

		if (ways[i].tail - ways[i].head == SLOTS)
			p[i].events = 0;
		if (ways[i].head == ways[i].tail)
			continue;
		if (first->due_ns <= now)
			return;
		wait = first->due_ns - now < wait ? first->due_ns - now : wait;
	}
	t = (struct timespec){.tv_sec = 0, .tv_nsec = (long)wait};
	(void)!ppoll(p, 2, &t, NULL);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	uint64_t dice[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9)}, delay_ns;
	struct way ways[2] = {{.from = -1}, {.from = -1}};
	uint32_t ppm;

	if (argc != 5)
		return 2;
	delay_ns = strtoull(argv[3], NULL, 10) * 1000000;
	ppm = (uint32_t)strtoul(argv[4], NULL, 10);
	for (int i = 0; i < 2; i++) {
		ways[i].ring = calloc(SLOTS, sizeof(struct packet));
		ways[i].from = tun_open(argv[1 + i]);
		if (ways[i].ring == NULL || ways[i].from < 0) {
			fprintf(stderr, "far_wire: %s: %s\n", argv[1 + i], strerror(errno));
			return 1;
		}
	}
	ways[0].to = ways[1].from;
	ways[1].to = ways[0].from;
	sigaction(SIGTERM, &action, NULL);
	printf("ready\n");
	fflush(stdout);
	while (!ends) {
		wait_for_work(ways);
		for (int i = 0; i < 2; i++) {
			take(&ways[i], delay_ns, &dice[i], ppm);
			deliver(&ways[i]);
		}
	}
	for (int i = 0; i < 2; i++)
		printf("way %d: %llu packets, %llu lost, %llu not taken\n", i, (unsigned long long)ways[i].went,
		       (unsigned long long)ways[i].lost, (unsigned long long)ways[i].full);
	return 0;
}
