/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <xport.h>

int main(void)
{
	struct xport_variable list[32];
	int n = xport_variables(list, sizeof(list[0]), 32);

	if (n < 0) {
		fprintf(stderr, "%s\n", xport_strerror(n));
		return 1;
	}
	for (int i = 0; i < n && i < 32; i++) {
		const struct xport_variable *v = &list[i];

		printf("%s=%s%s\n", v->name,
		       v->value != NULL ? v->value : v->standard,
		       v->value != NULL ? "" : " (not set)");
		if (v->problem[0] != '\0')
			printf("    %s\n", v->problem);
	}
	return 0;
}
