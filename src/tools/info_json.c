/* SPDX-License-Identifier: BSD-3-Clause */
/* info_json.c - prints the findings as JSON. doc/xport_info.schema.json describes it; FORMAT counts its versions. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/info.h"

enum { FORMAT = 1 };

/* A string that came from outside may be no UTF-8: then what is not ASCII becomes "?". */
static json_t *info_json_text(const char *s)
{
	json_t *j = json_string(s);
	char ascii[1024];

	if (j != NULL)
		return j;
	snprintf(ascii, sizeof(ascii), "%s", s);
	for (char *p = ascii; *p != '\0'; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(ascii);
}

static json_t *text_or_null(const char *s)
{
	return s[0] != '\0' ? info_json_text(s) : json_null();
}

static json_t *info_json_path(int p)
{
	return json_string(p == XPORT_NATIVE ? "native" : "emulated");
}

static json_t *error(const struct xport_error *e)
{
	return json_pack("{so so so so sI}", "status", info_json_text(xport_status_name(e->status)), "text",
	                 info_json_text(e->text), "fix", text_or_null(e->hint), "native", text_or_null(e->native),
	                 "native_code", (json_int_t)e->native_code);
}

/* ---- candidates and what opened ones can do ---- */

static json_t *info_json_candidate(const struct xport_candidate *c)
{
	return json_pack("{so so so so}", "name", info_json_text(c->name), "state",
	                 info_json_text(info_state_name(c->state)), "reason", info_json_text(c->reason), "fix",
	                 text_or_null(c->hint));
}

/* The operations that end their endpoint if the network holds them when their deadline is over. */
static json_t *deadline_ends(const struct xport_info *i)
{
	const struct {
		int type;
		const char *name;
	} all[] = {{XPORT_OP_PUT, "put"},
	           {XPORT_OP_PUT_NOTIFY, "notify"},
	           {XPORT_OP_GET, "get"},
	           {XPORT_OP_ATOMIC, "atomic"}};
	json_t *list = json_array();

	for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++)
		if ((i->deadline_ends & 1u << all[n].type) != 0)
			json_array_append_new(list, json_string(all[n].name));
	return list;
}

static json_t *operations(const struct xport_info *i)
{
	return json_pack("{so so so so so so so so so so}", "put", info_json_path(i->put), "put_registered",
	                 info_json_path(i->put_reg), "get", info_json_path(i->get), "get_registered",
	                 info_json_path(i->get_reg), "notify", info_json_path(i->notify), "atomic",
	                 info_json_path(i->atomic), "nic_atomic", info_json_path(i->nic_atomic), "send",
	                 info_json_path(i->send), "flush", info_json_path(i->flush), "deadline_ends", deadline_ends(i));
}

static json_t *info_json_limits(const struct xport_info *i)
{
	return json_pack("{sI sI sI sI sI sI sI sI sI ss sb}", "message_max", (json_int_t)i->message_max, "eager_max",
	                 (json_int_t)i->eager_max, "frame_max", (json_int_t)i->frame_max, "window",
	                 (json_int_t)i->window, "key_max", (json_int_t)i->rkey_max, "private_max",
	                 (json_int_t)i->private_max, "queue_depth", (json_int_t)i->queue_depth, "peer_timeout_ms",
	                 (json_int_t)i->peer_timeout_ms, "iov_max", (json_int_t)i->iov_max, "traffic_class",
	                 info_traffic_name(i->traffic_class), "traffic_marked", i->traffic_marked);
}

static json_t *security(const struct info *info, const struct xport_info *i)
{
	return json_pack("{sb sb so}", "target_bounds", i->target_bounds, "passive_target", i->passive_target,
	                 "authentication", info_json_text(info_authentication(info)));
}

static json_t *info_json_opened(const struct info *info, const struct info_opened *o)
{
	const struct xport_info *i = &o->caps;

	if (o->status != XPORT_OK)
		return json_pack("{so sb so}", "name", info_json_text(o->name), "usable", 0, "error", error(&o->error));
	return json_pack("{so sb so so so so sb si so so so}", "name", info_json_text(o->name), "usable", 1, "back_end",
	                 info_json_text(i->backend), "provider", info_json_text(i->provider), "device",
	                 info_json_text(i->device), "stack", info_json_text(i->stack), "thread_multiple",
	                 i->thread_mode == XPORT_THREAD_MULTIPLE, "stack_threads", i->stack_threads, "operations",
	                 operations(i), "limits", info_json_limits(i), "security", security(info, i));
}

static json_t *info_json_request(const struct info_request *r)
{
	json_t *j = json_pack("{so so sb so}", "backend", info_json_text(r->backend), "source",
	                      info_json_text(r->source), "usable", r->usable, "takes", text_or_null(r->takes));

	if (j != NULL && !r->usable)
		json_object_set_new(j, "error", error(&r->error));
	return j;
}

/* ---- variables, checks ---- */

static json_t *variable(const struct xport_variable *v)
{
	bool set = v->value != NULL;

	return json_pack("{so so so so so so so so}", "name", info_json_text(v->name), "type", info_json_text(v->type),
	                 "range", info_json_text(v->range), "default", info_json_text(v->standard), "value",
	                 info_json_text(set ? v->value : v->standard), "source",
	                 info_json_text(set ? "environment" : "default"), "text", info_json_text(v->text), "problem",
	                 text_or_null(v->problem));
}

static json_t *info_json_check(const struct info_check *c)
{
	return json_pack("{so so so so}", "id", info_json_text(c->id), "state",
	                 info_json_text(info_check_name(c->state)), "text", info_json_text(c->text), "cure",
	                 text_or_null(c->cure));
}

/* ---- the whole ---- */

/* Where there is no memory jansson returns NULL or -1 all the way up; half of it must not be shown. */
struct writer {
	json_t *top;
	bool whole;
};

static void info_json_add(struct writer *w, const char *name, json_t *value)
{
	w->whole = json_object_set_new(w->top, name, value) == 0 && w->whole;
}

static json_t *add_list(struct writer *w, const char *name)
{
	json_t *list = json_array();

	info_json_add(w, name, list);
	return list;
}

static void info_json_append(struct writer *w, json_t *list, json_t *item)
{
	w->whole = json_array_append_new(list, item) == 0 && w->whole;
}

static void add_found(struct writer *w, const struct info *info)
{
	json_t *list;

	if (info->nnames == 0 || info->doctor) {
		if (info->ncandidates < 0)
			info_json_add(w, "error", error(&info->list_error));
		list = add_list(w, "candidates");
		for (int i = 0; i < info->ncandidates; i++)
			info_json_append(w, list, info_json_candidate(&info->candidates[i]));
	}
	if (info->request.backend != NULL)
		info_json_add(w, "request", info_json_request(&info->request));
	if (info->nnames > 0 || info->verbose) {
		list = add_list(w, "opened");
		for (int i = 0; i < info->nopened; i++)
			info_json_append(w, list, info_json_opened(info, &info->opened[i]));
	}
	if (!info->doctor)
		return;
	list = add_list(w, "checks");
	for (int i = 0; i < info->nchecks; i++)
		info_json_append(w, list, info_json_check(&info->checks[i]));
}

bool info_show_json(const struct info *info)
{
	struct writer w = {json_pack("{si so}", "format", FORMAT, "version", info_json_text(xport_version())), true};
	json_t *list;
	bool ok;

	if (info->env) {
		list = add_list(&w, "variables");
		for (int i = 0; i < info->nvariables; i++)
			info_json_append(&w, list, variable(&info->variables[i]));
	} else {
		add_found(&w, info);
	}
	ok = w.whole && json_dumpf(w.top, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
	json_decref(w.top);
	if (!ok)
		fprintf(stderr, "xport_info: the JSON cannot be written\n");
	return ok;
}
