/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_plot.c - draws a plot over the sizes with gnuplot: latencies at the top, rates at the bottom. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf.h"

static const struct {
	const char *ending, *terminal;
} kinds[] = {{".png", "pngcairo size 1000,800"}, {".svg", "svg size 1000,800"}, {".pdf", "pdfcairo size 10,8"}};

static const char *terminal_of(const char *file)
{
	const char *dot = strrchr(file, '.');

	for (size_t i = 0; dot != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(dot, kinds[i].ending) == 0)
			return kinds[i].terminal;
	return NULL;
}

static bool have_gnuplot(void)
{
	const char *path = getenv("PATH");
	char name[4096];

	for (const char *p = path, *end; p != NULL; p = *end != '\0' ? end + 1 : NULL) {
		int n;

		end = strchrnul(p, ':');
		n = snprintf(name, sizeof(name), "%.*s/gnuplot", (int)(end - p), p);
		if (n < (int)sizeof(name) && access(name, X_OK) == 0)
			return true;
	}
	return false;
}

bool perf_plot_name(const char *file, char *text, size_t len)
{
	/* Its name goes into a line for gnuplot. */
	if (strpbrk(file, "'\n") != NULL)
		snprintf(text, len, "--plot=%s: the name must not have a quotation mark or newline", file);
	else if (terminal_of(file) == NULL)
		snprintf(text, len, "--plot=%s: the name must end in .png, .svg or .pdf", file);
	else
		return true;
	return false;
}

bool perf_plot_ready(char *text, size_t len)
{
	if (have_gnuplot())
		return true;
	snprintf(text, len, "--plot needs gnuplot: install it (Debian: gnuplot-nox)");
	return false;
}

static const char *string(json_t *row, const char *name)
{
	return json_string_value(json_object_get(row, name));
}

static json_t *figures(json_t *row, bool latency)
{
	return json_object_get(row, latency ? "latency_ns" : "throughput");
}

/* A block of data for each test that has rows of this kind; returns how many. */
static int write_data(FILE *to, json_t *results, bool latency)
{
	const char *test = NULL;
	json_t *row;
	size_t i;
	int n = 0;

	json_array_foreach(results, i, row)
	{
		json_t *f = figures(row, latency);
		double y = json_number_value(json_object_get(f, latency ? "p50" : "bytes_per_second"));
		double tail = json_number_value(json_object_get(f, "p99"));

		if (f == NULL)
			continue;
		if (test == NULL || strcmp(test, string(row, "test")) != 0) {
			fprintf(to, "%s$%s%d << EOD\n", n > 0 ? "EOD\n" : "", latency ? "L" : "B", n);
			test = string(row, "test");
			n++;
		}
		fprintf(to, "%lld %.6g %.6g\n", (long long)json_integer_value(json_object_get(row, "size")),
		        latency ? y / 1e3 : y / 1e6, tail / 1e3);
	}
	if (n > 0)
		fprintf(to, "EOD\n");
	return n;
}

static void write_curves(FILE *to, json_t *results, bool latency)
{
	const char *test = NULL;
	json_t *row;
	size_t i;
	int n = 0;

	fprintf(to, "set ylabel '%s'\nplot", latency ? "latency [us]" : "bandwidth [MB/s]");
	json_array_foreach(results, i, row)
	{
		if (figures(row, latency) == NULL || (test != NULL && strcmp(test, string(row, "test")) == 0))
			continue;
		test = string(row, "test");
		fprintf(to, "%s $%s%d using 1:2 with linespoints lc %d title '%s'", n > 0 ? "," : "",
		        latency ? "L" : "B", n, n + 1, test);
		if (latency)
			fprintf(to, ", $L%d using 1:3 with lines dt 2 lc %d title '%s, 99 %%'", n, n + 1, test);
		n++;
	}
	fprintf(to, "\n");
}

/* Both panels have the same margins and sizes, whatever their labels and legends need: so one size is at one place. */
static void write_frame(FILE *to, json_t *results)
{
	double low = 0, high = 0;
	json_t *row;
	size_t i;

	json_array_foreach(results, i, row)
	{
		double size = json_number_value(json_object_get(row, "size"));

		if (size > 0 && (low == 0 || size < low))
			low = size;
		high = size > high ? size : high;
	}
	fprintf(to, "set lmargin at screen 0.12\nset rmargin at screen 0.76\n");
	if (low > 0)
		fprintf(to, "set xrange [%g:%g]\n", low / 1.2, high * 1.2);
}

static void write_script(FILE *to, const char *file, const json_t *whole)
{
	json_t *results = json_object_get(whole, "results"), *client = json_object_get(whole, "client");
	int nl = write_data(to, results, true), nb = write_data(to, results, false);
	const char *backend = json_string_value(json_object_get(client, "backend"));

	fprintf(to,
	        "set terminal %s\nset output '%s'\nset logscale xy\nset grid\nset key outside noenhanced\n"
	        "set xlabel 'bytes'\nset multiplot layout %d,1 title 'xport\\_perf, %s'\n",
	        terminal_of(file), file, (nl > 0) + (nb > 0), backend != NULL ? backend : "?");
	write_frame(to, results);
	if (nl > 0)
		write_curves(to, results, true);
	if (nb > 0)
		write_curves(to, results, false);
	fprintf(to, "unset multiplot\n");
}

bool perf_plot_write(const char *file, const json_t *whole, char *text, size_t len)
{
	FILE *to;
	int rc;

	/* A gnuplot that ends early is an error here, not the end of this process. */
	signal(SIGPIPE, SIG_IGN);
	to = popen("gnuplot", "we");
	if (to != NULL) {
		write_script(to, file, whole);
		rc = pclose(to);
		if (rc == 0 && access(file, R_OK) == 0)
			return true;
	}
	snprintf(text, len, "--plot=%s: gnuplot failed to write it", file);
	return false;
}
