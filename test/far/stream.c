/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c - what plain TCP reaches: one connection, one direction.
 *
 *   far_stream serve PORT           takes one connection, and reads to its end
 *   far_stream send HOST PORT SECONDS   prints the bytes a second that the other side has acknowledged
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 };

static char buf[CHUNK];

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int serve(int port)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = INADDR_ANY};
	int ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, s;

	(void)setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ls < 0 || bind(ls, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(ls, 1) != 0)
		return 1;
	printf("ready\n");
	fflush(stdout);
	s = accept(ls, NULL, NULL);
	while (s >= 0 && read(s, buf, sizeof(buf)) > 0)
		;
	return s < 0;
}

static int send_for(const char *host, int port, double limit)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), left = 0;
	double begin = seconds(), sent = 0;
	ssize_t n;

	if (s < 0 || inet_pton(AF_INET, host, &a.sin_addr) != 1 || connect(s, (struct sockaddr *)&a, sizeof(a)) != 0)
		return 1;
	while (seconds() - begin < limit && (n = write(s, buf, sizeof(buf))) > 0)
		sent += (double)n;
	(void)ioctl(s, SIOCOUTQ, &left);
	printf("%.0f\n", (sent - left) / (seconds() - begin));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	if (argc == 5 && strcmp(argv[1], "send") == 0)
		return send_for(argv[2], atoi(argv[3]), atof(argv[4]));
	return 2;
}
