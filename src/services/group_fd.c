/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/last_error.h"

int svc_fd_up(int fd)
{
	int up, e;

	if (fd < 0 || fd > 2)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	e = errno;
	close(fd);
	errno = e;
	return up;
}

int svc_fd_open(const char *path, int flags, mode_t mode)
{
	return svc_fd_up(open(path, flags | O_CLOEXEC, mode));
}

static bool fd_ready(int fd, short events, int ms)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, ms) == 1;
}

bool svc_fd_readable(int fd, int ms)
{
	return fd_ready(fd, POLLIN, ms);
}

bool svc_fd_writable(int fd, int ms)
{
	return fd_ready(fd, POLLOUT, ms);
}

static bool port_valid(const char *port)
{
	size_t len = strlen(port);

	return len >= 1 && len <= 5 && strspn(port, "0123456789") == len && atoi(port) <= 65535;
}

int svc_address_find(const char *address, bool listener, struct addrinfo **list, const char *operation)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
	                         .ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_NUMERICSERV | (listener ? AI_PASSIVE : 0)};
	const char *colon = strrchr(address, ':');
	char host[256];
	size_t len = colon == NULL ? 0 : (size_t)(colon - address);
	int r;

	if (colon == NULL || len == 0 || len >= sizeof(host) || !port_valid(colon + 1))
		return svc_fail(XPORT_ERR_ADDRESS, operation, "for example root:node1:7000",
		                "\"%.200s\" is not HOST:PORT", address);
	if (address[0] == '[' && colon[-1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, address + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)len, address);
	r = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, colon + 1, &hints, list);
	if (r == EAI_SERVICE || r == EAI_NONAME)
		return svc_fail(r == EAI_SERVICE ? XPORT_ERR_ADDRESS : XPORT_ERR_UNREACHABLE, operation,
		                "check host and port", "\"%.200s\": %s", address, gai_strerror(r));
	if (r == EAI_MEMORY)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	if (r != 0)
		return svc_fail(XPORT_ERR_UNREACHABLE, operation, "check the name service", "\"%.200s\": %s", address,
		                gai_strerror(r));
	return XPORT_OK;
}
