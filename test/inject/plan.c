/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"memory", "system", "sodium", "ucx", "fabric", "rdma"};

struct one_case *cases;
size_t ncases;
struct place places[INJECT_SITES];
int nplaces;
const char *backends[BACKENDS_MAX];
int nbackends;
bool once;

static size_t cases_room;

/* ---- cases ---- */

struct one_case *add_case(const struct one_case *c)
{
	if (ncases == cases_room) {
		cases_room = cases_room ? 2 * cases_room : 1024;
		cases = realloc(cases, cases_room * sizeof(*cases));
		if (cases == NULL)
			abort();
	}
	cases[ncases] = *c;
	return &cases[ncases++];
}

static void name_step(const struct inject_step *s, char *buf, size_t len)
{
	const char *plus = s->persistent ? "+" : "";

	if (s->site != 0)
		snprintf(buf, len, " @%lx:%u:%d%s", (unsigned long)s->site, s->nth, s->error, plus);
	else
		snprintf(buf, len, " %s:%u%s", kinds[s->kind], s->nth, plus);
}

void name_case(const struct one_case *c, char *buf, size_t len)
{
	char step[INJECT_STEPS][40] = {"", ""};

	for (int i = 0; i < INJECT_STEPS; i++)
		if (c->steps[i].active)
			name_step(&c->steps[i], step[i], sizeof(step[i]));
	snprintf(buf, len, "%s %s%s%s", c->scenario->name, backends[c->backend], step[0], step[1]);
}

bool read_step(const char *text, struct inject_step *s)
{
	char kind[16];
	int used = 0;

	*s = (struct inject_step){.active = true};
	s->persistent = text[strlen(text) - 1] == '+';
	if (sscanf(text, "@%lx:%u:%d", &s->site, &s->nth, &s->error) == 3)
		return true;
	if (sscanf(text, "%15[a-z]:%u%n", kind, &s->nth, &used) != 2)
		return false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i], kind) == 0) {
			s->kind = (enum inject_kind)i;
			return true;
		}
	return false;
}

/* ---- places ---- */

static struct place *place(uintptr_t at, int call)
{
	for (int i = 0; i < nplaces; i++)
		if (places[i].at == at)
			return &places[i];
	if (nplaces == INJECT_SITES)
		abort();
	places[nplaces] = (struct place){.at = at, .call = call};
	return &places[nplaces++];
}

/* An error that may well be told for ever: nobody need bear that. */
static bool passing(int error)
{
	return error == EAGAIN || error == EINTR || error == -EAGAIN || error == -EINTR || error == INJECT_SHORT ||
	       error == 0;
}

static void add_site_cases(const struct one_case *base, uintptr_t at, int call, unsigned made)
{
	const struct inject_call *k = &inject_calls[call];
	struct one_case c = *base;
	unsigned turn = 0;

	c.baseline = false;
	c.steps[0] = (struct inject_step){.active = true, .site = at, .nth = 1, .error = k->errors[0]};
	if (once) {
		struct place *p = place(at, call);

		if (!p->paired)
			add_case(&c);
		p->paired = true;
		return;
	}
	for (int i = 0; i < k->nerrors; i++) {
		c.steps[0].error = k->errors[i];
		c.steps[0].persistent = false;
		add_case(&c);
		c.steps[0].persistent = true;
		if (!passing(k->errors[i]) && !k->after && i < 2)
			add_case(&c);
	}
	c.steps[0].persistent = false;
	for (unsigned n = 2; n <= made && n < 70 && !k->after; n = n < 4 ? n + 1 : 2 * n) {
		c.steps[0].nth = n;
		c.steps[0].error = k->errors[turn++ % (unsigned)k->nerrors];
		add_case(&c);
	}
}

void plan(const struct one_case *base, const struct left *l)
{
	struct one_case c = *base;
	unsigned n = atomic_load(&l->run.counts[INJECT_MEMORY]);

	c.baseline = false;
	for (unsigned i = 1; i <= n && !once; i++)
		for (int persistent = 0; persistent < 2; persistent++) {
			c.steps[0] = (struct inject_step){
				.active = true, .kind = INJECT_MEMORY, .nth = i, .persistent = persistent};
			c.chain = i == n && !persistent;
			add_case(&c);
		}
	for (int i = 0; i < INJECT_SITES; i++) {
		const struct inject_site *s = &l->run.sites[i];

		if (s->at != 0 && (once || inject_calls[s->call].kind != INJECT_MEMORY))
			add_site_cases(base, s->at, s->call, s->made);
	}
}

/* What comes by in some runs only: another case is made where it does so again. */
static void look_again(const struct one_case *c, const struct left *l)
{
	enum { MISSES = 4 };

	for (int i = 0; i < INJECT_STEPS; i++)
		for (int k = 0; c->steps[i].active && !l->run.struck[i] && k < nplaces; k++)
			if (places[k].at == c->steps[i].site && places[k].missed++ < MISSES)
				places[k].paired = false;
}

void learn(const struct one_case *c, const struct left *l)
{
	if (once)
		look_again(c, l);
	for (int i = 0; i < INJECT_SITES; i++) {
		const struct inject_site *s = &l->run.sites[i];
		struct one_case pair = *c;
		struct place *p;

		if (s->at == 0)
			continue;
		p = place(s->at, s->call);
		p->made += s->made;
		p->failed += s->failed;
		if (c->baseline || p->failed > 0 || p->paired || c->steps[1].active || !l->run.struck[0])
			continue;
		p->paired = true;
		pair.chain = false;
		for (int e = 0; e < inject_calls[s->call].nerrors && (e == 0 || !once); e++) {
			pair.steps[1] = (struct inject_step){
				.active = true, .site = s->at, .nth = 1, .error = inject_calls[s->call].errors[e]};
			add_case(&pair);
		}
	}
	if (c->chain && l->run.struck[0] && c->steps[0].nth < 5000) {
		struct one_case next = *c;

		next.steps[0].nth++;
		add_case(&next);
		next.chain = false;
		next.steps[0].persistent = true;
		add_case(&next);
	}
}
