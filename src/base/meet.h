/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * meet.h - where the datagram sockets of endpoints have their names.
 *
 * Without a directory they are abstract names, which all processes of one network namespace can reach. With a directory
 * they are files in it: processes in different containers meet if the directory is mounted in each. A file is for its
 * owner alone, the kernel names the user who sends, and it goes away as soon as its endpoint is connected. What a killed
 * process left is removed by the next one that opens the directory.
 */
#ifndef XPI_BASE_MEET_H
#define XPI_BASE_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mail.h"

struct xpi_meet {
	int dir; /* 0: abstract names */
	uint64_t device, inode;
};

/*
 * xpi_meet_open - open the directory; NULL or "": abstract names.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CONFIG  it cannot be opened, others may replace files in it, or the user of this process is not its
 *                     effective user
 */
int xpi_meet_open(struct xpi_meet *m, const char *path, struct xport_error *err);
/* xpi_meet_check - find out whether xpi_meet_open would work. */
int xpi_meet_check(const char *path, struct xport_error *err);
/* xpi_meet_sweep - remove files of processes that were killed, at most some hundreds, and log each as `id`. */
void xpi_meet_sweep(const struct xpi_meet *m, const char *path, const struct xpi_log *log, const char *id);
void xpi_meet_close(struct xpi_meet *m);

/* xpi_meet_bind - name a socket. False: errno says why. */
bool xpi_meet_bind(const struct xpi_meet *m, int sock, const uint64_t name[2]);
/* xpi_meet_connect - connect a socket to the one of that name, in a directory only if our user made it. False: errno says why. */
bool xpi_meet_connect(const struct xpi_meet *m, int sock, const uint64_t name[2]);
/* xpi_meet_is_from - find out whether the socket of that name has sent this, in a directory also whether it is of our user. */
bool xpi_meet_is_from(const struct xpi_meet *m, const struct xpi_mail *mail, const uint64_t name[2]);
/* xpi_meet_remove - remove the file of a name, if there is one. */
void xpi_meet_remove(const struct xpi_meet *m, const uint64_t name[2]);

#endif
