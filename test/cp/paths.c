/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * paths.c - cp_paths DIR: opens beneath DIR, by openat2 and without it, what may be opened and what may not.  DIR has
 * in/file, and link, which leads to the directory that DIR is in.  Exits with 1 if the answer to one is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp/safe_path.h"

static const struct {
	const char *path;
	int error; /* 0: it is opened */
} cases[] = {{"in/file", 0},
             {"in", 0},
             {"", 0},
             {"in/none", ENOENT},
             {"../x", EINVAL},
             {"/etc", EINVAL},
             {"in/..", EINVAL},
             {"link", 0 /* the link itself */},
             {"link/in", ELOOP},
             {"link/x", ELOOP},
             {"in//file", EINVAL},
             {"in/file/x", ENOTDIR},
             {"in/./file", EINVAL}};

static const struct {
	const char *path, *to;
	bool stays;
} links[] = {{"l", "x", true},
             {"l", "../x", false},
             {"a/l", "../x", true},
             {"a/l", "../../x", false},
             {"l", "/x", false},
             {"l", "a/../x", false},
             {"l", "", false},
             {"l", "./x/./y", true},
             {"a/b/l", "../.././x", true},
             {"a/b/l", "../../..", false},
             {"l", ".", true},
             {"l", "..", false}};

static int wrong;

static void look(int root, bool walk_only)
{
	cp_safe_path_walk_only(walk_only);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = cp_safe_path_open(root, cases[i].path, O_PATH);
		int error = fd < 0 ? errno : 0, want = cases[i].error;

		/* A file on the way is no directory: without openat2 that is told as a link is. */
		if (error != want && !(walk_only && want == ENOTDIR && error == ELOOP)) {
			printf("%s%s: %s\n", cases[i].path, walk_only ? ", without openat2" : "", strerror(error));
			wrong++;
		}
		if (fd >= 0)
			close(fd);
	}
}

int main(int argc, char **argv)
{
	int root = argc == 2 ? open(argv[1], O_PATH | O_DIRECTORY) : -1;

	if (root < 0)
		return 2;
	look(root, false);
	look(root, true);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (cp_link_stays(links[i].path, links[i].to) != links[i].stays) {
			printf("link %s -> %s\n", links[i].path, links[i].to);
			wrong++;
		}
	printf("%d wrong\n", wrong);
	return wrong > 0 ? 1 : 0;
}
