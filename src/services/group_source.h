/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_source.h - sources of a group: they know the rank of this process and carry the cards of the members.
 *
 * The life of a source at a member:
 *
 *	open --> offer (own card) --> ready (all have offered) --> card (of any rank, any number of times) --> close
 *
 * offer, ready and card wait at most `slice_ms` for other members. A request to a server lasts until its answer, but not
 * beyond the deadline of the head. They return XPORT_ERR_AGAIN if what is waited for is not there yet: the caller makes
 * progress, and repeats the call with the same arguments. Any other status ends the source; it was described by svc_fail.
 */
#ifndef SVC_GROUP_SOURCE_H
#define SVC_GROUP_SOURCE_H

#include "services/clock.h"
#include "services/group_card.h"
#include "services/xport_services.h"

struct svc_group_source;

struct svc_group_source_ops {
	const char *name;
	int (*offer)(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms);
	int (*ready)(struct svc_group_source *s, int slice_ms);
	int (*card)(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms);
	/* Writes what is waited for: "ranks 3 and 7", or another reason. */
	void (*missing)(struct svc_group_source *s, char *text, size_t size);
	/* Is called often from `ready` until `joined`: keeps what other members may still ask for. NULL: it stays there. */
	void (*keep)(struct svc_group_source *s);
	/* All have joined: nothing but `card` and `close` follows. NULL: nothing is to be done. */
	void (*joined)(struct svc_group_source *s);
	void (*close)(struct svc_group_source *s);
};

/* The head of each source. */
struct svc_group_source {
	const struct svc_group_source_ops *ops;
	int rank, members;
	bool local; /* all members are on this host */
	char name[SVC_GROUP_NAME_MAX + 1];
	const char *operation; /* for svc_fail: the public function that uses the source */
	int64_t until;         /* set by the caller: the deadline, as svc_now_ms counts; -1: none */
};

/* Milliseconds until the deadline, at most `most`. */
static inline int svc_source_left(const struct svc_group_source *s, int most)
{
	int64_t left = s->until < 0 ? most : s->until - svc_now_ms();

	return left < 0 ? 0 : left > most ? most : (int)left;
}

/* Who is asked for: the options after the environment was looked at. */
struct svc_group_choice {
	const char *source; /* with its prefix; NULL: exchange */
	const struct xport_group_exchange *exchange;
	int rank, members; /* of root and dir */
	char name[SVC_GROUP_NAME_MAX + 1];
};

/* Decides by options and environment. */
int svc_group_choose(const struct xport_group_attr *attr, struct svc_group_choice *choice, const char *operation);
/* Opens the source that was chosen. */
int svc_group_source_open(const struct svc_group_choice *choice, struct svc_group_source **source,
                          const char *operation);
/* Checks the name of a group. */
bool svc_group_name_valid(const char *name);

/* Lists the ranks without a mark: "rank 3", "ranks 1, 3 and 900 more". */
void svc_group_list_ranks(const uint8_t *present, int members, char *text, size_t size);

/* The sources. `argument` is what follows the colon. */
int svc_group_root_open(const struct svc_group_choice *choice, const char *argument, struct svc_group_source **source,
                        const char *operation);
int svc_group_dir_open(const struct svc_group_choice *choice, const char *argument, struct svc_group_source **source,
                       const char *operation);
int svc_group_etcd_open(const struct svc_group_choice *choice, const char *argument, struct svc_group_source **source,
                        const char *operation);
/* What PMI_FD, PMI_RANK and PMI_SIZE describe. */
int svc_group_pmi1_open(struct svc_group_source **source, const char *operation);
int svc_group_pmi2_open(struct svc_group_source **source, const char *operation);
int svc_group_pmix_open(struct svc_group_source **source, const char *operation);
int svc_group_exchange_open(const struct svc_group_choice *choice, struct svc_group_source **source,
                            const char *operation);

/* An open connection to a PMI server, instead of that of PMI_FD; for tests. */
int svc_group_pmi1_open_fd(int fd, int rank, int members, struct svc_group_source **source, const char *operation);
int svc_group_pmi2_open_fd(int fd, int rank, int members, struct svc_group_source **source, const char *operation);

#endif
