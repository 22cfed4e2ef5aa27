/* SPDX-License-Identifier: BSD-3-Clause */
/* info_env.c - prints the environment variables as text. */
#include <stdio.h>

#include "tools/info.h"

static void env_show_one(const struct xport_variable *v)
{
	const char *value = v->value != NULL ? v->value : v->standard;
	bool standard = *v->standard != '\0';

	printf("%s=%s  (%s)\n", v->name, value, v->value != NULL ? "environment" : standard ? "default" : "not set");
	printf("    %s\n", v->text);
	printf("    %s: %s; %s%s\n", v->type, v->range, standard ? "default: " : "no default", v->standard);
	if (v->problem[0] != '\0')
		printf("    problem: %s\n", v->problem);
}

void info_show_env(const struct info *info)
{
	for (int i = 0; i < info->nvariables; i++)
		env_show_one(&info->variables[i]);
}
