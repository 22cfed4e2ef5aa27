/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay.c - fuzz_replay [DIR [TARGET]]: passes each file of DIR/TARGET/ to its target, then cut short and with bytes
 * changed, always in the same way. The default DIR is test/fuzz/corpus of the sources. A failure aborts; the last line
 * names the file. A single file instead of DIR, with TARGET, is passed as it is.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

enum { CUTS = 16, CHANGES = 48, FILE_MAX_BYTES = 1 << 20, FLOOD_MAX = 100000 };

static const struct {
	const char *name;
	int (*run)(const uint8_t *data, size_t size);
} targets[] = {
	{"key", fuzz_key},           {"hello", fuzz_hello}, {"settings", fuzz_settings},
	{"frame", fuzz_frame},       {"chan", fuzz_chan},   {"session", fuzz_session},
	{"services", fuzz_services}, {"ring", fuzz_ring},   {"cluster", fuzz_cluster},
};

static unsigned ran;

/* In a block of exactly its size. */
static void give(size_t target, const uint8_t *data, size_t len)
{
	uint8_t *exact = malloc(len > 0 ? len : 1);

	FUZZ_CHECK(exact != NULL);
	memcpy(exact, data, len);
	targets[target].run(exact, len);
	free(exact);
	ran++;
}

static uint32_t next_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

static void give_changed(size_t target, uint8_t *data, size_t len)
{
	uint32_t seed = 2463534242u;

	for (unsigned i = 0; i < CUTS && i < len; i++)
		give(target, data, len * i / CUTS);
	for (unsigned i = 0; i < CHANGES && len > 0; i++) {
		size_t at = next_random(&seed) % len;
		uint8_t before = data[at];

		data[at] = (uint8_t)next_random(&seed);
		give(target, data, len);
		data[at] = before;
	}
}

/* False: it cannot be read. */
static int one_file(size_t target, const char *path, int change)
{
	static uint8_t data[FILE_MAX_BYTES];
	FILE *f = fopen(path, "rb");
	size_t len;

	if (f == NULL)
		return 0;
	len = fread(data, 1, sizeof(data), f);
	fclose(f);
	printf("%s\n", path);
	fflush(stdout);
	give(target, data, len);
	if (change)
		give_changed(target, data, len);
	return 1;
}

static unsigned all_files(size_t target, const char *dir)
{
	struct dirent **list;
	char path[4096];
	unsigned files = 0;
	int n;

	snprintf(path, sizeof(path), "%s/%s", dir, targets[target].name);
	n = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s/%s", dir, targets[target].name, list[i]->d_name);
			files += (unsigned)one_file(target, path, 1);
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return files;
}

int main(int argc, char **argv)
{
	const char *src = getenv("top_srcdir");
	char dir[2048];
	struct stat st;
	int failed = 0;

	snprintf(dir, sizeof(dir), "%s/test/fuzz/corpus", src != NULL ? src : ".");
	if (argc > 1)
		snprintf(dir, sizeof(dir), "%s", argv[1]);
	for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++) {
		unsigned files;

		if (argc > 2 && strcmp(argv[2], targets[t].name) != 0)
			continue;
		ran = 0;
		files = stat(dir, &st) == 0 && S_ISREG(st.st_mode) && argc > 2 ? (unsigned)one_file(t, dir, 0)
		                                                               : all_files(t, dir);
		printf("%s: %s: %u files, %u inputs\n", files > 0 ? "ok" : "FAILED", targets[t].name, files, ran);
		failed |= files == 0;
	}
	if (argc < 2) {
		unsigned tried, most, taken = key_flips(&tried);

		printf("%s: keys with one or two bits flipped: %u of %u taken\n", taken == 0 ? "ok" : "FAILED", taken,
		       tried);
		failed |= taken != 0;
		most = frame_floods();
		printf("%s: a peer that takes no answers: %u operations held\n", most < FLOOD_MAX ? "ok" : "FAILED",
		       most);
		failed |= most >= FLOOD_MAX;
	}
	return failed;
}
