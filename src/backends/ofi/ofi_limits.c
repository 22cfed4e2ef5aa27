/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_limits.c - causes of failures that libfabric does not report.
 *
 * It uses another interface if the configured one does not exist. It creates files in /dev/shm without reserving
 * space, and SIGBUS ends the process when /dev/shm is full. It does not say that descriptors ran out.
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

#include "base/fd.h"
#include "ofi.h"

enum {
	DESCRIPTORS = 16,     /* approximate need of an instance */
	SHM_KIB = 16 << 10,   /* in /dev/shm: with less, its shm provider may not be offered at all */
	SHM_FILE = 32 << 20,  /* bytes: its files have up to 16 MiB each */
	SHM_EP_KIB = 10 << 10 /* need of an endpoint of shm (1.17) while it is made; afterwards less than 1 MiB */
};

static const char shm_hint[] = "mount -o remount,rw,size=1G /dev/shm; in a container: --shm-size=1g";

/* fi_verbs(7): the name or its beginning */
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
	snprintf(hint, sizeof(hint), "`ip -br link` lists the interfaces; name one of them, or unset %s", variable);
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, ENODEV, "ENODEV", hint, "%s=%.40s, but there is no such interface",
	                variable, value);
}

static int descriptors_left(void)
{
	int fds[DESCRIPTORS], n = 0;

	while (n < DESCRIPTORS && (fds[n] = xpi_fd_up(eventfd(0, EFD_CLOEXEC))) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return n;
}

bool ofi_descriptors_short(void)
{
	return descriptors_left() < DESCRIPTORS;
}

static bool shm_free(unsigned long long *kib)
{
	struct statvfs fs;

	if (statvfs("/dev/shm", &fs) != 0)
		return false;
	*kib = (unsigned long long)fs.f_bavail * fs.f_bsize / 1024;
	return true;
}

/* Whether /dev/shm may be the cause; describes its state. */
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

int ofi_limits_check(const struct ofi_quirk *quirk, struct xport_error *err)
{
	unsigned long long kib;

	if (quirk->shm_prefix != NULL && !xpi_file_allowed(SHM_FILE))
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, EFBIG, "EFBIG", XPI_FILE_HINT,
		                "libfabric's shm needs files of up to %d KiB, and the limit of file sizes is lower",
		                SHM_FILE / 1024);
	if (quirk->shm_prefix == NULL || !shm_free(&kib) || kib >= SHM_EP_KIB)
		return XPORT_OK;
	return xpi_fail(err, XPORT_ERR_NO_MEMORY, ENOSPC, "ENOSPC", shm_hint,
	                "an endpoint of libfabric's shm needs up to %d KiB of /dev/shm, and %llu KiB are free",
	                SHM_EP_KIB, kib);
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
		snprintf(what, sizeof(what), "only %d descriptors are left", left);
		hint = "raise the limit of open files: `ulimit -n`";
	} else if (quirk->shm_prefix != NULL && shm_lacks(what, sizeof(what))) {
		hint = shm_hint;
	}
	if (hint == NULL)
		return;
	snprintf(text, sizeof(text), "%.380s", err->text);
	xpi_fail(err, err->status, err->native_code, err->native, hint, "%s (%s)", text, what);
}
