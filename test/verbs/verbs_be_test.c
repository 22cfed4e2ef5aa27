/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_be_test.c - the verbs back end alone, on a device of memory (fake.h): what no device does when it is asked to.
 * Each case prints "ok: NAME" or "FAILED: NAME" and why.
 */
#include <stdio.h>
#include <string.h>

#include "case.h"

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, t_##name},
	ALL_CASES(CASE)
#undef CASE
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int before = failures;

		fake_reset();
		memset(&core, 0, sizeof(core));
		memset(&err, 0, sizeof(err));
		err.size = sizeof(err);
		cases[i].run();
		printf("%s: %s\n", failures == before ? "ok" : "FAILED", cases[i].name);
	}
	return failures != 0;
}
