/* SPDX-License-Identifier: BSD-3-Clause */
#include "table.h"

#include <stdlib.h>

#include "board.h"

static int by_value(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

static int by_ratio(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

/* Of sorted values. */
static double quantile_ms(const int32_t *us, unsigned n, unsigned percent)
{
	return us[(n - 1) * percent / 100] / 1000.0;
}

static void write_way(FILE *f, const char *backend, enum kl_way way, struct kl_figures *g)
{
	if (g->kills == 0)
		return;
	fprintf(f, "| %s | %s | %llu | ", backend, kl_way_names[way], (unsigned long long)g->kills);
	if (g->ndetect) {
		qsort(g->detect_us, g->ndetect, sizeof(g->detect_us[0]), by_value);
		fprintf(f, "%.1f | %.1f | %.1f | ", quantile_ms(g->detect_us, g->ndetect, 50),
		        quantile_ms(g->detect_us, g->ndetect, 99), quantile_ms(g->detect_us, g->ndetect, 100));
	} else {
		fprintf(f, "- | - | - | ");
	}
	fprintf(f, "%llu | %llu | %llu |\n", (unsigned long long)g->in_flight, (unsigned long long)g->posted,
	        (unsigned long long)g->ended);
}

static void write_crew(FILE *f, struct kl_board *b)
{
	long kib = (b->heap_last - b->heap_half) / 1024, large = (b->large_last - b->large_half) / 1024;

	if (b->rounds_all == 0)
		return;
	fprintf(f, "| %s, %s | %u | %d | %d | %ld and %ld | %ld | ", b->backend, b->silent ? "silent" : "others",
	        b->rounds_all, b->fds_more, b->shm_more, kib, large, b->rss_last - b->rss_half);
	if (b->nreconnect) {
		qsort(b->reconnect_us, b->nreconnect, sizeof(b->reconnect_us[0]), by_value);
		fprintf(f, "%.1f / %.1f | ", quantile_ms(b->reconnect_us, b->nreconnect, 50),
		        quantile_ms(b->reconnect_us, b->nreconnect, 100));
	} else {
		fprintf(f, "- | ");
	}
	if (b->nratio) {
		qsort(b->ratio, b->nratio, sizeof(b->ratio[0]), by_ratio);
		fprintf(f, "%.0f %% of %u |\n", 100.0 * b->ratio[b->nratio / 2], b->nratio);
	} else {
		fprintf(f, "- |\n");
	}
}

void table_write(FILE *f, struct kl_board *const *boards, int n)
{
	unsigned long long kills = 0;

	fprintf(f, "\n| provider | end | times | seen after, ms: median | 99 %% | most | in flight then | operations | "
	           "completed once |\n|---|---|---|---|---|---|---|---|---|\n");
	for (int i = 0; i < n; i++)
		for (int way = 0; way < KL_WAYS; way++) {
			write_way(f, boards[i]->backend, (enum kl_way)way, &boards[i]->figures[way]);
			kills += boards[i]->figures[way].kills;
		}
	fprintf(f, "\n| survivor of | ends | descriptors more | files more | heap more in the second half, KiB: small "
	           "and large blocks | "
	           "resident, KiB | new connection, ms: median / most | third peer's rate |\n"
	           "|---|---|---|---|---|---|---|---|\n");
	for (int i = 0; i < n; i++)
		write_crew(f, boards[i]);
	for (int i = 0; i < n; i++)
		if (boards[i]->broken)
			fprintf(f,
			        "\n%s: %u times a victim was killed while it wrote into the survivor's queue of UCX, "
			        "which "
			        "read nothing any more.\n",
			        boards[i]->backend, boards[i]->broken);
	fprintf(f, "\nkill_check: %llu ends\n", kills);
}
