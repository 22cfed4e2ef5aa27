/* SPDX-License-Identifier: BSD-3-Clause */
/* Which source a group has, by the options and the environment. */
#include "services/group_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/last_error.h"

/* Variables of launchers that have rank and number, in the order in which they are looked at. */
static const char *const launchers[][2] = {
	{"XPORT_GROUP_RANK", "XPORT_GROUP_SIZE"},
	{"PMI_RANK", "PMI_SIZE"},
	{"SLURM_PROCID", "SLURM_NTASKS"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
};
static const char exist[] =
	"there are root:HOST:PORT, dir:PATH, etcd:URL, pmi1, pmi2, pmix, and functions of the application";

/* A variable that is set and not empty. None in a set-user-ID program. */
static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value == NULL || value[0] == '\0' ? NULL : value;
}

static int read_number(const char *name, const char *text, int *number, const char *operation)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || text[0] < '0' || text[0] > '9' || n > SVC_GROUP_MEMBERS_MAX)
		return svc_fail(XPORT_ERR_CONFIG, operation, "a decimal number, up to 1048576",
		                "%s=%.100s is not a number that is allowed", name, text);
	*number = (int)n;
	return XPORT_OK;
}

bool svc_group_name_valid(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= SVC_GROUP_NAME_MAX && name[0] != '.' &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

void svc_group_list_ranks(const uint8_t *present, int members, char *text, size_t size)
{
	enum { NAMED = 12 };
	int missing = 0, named = 0;
	size_t at = 0;

	for (int i = 0; i < members; i++)
		missing += present[i] == 0;
	text[0] = '\0';
	for (int i = 0; i < members && named < NAMED; i++) {
		if (present[i] != 0)
			continue;
		at += (size_t)snprintf(text + at, size - at, "%s%d",
		                       named == 0             ? missing == 1 ? "rank " : "ranks "
		                       : named == missing - 1 ? " and "
		                                              : ", ",
		                       i);
		if (at >= size)
			return;
		named++;
	}
	if (missing > named)
		snprintf(text + at, size - at, " and %d more", missing - named);
}

/* Rank and number, from the options or the first launcher that has both. */
static int find_rank(const struct xport_group_attr *attr, struct svc_group_choice *c, const char *operation)
{
	char looked[256] = "";
	size_t at = 0;
	int r;

	if (attr->members != 0) {
		c->rank = attr->rank;
		c->members = attr->members;
	}
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]) && c->members == 0; i++) {
		const char *rank = variable(launchers[i][0]), *members = variable(launchers[i][1]);

		if ((rank == NULL) != (members == NULL) && i == 0)
			return svc_fail(XPORT_ERR_CONFIG, operation, NULL, "%s is set, but not %s",
			                launchers[0][rank == NULL], launchers[0][rank != NULL]);
		at += (size_t)snprintf(looked + at, sizeof(looked) - at, "%s%s", i == 0 ? "" : ", ", launchers[i][0]);
		if (rank == NULL || members == NULL)
			continue;
		r = read_number(launchers[i][0], rank, &c->rank, operation);
		if (r == XPORT_OK)
			r = read_number(launchers[i][1], members, &c->members, operation);
		if (r != XPORT_OK)
			return r;
		if (c->members == 0)
			return svc_fail(XPORT_ERR_CONFIG, operation, "set the number of members", "%s=0",
			                launchers[i][1]);
	}
	if (c->members == 0)
		return svc_fail(XPORT_ERR_CONFIG, operation, "set XPORT_GROUP_RANK and XPORT_GROUP_SIZE",
		                "the rank of this process is unknown: looked at %s; none is set", looked);
	if (c->rank < 0 || c->rank >= c->members)
		return svc_fail(XPORT_ERR_CONFIG, operation, "ranks are 0 to the number less 1",
		                "rank %d is not below the number of members, %d", c->rank, c->members);
	return XPORT_OK;
}

static int no_source(const char *operation)
{
	const char *also =
		variable("SLURM_PROCID") != NULL
			? "; SLURM_PROCID is set: use srun --mpi=pmi2 or --mpi=pmix, or XPORT_GROUP=root:HOST:PORT"
			: "";

	return svc_fail(XPORT_ERR_CONFIG, operation,
	                "set XPORT_GROUP to root:HOST:PORT, dir:PATH or etcd:URL, or start by mpiexec.hydra",
	                "no launcher was found: looked at XPORT_GROUP, PMI_FD and PMIX_NAMESPACE; none is set%s", also);
}

/* The source of the launcher that started this process; NULL: unknown. */
static const char *launched(void)
{
	/* Slurm's own PMI-1 is the older half of its server. mpiexec.hydra, in a job of Slurm, speaks both. */
	if (variable("PMI_FD") != NULL)
		return variable("SLURM_PROCID") != NULL ? "pmi2" : "pmi1";
	return variable("PMIX_NAMESPACE") != NULL ? "pmix" : NULL;
}

/* Whether the source has rank and number by itself. */
static bool knows_rank(const char *source)
{
	static const char *const sources[] = {"pmi1", "pmi2", "pmix"};

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (strcmp(source, sources[i]) == 0)
			return true;
	return false;
}

int svc_group_choose(const struct xport_group_attr *attr, struct svc_group_choice *c, const char *operation)
{
	const char *name = attr->name != NULL ? attr->name : variable("XPORT_GROUP_NAME");

	memset(c, 0, sizeof(*c));
	if (name != NULL && !svc_group_name_valid(name))
		return svc_fail(attr->name != NULL ? XPORT_ERR_INVALID : XPORT_ERR_CONFIG, operation,
		                "1 to 63 of A-Z a-z 0-9 . _ -, not beginning with a dot",
		                "the name \"%.100s\" is not allowed", name);
	snprintf(c->name, sizeof(c->name), "%s", name != NULL ? name : "group");
	if (attr->members < 0 || attr->members > SVC_GROUP_MEMBERS_MAX ||
	    (attr->members != 0 && (attr->rank < 0 || attr->rank >= attr->members)))
		return svc_fail(XPORT_ERR_INVALID, operation, "ranks are 0 to the number less 1",
		                "rank %d of %d members", attr->rank, attr->members);
	if (attr->exchange != NULL) {
		c->exchange = attr->exchange;
		return XPORT_OK;
	}
	c->source = attr->source != NULL ? attr->source : variable("XPORT_GROUP");
	if (c->source == NULL)
		c->source = launched();
	if (c->source == NULL)
		return no_source(operation);
	return knows_rank(c->source) ? XPORT_OK : find_rank(attr, c, operation);
}

int svc_group_source_open(const struct svc_group_choice *c, struct svc_group_source **source, const char *operation)
{
	int r;

	if (c->exchange != NULL)
		r = svc_group_exchange_open(c, source, operation);
	else if (strncmp(c->source, "root:", 5) == 0)
		r = svc_group_root_open(c, c->source + 5, source, operation);
	else if (strncmp(c->source, "dir:", 4) == 0)
		r = svc_group_dir_open(c, c->source + 4, source, operation);
	else if (strncmp(c->source, "etcd:", 5) == 0)
		r = svc_group_etcd_open(c, c->source + 5, source, operation);
	else if (strcmp(c->source, "pmi1") == 0)
		r = svc_group_pmi1_open(source, operation);
	else if (strcmp(c->source, "pmi2") == 0)
		r = svc_group_pmi2_open(source, operation);
	else if (strcmp(c->source, "pmix") == 0)
		r = svc_group_pmix_open(source, operation);
	else
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, exist,
		                "XPORT_GROUP=%.200s: there is no such source", c->source);
	if (r == XPORT_OK) {
		(*source)->operation = operation;
		memcpy((*source)->name, c->name, sizeof(c->name));
	}
	return r;
}
