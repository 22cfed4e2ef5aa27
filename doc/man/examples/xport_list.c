/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <xport.h>

int main(void)
{
	static const char *const states[] = {"ready", "absent", "misconfigured",
	                                     "not built"};
	struct xport_candidate list[64];
	int n = xport_list(NULL, list, sizeof(list[0]), 64);

	if (n < 0) {
		fprintf(stderr, "%s\n", xport_strerror(n));
		return 1;
	}
	for (int i = 0; i < n && i < 64; i++) {
		printf("%-12s %-13s %s\n", list[i].name, states[list[i].state],
		       list[i].reason);
		if (list[i].hint[0] != '\0')
			printf("%-12s %-13s %s\n", "", "", list[i].hint);
	}
	return 0;
}
