/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_room.c - what libfabric does not say when it fails: the interface that it was told to use and that is not there (it
 * takes another), room in /dev/shm, descriptors.
 */
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ofi.h"

enum {
	DESCRIPTORS = 16,    /* about what an instance takes */
	SHM_KIB = 16 << 10   /* in /dev/shm: an endpoint of its shm takes some MiB */
};

int ofi_interface(const char *name, struct xport_error *err)
{
	char first[40], variable[64], hint[128]; /* of "tcp;ofi_rxm" the first */
	const char *value;
	int n;

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(name, ";"), name);
	n = snprintf(variable, sizeof(variable), "FI_%s_IFACE", first);
	for (int i = 0; i < n; i++)
		variable[i] = (char)toupper((unsigned char)variable[i]);
	value = secure_getenv(variable);
	if (value == NULL || value[0] == '\0' || if_nametoindex(value) != 0)
		return XPORT_OK;
	snprintf(hint, sizeof(hint), "`ip -br link` lists the interfaces there are; or unset %s", variable);
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, ENODEV, "ENODEV", hint, "%s=%.40s, but there is no such interface",
	                variable, value);
}

static int descriptors_left(void)
{
	int fds[DESCRIPTORS], n = 0;

	while (n < DESCRIPTORS && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return n;
}

/* Whether /dev/shm may be what is wrong; says what it is like. */
static bool shm_lacks(char *what, size_t size)
{
	struct statvfs fs;
	unsigned long long kib;

	if (access("/dev/shm", W_OK | X_OK) != 0 || statvfs("/dev/shm", &fs) != 0) {
		snprintf(what, size, "/dev/shm cannot be written: %m");
		return true;
	}
	kib = (unsigned long long)fs.f_bavail * fs.f_bsize / 1024;
	snprintf(what, size, "/dev/shm has %llu KiB free", kib);
	return kib < SHM_KIB;
}

void ofi_explain(const struct ofi_quirk *quirk, struct xport_error *err)
{
	char what[96] = "", text[sizeof(err->text)];
	const char *hint = NULL;
	int left;

	if (err == NULL)
		return;
	left = descriptors_left();
	if (left < DESCRIPTORS) {
		snprintf(what, sizeof(what), "%d descriptors are left", left);
		hint = "raise `ulimit -n`";
	} else if (quirk->shm_prefix != NULL && shm_lacks(what, sizeof(what))) {
		hint = "mount -o remount,rw,size=1G /dev/shm; in a container: --shm-size=1g";
	}
	if (hint == NULL)
		return;
	snprintf(text, sizeof(text), "%.380s", err->text);
	xpi_fail(err, err->status, err->native_code, err->native, hint, "%s (%s)", text, what);
}
