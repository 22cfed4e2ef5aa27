/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_room.c - what libfabric does not say when it fails: the interface that it was told to use and that is not there (it
 * takes another), room in /dev/shm, where it makes files without asking for their room and is ended by SIGBUS when they
 * have none, descriptors.
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
	SHM_KIB = 16 << 10,  /* in /dev/shm: below that its shm may not have been offered at all */
	SHM_EP_KIB = 8 << 10 /* what an endpoint of it (1.17) comes to, half of it at once */
};

static const char shm_hint[] = "mount -o remount,rw,size=1G /dev/shm; in a container: --shm-size=1g";

/* fi_verbs(7): the name, or what it begins with. */
static bool begins_one(const char *prefix)
{
	struct if_nameindex *all = if_nameindex();
	bool found = false;

	for (const struct if_nameindex *i = all; all != NULL && i->if_index != 0 && !found; i++)
		found = strncmp(i->if_name, prefix, strlen(prefix)) == 0;
	if (all != NULL)
		if_freenameindex(all);
	return found;
}

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
	if (value == NULL || value[0] == '\0' || if_nametoindex(value) != 0 ||
	    (strcmp(first, "verbs") == 0 && begins_one(value)))
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

static bool shm_free(unsigned long long *kib)
{
	struct statvfs fs;

	if (statvfs("/dev/shm", &fs) != 0)
		return false;
	*kib = (unsigned long long)fs.f_bavail * fs.f_bsize / 1024;
	return true;
}

/* Whether /dev/shm may be what is wrong; says what it is like. */
static bool shm_lacks(char *what, size_t size)
{
	unsigned long long kib;

	if (access("/dev/shm", W_OK | X_OK) != 0 || !shm_free(&kib)) {
		snprintf(what, size, "/dev/shm cannot be written: %m");
		return true;
	}
	snprintf(what, size, "/dev/shm has %llu KiB free", kib);
	return kib < SHM_KIB;
}

int ofi_room(const struct ofi_quirk *quirk, struct xport_error *err)
{
	unsigned long long kib;

	if (quirk->shm_prefix == NULL || !shm_free(&kib) || kib >= SHM_EP_KIB)
		return XPORT_OK;
	return xpi_fail(err, XPORT_ERR_NO_MEMORY, ENOSPC, "ENOSPC", shm_hint,
	                "an endpoint of libfabric's shm may take %d KiB of /dev/shm, where %llu are free", SHM_EP_KIB,
	                kib);
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
		hint = shm_hint;
	}
	if (hint == NULL)
		return;
	snprintf(text, sizeof(text), "%.380s", err->text);
	xpi_fail(err, err->status, err->native_code, err->native, hint, "%s (%s)", text, what);
}
