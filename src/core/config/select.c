/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/config/select.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "core/config/registry.h"
#include "core/config/settings.h"

enum { NATTEMPTS_MAX = 32 };

/* What was tried and why it is not usable. */
struct attempt {
	char name[64], reason[256];
};

struct trial {
	const struct xpi_settings *settings;
	struct xpi_be_open_args args; /* ours: the provider changes */
	struct xport_error *err;
	struct xpi_choice *choice;
	struct attempt attempts[NATTEMPTS_MAX];
	int nattempts; /* may exceed what there is room for */
	int status;    /* of the last one */
};

/* ---- Capabilities ------------------------------------------------------------------------------------------- */

/* Nothing goes by the network's own put and get. */
static bool all_emulated(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	return (settings->emulate & both) == both || caps->rkey_native_max == 0;
}

bool xpi_choice_target_bounds(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	return caps->target_bounds || all_emulated(settings, caps);
}

bool xpi_choice_passive_target(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	if (settings->progress_thread) /* which calls at the target */
		return true;
	return caps->passive_target && (settings->emulate & both) == 0 && caps->rkey_native_max > 0;
}

bool xpi_choice_nic_atomic(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	return caps->nic_atomic && (settings->emulate & XPI_EMULATE_ATOMIC) == 0;
}

bool xpi_choice_lend(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	/* What is lent for messages is a means to put without the right. */
	return caps->lends && (settings->emulate & XPI_EMULATE_PUT) == 0 &&
	       (settings->require & XPI_REQUIRE_TARGET_BOUNDS) == 0;
}

/* The required capability that is absent, or NULL. */
static const char *lacks(const struct xpi_settings *settings, const struct xpi_be_caps *caps)
{
	if (settings->require & XPI_REQUIRE_TARGET_BOUNDS && !xpi_choice_target_bounds(settings, caps))
		return "target_bounds";
	if (settings->require & XPI_REQUIRE_PASSIVE_TARGET && !xpi_choice_passive_target(settings, caps))
		return "passive_target";
	if (settings->require & XPI_REQUIRE_TRAFFIC_CLASS && caps->traffic == XPI_TRAFFIC_NONE)
		return "traffic_class";
	return NULL;
}

static const char *lacks_hint(const char *what)
{
	if (strcmp(what, "target_bounds") == 0)
		return "XPORT_EMULATE=all checks at the target";
	if (strcmp(what, "passive_target") == 0)
		return "XPORT_PROGRESS=thread calls at the target";
	return "verbs, ofi:tcp and ucx:rc mark the packets of their data";
}

/* What a back end says of itself that cannot be, or NULL. */
static const char *absurd(const struct xpi_be_caps *caps)
{
	if (caps->am_max < XPI_FRAME_LEAST)
		return "am_max";
	if (caps->am_credits == 0)
		return "am_credits";
	if (caps->rkey_native_max > 1024)
		return "rkey_native_max";
	return NULL;
}

/* ---- One candidate ------------------------------------------------------------------------------------------ */

/* Writes down that `name` failed with what err says. */
static int note(struct trial *t, const char *name, int status)
{
	const char *reason = t->err->text[0] != '\0' ? t->err->text : xpi_status_text(status);

	if (t->nattempts < NATTEMPTS_MAX) {
		struct attempt *a = &t->attempts[t->nattempts];

		snprintf(a->name, sizeof(a->name), "%s", name);
		snprintf(a->reason, sizeof(a->reason), "%.255s", reason);
	}
	t->nattempts++;
	t->status = status;
	xpi_log(t->args.log, XPORT_LOG_INFO, "0205", "%s is not usable: %s", name, reason);
	return status;
}

/* What an earlier attempt left must not be taken for a reason of the next. */
static void forget(struct xport_error *err)
{
	err->status = XPORT_OK;
	err->native_code = 0;
	err->native[0] = err->text[0] = err->hint[0] = '\0';
}

static int try_provider(struct trial *t, const struct xpi_backend *ops, const char *name, const char *provider)
{
	struct xpi_be_caps *caps = &t->choice->caps;
	const char *what;
	struct xpi_be *be = NULL;
	int rc;

	forget(t->err);
	t->args.provider = provider;
	rc = ops->open(&t->args, &be);
	if (rc != XPORT_OK)
		return note(t, name, rc);
	memset(caps, 0, sizeof(*caps));
	ops->query(be, caps);
	what = absurd(caps);
	if (what != NULL)
		rc = xpi_fail(t->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, NULL,
		              "the back end %s reports an impossible value of %s", ops->name, what);
	else if ((what = lacks(t->settings, caps)) != NULL)
		rc = xpi_fail(t->err, XPORT_ERR_NO_BACKEND, 0, NULL, lacks_hint(what),
		              "it has no %s, which XPORT_REQUIRE asks for", what);
	if (rc != XPORT_OK) {
		ops->close(be);
		return note(t, name, rc);
	}
	forget(t->err);
	t->choice->ops = ops;
	t->choice->be = be;
	return XPORT_OK;
}

/* ---- By name ------------------------------------------------------------------------------------------------ */

/* What no version knows may be a slip of the pen: said even where another one of the list does. */
static int try_unknown(struct trial *t, const char *item)
{
	char name[65];
	int rc;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(item, ":"), item);
	rc = xpi_candidates_unknown(name, t->err);
	xpi_log(t->args.log, XPORT_LOG_INFO, "0206", "XPORT_BACKEND: %s", t->err->text);
	return note(t, item, rc);
}

static int try_item(struct trial *t, const char *item)
{
	size_t n = strcspn(item, ":");
	const struct xpi_registry_entry *entry = xpi_candidates_entry(item, n);
	const struct xpi_backend *ops;
	int rc;

	forget(t->err);
	if (entry == NULL)
		return try_unknown(t, item);
	rc = xpi_registry_load(entry, t->args.log, t->err, &ops);
	if (rc != XPORT_OK)
		return note(t, item, rc);
	return try_provider(t, ops, item, item[n] == ':' ? item + n + 1 : NULL);
}

int xpi_select_back_end(const struct xpi_be_open_args *args, const char *name, const struct xpi_backend **ops)
{
	const struct xpi_registry_entry *entry = xpi_candidates_entry(name, strlen(name));

	if (entry == NULL)
		return xpi_candidates_unknown(name, args->err);
	return xpi_registry_load(entry, args->log, args->err, ops);
}

/* ---- The outcome -------------------------------------------------------------------------------------------- */

/* Each one with its reason, all of them cut alike where they do not fit. */
static int selection_none_usable(struct trial *t)
{
	char text[sizeof(t->err->text)];
	int shown = t->nattempts < NATTEMPTS_MAX ? t->nattempts : NATTEMPTS_MAX;
	size_t at = 0, room = sizeof(text) - 48, share;

	if (t->nattempts == 0)
		return xpi_fail(t->err, XPORT_ERR_NO_BACKEND, 0, NULL, "configure libxport with a back end",
		                "this build has no back end");
	if (t->nattempts == 1) {
		struct xport_error e = *t->err;

		/* Out of memory is no property of the back end. */
		return xpi_fail(t->err, t->status == XPORT_ERR_NO_MEMORY ? t->status : XPORT_ERR_NO_BACKEND,
		                e.native_code, e.native, e.hint, "%s is not usable: %s", t->attempts[0].name,
		                t->attempts[0].reason);
	}
	for (int i = 0; i < shown; i++) {
		const struct attempt *a = &t->attempts[i];
		size_t name_len = strlen(a->name) + 4, reason_len = strlen(a->reason), left = (size_t)(shown - i);

		/* What short ones leave goes to those that follow. */
		share = at < room ? (room - at) / left : 0;
		if (share < name_len)
			break;
		share -= name_len;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s: %.*s", i > 0 ? "; " : "", a->name,
		                       (int)(reason_len < share ? reason_len : share), a->reason);
	}
	text[at] = '\0';
	return xpi_fail(t->err, XPORT_ERR_NO_BACKEND, 0, NULL, "xport_list tells for each what to do about it",
	                "none of %d is usable: %s", t->nattempts, text);
}

/* Opens one candidate; `item` is its whole name. */
static int try_candidate(struct trial *t, struct xpi_candidate *c, const char *item)
{
	int rc = try_item(t, item);

	if (rc != XPORT_OK) {
		xpi_candidate_failed(c, rc, t->err->text[0] != '\0' ? t->err->text : xpi_status_text(rc));
		return rc;
	}
	c->state = XPI_CANDIDATE_OPEN;
	c->any_provider = t->choice->caps.local_provider;
	c->shares_memory = t->choice->caps.cma_min > 0;
	memcpy(c->provider, t->choice->caps.provider, sizeof(c->provider));
	return XPORT_OK;
}

int xpi_select_candidate(const struct xpi_settings *settings, const struct xpi_be_open_args *args,
                         struct xpi_candidate *candidate, struct xpi_choice *choice)
{
	struct trial t = {.settings = settings, .args = *args, .err = args->err, .choice = choice};

	memset(choice, 0, sizeof(*choice));
	return try_candidate(&t, candidate, candidate->name);
}

int xpi_select(const struct xpi_settings *settings, const struct xpi_be_open_args *args, struct xpi_choice *choice,
               struct xpi_candidates *candidates)
{
	struct trial t = {.settings = settings, .args = *args, .err = args->err, .choice = choice};
	const char *list = settings->backend;
	char alternative[sizeof(settings->backend)];
	int rc = xpi_candidates_check(list, args->err);

	memset(choice, 0, sizeof(*choice));
	candidates->n = 0;
	if (rc != XPORT_OK)
		return rc;
	while (xpi_candidates_next(&list, alternative, sizeof(alternative))) {
		xpi_candidates_fill(candidates, alternative);
		for (int i = 0; i < candidates->n; i++) {
			struct xpi_candidate *c = &candidates->list[i];

			/* Whole, where the entry has no space for all of the name. */
			if (try_candidate(&t, c, candidates->n == 1 ? alternative : c->name) == XPORT_OK) {
				choice->candidate = i;
				return XPORT_OK;
			}
		}
	}
	memset(choice, 0, sizeof(*choice));
	candidates->n = 0;
	return selection_none_usable(&t);
}

/* ---- The list ----------------------------------------------------------------------------------------------- */

struct counter {
	xpi_candidate_fn emit;
	void *arg;
	int n;
};

static void candidates_count(void *arg, const struct xport_candidate *c)
{
	struct counter *counter = (struct counter *)arg;

	counter->n++;
	counter->emit(counter->arg, c);
}

/* One line for a back end that cannot be asked for its providers. */
static void emit_whole(struct counter *counter, const char *name, int state, const char *reason, const char *hint)
{
	struct xport_candidate c;

	memset(&c, 0, sizeof(c));
	c.state = state;
	snprintf(c.name, sizeof(c.name), "%s", name);
	snprintf(c.reason, sizeof(c.reason), "%s", reason);
	snprintf(c.hint, sizeof(c.hint), "%s", hint);
	candidates_count(counter, &c);
}

int xpi_select_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	struct counter counter = {emit, arg, 0};
	const struct xpi_registry_entry *e;

	for (e = xpi_registry(); e->name != NULL; e++) {
		struct xport_error err = {.size = sizeof(err)};
		const struct xpi_backend *ops;
		int rc = xpi_registry_load(e, log, &err, &ops), before = counter.n;

		if (e->why_not != NULL) {
			emit_whole(&counter, e->name, XPORT_NOT_BUILT, e->why_not, err.hint);
			continue;
		}
		if (rc == XPORT_ERR_NO_MEMORY)
			return rc;
		if (rc != XPORT_OK) {
			emit_whole(&counter, e->name, rc == XPORT_ERR_NO_BACKEND ? XPORT_ABSENT : XPORT_MISCONFIGURED,
			           err.text, err.hint);
			continue;
		}
		rc = ops->list(log, candidates_count, &counter);
		if (rc == XPORT_ERR_NO_MEMORY)
			return rc;
		if (rc < 0 || counter.n == before)
			emit_whole(&counter, e->name, XPORT_MISCONFIGURED,
			           rc < 0 ? xpi_status_text(rc) : "it lists no providers",
			           "see the log, with XPORT_LOG=debug");
	}
	return counter.n;
}
