/* SPDX-License-Identifier: BSD-3-Clause */
/* walk.c - a file, or a tree. */
#include "tools/cp/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp/safe_path.h"

struct cp_level {
	char **names;
	size_t n, next;
	size_t path_len, as_len; /* of the directory's own */
	struct stat st;
};

bool cp_walk_begin(struct cp_walk *w, int root, const char *path, const char *as, bool recursive)
{
	*w = (struct cp_walk){.root = root, .recursive = recursive};
	if (strlen(path) >= sizeof(w->path) || strlen(as) >= sizeof(w->as))
		return false;
	strcpy(w->path, path);
	strcpy(w->as, as);
	return true;
}

static void free_names(struct cp_level *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
}

void cp_walk_end(struct cp_walk *w)
{
	while (w->depth > 0)
		free_names(&w->levels[--w->depth]);
	free(w->levels);
	w->levels = NULL;
}

/* ---- directories ---- */

static int walk_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool walk_is_ours(const char *name)
{
	static const char end[] = ".xport-part";
	size_t n = strlen(name);

	return name[0] == '.' && n >= sizeof(end) && strcmp(name + n - (sizeof(end) - 1), end) == 0;
}

static bool walk_add_name(struct cp_level *l, size_t *room, const char *name)
{
	if (l->n == *room) {
		size_t more = *room * 2 + 16;
		char **names = realloc(l->names, more * sizeof(*names));

		if (names == NULL)
			return false;
		l->names = names;
		*room = more;
	}
	l->names[l->n] = strdup(name);
	return l->names[l->n++] != NULL;
}

static bool walk_read_names(struct cp_level *l, DIR *dir)
{
	size_t room = 0;
	const struct dirent *d;

	for (errno = 0; (d = readdir(dir)) != NULL; errno = 0) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || walk_is_ours(d->d_name))
			continue;
		if (!walk_add_name(l, &room, d->d_name)) {
			l->n -= l->n > 0 && l->names[l->n - 1] == NULL;
			errno = ENOMEM;
			return false;
		}
	}
	if (errno != 0)
		return false;
	if (l->n > 0)
		qsort(l->names, l->n, sizeof(*l->names), walk_by_name);
	return true;
}

/* Opens the directory that w->path names, as a level more. */
static bool descend(struct cp_walk *w, const struct stat *st)
{
	struct cp_level *levels = realloc(w->levels, (w->depth + 1) * sizeof(*levels));
	struct cp_level *l;
	DIR *dir;
	int fd, error;
	bool good;

	if (levels == NULL)
		return false;
	w->levels = levels;
	l = &levels[w->depth];
	*l = (struct cp_level){.path_len = strlen(w->path), .as_len = strlen(w->as), .st = *st};
	fd = cp_safe_path_open(w->root, w->path, O_RDONLY | O_DIRECTORY);
	dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		error = errno;
		if (fd >= 0)
			close(fd);
		errno = error;
		return false;
	}
	good = walk_read_names(l, dir);
	error = errno;
	closedir(dir);
	if (good)
		w->depth++;
	else
		free_names(l);
	errno = error;
	return good;
}

/* ---- items ---- */

static bool walk_bad(struct cp_item *item, const char *what, int error)
{
	item->kind = CP_ITEM_BAD;
	snprintf(item->text, sizeof(item->text), "%s%s%s", what, error != 0 ? ": " : "",
	         error != 0 ? strerror(error) : "");
	return true;
}

static const char *special(mode_t mode)
{
	return S_ISFIFO(mode)   ? "named pipes are not copied"
	       : S_ISSOCK(mode) ? "sockets are not copied"
	                        : "devices are not copied";
}

static bool read_link(struct cp_item *item, int fd)
{
	ssize_t n = readlinkat(fd, "", item->text, sizeof(item->text));

	if (n < 0 || (size_t)n >= sizeof(item->text))
		return walk_bad(item, "reading the symbolic link", n < 0 ? errno : ENAMETOOLONG);
	item->text[n] = '\0';
	item->kind = CP_ITEM_LINK;
	return true;
}

static bool directory(struct cp_walk *w, struct cp_item *item)
{
	if (!w->recursive)
		return walk_bad(item, "it is a directory: use -r", 0);
	if (!descend(w, &item->st))
		return walk_bad(item, "reading the directory", errno);
	item->kind = CP_ITEM_DIR;
	return true;
}

/* What w->path names. */
static bool here(struct cp_walk *w, struct cp_item *item)
{
	int fd = cp_safe_path_open(w->root, w->path, O_PATH);

	item->path = w->path;
	item->as = w->as;
	if (fd < 0 || fstat(fd, &item->st) != 0)
		walk_bad(item, "reading its metadata", errno);
	else if (S_ISREG(item->st.st_mode))
		item->kind = CP_ITEM_FILE;
	else if (S_ISDIR(item->st.st_mode))
		directory(w, item);
	else if (S_ISLNK(item->st.st_mode))
		read_link(item, fd);
	else
		walk_bad(item, special(item->st.st_mode), 0);
	if (fd >= 0)
		close(fd);
	return true;
}

/* Appends a name; false: the path gets too long. */
static bool walk_append(char path[CP_PATH], size_t len, const char *name)
{
	const char *between = len > 0 ? "/" : "";
	int n = snprintf(path + len, CP_PATH - len, "%s%s", between, name);

	return n >= 0 && (size_t)n < CP_PATH - len;
}

bool cp_walk_next(struct cp_walk *w, struct cp_item *item)
{
	struct cp_level *l;

	if (!w->begun) {
		w->begun = true;
		return here(w, item);
	}
	if (w->depth == 0)
		return false;
	l = &w->levels[w->depth - 1];
	w->path[l->path_len] = '\0';
	w->as[l->as_len] = '\0';
	if (l->next < l->n) {
		const char *name = l->names[l->next++];
		bool fits = walk_append(w->path, l->path_len, name);

		fits = walk_append(w->as, l->as_len, name) && fits;
		item->path = w->path;
		item->as = w->as;
		return fits ? here(w, item) : walk_bad(item, "its path is longer than 4095 bytes", 0);
	}
	item->kind = CP_ITEM_DIREND;
	item->path = w->path;
	item->as = w->as;
	item->st = l->st;
	free_names(l);
	w->depth--;
	return true;
}
