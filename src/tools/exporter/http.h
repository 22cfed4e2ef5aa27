/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http.h - as much of an HTTP server as a reader of metrics needs: GET and HEAD of one page, each connection with one request.
 *
 * One thread.  A client that is slow holds one of 32 connections for at most 10 s for its request, and 30 s for the page.  If
 * all are taken, a new client replaces the oldest.
 */
#ifndef EXPORTER_HTTP_H
#define EXPORTER_HTTP_H

#include <stdbool.h>

#include "tools/exporter/buffer.h"

/* Writes the page, or a reason why there is none and returns false. */
typedef bool (*ex_page_fn)(void *arg, struct ex_buffer *page);

/*
 * Listens at HOST:PORT, with an IPv6 address in brackets; * is all addresses.  `where` becomes the numeric address.  Returns a
 * descriptor, or -1 and a reason.
 */
int ex_http_listen(const char *address, char where[128], const char **why);

/* Serves until SIGINT or SIGTERM. */
void ex_http_serve(int listener, ex_page_fn write, void *arg);

#endif
