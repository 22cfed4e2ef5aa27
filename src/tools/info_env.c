/* SPDX-License-Identifier: BSD-3-Clause */
/* info_env.c - the variables of the environment, for people. */
#include <stdio.h>

#include "tools/info.h"

static void show_one(const struct xport_variable *v)
{
	const char *value = v->value != NULL ? v->value : v->standard;

	printf("%s=%s  (%s)\n", v->name, value, v->value != NULL ? "environment" : "default");
	printf("    %s\n", v->text);
	printf("    %s: %s; default: %s\n", v->type, v->range, *v->standard != '\0' ? v->standard : "none");
	if (v->problem[0] != '\0')
		printf("    problem: %s\n", v->problem);
}

void info_show_env(const struct info *info)
{
	for (int i = 0; i < info->nvariables; i++)
		show_one(&info->variables[i]);
}
