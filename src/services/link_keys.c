/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys that a link keeps. */
#include "services/link.h"

#include <stdlib.h>
#include <string.h>

#include "services/last_error.h"

/* ---- on the link's endpoints ---- */

static bool key_is_void(const struct xport_link_rkey *k)
{
	return k->len == 0 || k->status == XPORT_ERR_STALE_KEY || k->status == XPORT_ERR_BAD_KEY;
}

int svc_link_key_unpack(struct xport_link_rkey *k)
{
	if (k->rkey == NULL && !key_is_void(k))
		k->status = xport_rkey_unpack(k->link->ep->ep, k->bytes, k->len, &k->rkey);
	return key_is_void(k) ? XPORT_ERR_STALE_KEY : k->status;
}

int svc_link_key_check(struct xport_link_rkey *k, const char *operation)
{
	int r = svc_link_key_unpack(k);

	if (r == XPORT_OK)
		return r;
	if (!key_is_void(k))
		return svc_pass(k->link->links->x, r, operation);
	return svc_fail(r, operation, "give it the new bytes by xport_link_rkey_set or xport_links_entry",
	                "the key is void: %s",
	                k->len == 0                        ? "it has no bytes yet"
	                : k->status == XPORT_ERR_STALE_KEY ? "the peer is another instance than the one that packed it"
	                                                   : "its bytes are damaged, or are not a key");
}

/* One that fails because memory is short is unpacked when it is used. */
void svc_link_keys_unpack(struct xport_link *link)
{
	for (struct xport_link_rkey *k = link->keys; k != NULL; k = k->next)
		(void)svc_link_key_unpack(k);
}

void svc_link_keys_forget(struct xport_link *link)
{
	for (struct xport_link_rkey *k = link->keys; k != NULL; k = k->next) {
		xport_rkey_destroy(k->rkey);
		k->rkey = NULL;
		k->status = XPORT_OK;
	}
}

uint32_t svc_link_keys_void(const struct xport_link *link)
{
	uint32_t n = 0;

	for (const struct xport_link_rkey *k = link->keys; k != NULL; k = k->next)
		n += key_is_void(k);
	return n;
}

/* ---- bytes ---- */

/* Gives the key its bytes; after an error it is as it was. */
static int key_set(struct xport_link_rkey *k, const void *bytes, size_t len, const char *operation)
{
	struct xport_link *link = k->link;
	xport_rkey *rkey;
	int r;

	if (link->state == XPORT_LINK_OPEN) {
		r = xport_rkey_unpack(link->ep->ep, bytes, len, &rkey);
		if (r != XPORT_OK)
			return svc_pass(link->links->x, r, operation);
		xport_rkey_destroy(k->rkey);
		k->rkey = rkey;
	}
	if (k->len != len || memcmp(k->bytes, bytes, len) != 0)
		k->sets++;
	memcpy(k->bytes, bytes, len);
	k->len = len;
	k->status = XPORT_OK;
	return XPORT_OK;
}

static void key_remove(struct xport_link_rkey *k)
{
	*k->at = k->next;
	if (k->next != NULL)
		k->next->at = k->at;
	k->link->nkeys--;
	xport_rkey_destroy(k->rkey);
	free(k);
}

void svc_link_keys_free(struct xport_link *link)
{
	while (link->keys != NULL)
		key_remove(link->keys);
}

/* ---- the interface ---- */

static int rkey_add(struct xport_link *link, const void *name, size_t name_len, const void *bytes, size_t len,
                    xport_link_rkey **key)
{
	struct xport_link_rkey *k;
	int r;

	if (link->state == XPORT_LINK_ENDING || link->state == XPORT_LINK_OVER)
		return svc_link_not_up(link, "xport_link_rkey_add");
	k = calloc(1, sizeof(*k));
	if (k == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_link_rkey_add", NULL, "out of memory");
	k->link = link;
	if (name_len > 0)
		memcpy(k->name, name, name_len);
	k->name_len = name_len;
	r = len == 0 ? XPORT_OK : key_set(k, bytes, len, "xport_link_rkey_add");
	if (r != XPORT_OK) {
		free(k);
		return r;
	}
	k->next = link->keys;
	k->at = &link->keys;
	if (k->next != NULL)
		k->next->at = &k->next;
	link->keys = k;
	link->nkeys++;
	*key = k;
	return XPORT_OK;
}

int xport_link_rkey_add(xport_link *link, const void *name, size_t name_len, const void *bytes, size_t len,
                        xport_link_rkey **key)
{
	int r;

	if (link == NULL || key == NULL || (bytes == NULL && len > 0) || (name == NULL && name_len > 0))
		return svc_fail(XPORT_ERR_INVALID, "xport_link_rkey_add", NULL, "an argument is NULL");
	if (len > XPORT_LINK_KEY_MAX || name_len > XPORT_LINK_NAME_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_rkey_add", NULL,
		                "a key may have 2048 bytes, not %zu, and its name 255, not %zu", len, name_len);
	pthread_mutex_lock(&link->links->lock);
	r = rkey_add(link, name, name_len, bytes, len, key);
	pthread_mutex_unlock(&link->links->lock);
	return r;
}

int xport_link_rkey_set(xport_link_rkey *k, const void *bytes, size_t len)
{
	int r;

	if (k == NULL || bytes == NULL || len == 0 || len > XPORT_LINK_KEY_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_rkey_set", NULL,
		                "an argument is NULL, or the key does not have 1 to 2048 bytes but %zu", len);
	pthread_mutex_lock(&k->link->links->lock);
	if (k->link->state == XPORT_LINK_ENDING || k->link->state == XPORT_LINK_OVER)
		r = svc_link_not_up(k->link, "xport_link_rkey_set");
	else
		r = key_set(k, bytes, len, "xport_link_rkey_set");
	pthread_mutex_unlock(&k->link->links->lock);
	return r;
}

int xport_link_rkey_get(xport_link_rkey *k, xport_rkey **rkey)
{
	int r = XPORT_OK;

	if (k == NULL || rkey == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_rkey_get", NULL, "an argument is NULL");
	pthread_mutex_lock(&k->link->links->lock);
	if (k->link->state != XPORT_LINK_OPEN || !k->link->announced)
		r = svc_link_not_up(k->link, "xport_link_rkey_get");
	else if ((r = svc_link_key_check(k, "xport_link_rkey_get")) == XPORT_OK)
		*rkey = k->rkey;
	pthread_mutex_unlock(&k->link->links->lock);
	return r;
}

int xport_link_rkey_remove(xport_link_rkey *k)
{
	struct xport_links *links;
	int r = XPORT_OK;

	if (k == NULL)
		return XPORT_OK;
	links = k->link->links;
	pthread_mutex_lock(&links->lock);
	if (k->users > 0)
		r = svc_fail(XPORT_ERR_BUSY, "xport_link_rkey_remove", "wait for their XPORT_LINK_DONE",
		             "%u repeatable operations with the key have not ended", k->users);
	else
		key_remove(k);
	pthread_mutex_unlock(&links->lock);
	return r;
}

int xport_links_entry(xport_links *links, const void *name, size_t len, const struct xport_directory_entry *entry)
{
	int n = 0;

	if (links == NULL || name == NULL || len == 0 || len > XPORT_LINK_NAME_MAX || entry == NULL ||
	    entry->size != sizeof(*entry) || entry->key_len == 0 || entry->key_len > XPORT_LINK_KEY_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_links_entry", NULL,
		                "an argument is NULL, the name does not have 1 to 255 bytes, or the entry has no key");
	pthread_mutex_lock(&links->lock);
	for (struct xport_link *link = links->list; link != NULL; link = link->next)
		for (struct xport_link_rkey *k = link->keys; k != NULL; k = k->next)
			if (k->name_len == len && memcmp(k->name, name, len) == 0 && link->state != XPORT_LINK_ENDING &&
			    link->state != XPORT_LINK_OVER &&
			    key_set(k, entry->key, entry->key_len, "xport_links_entry") == XPORT_OK)
				n++;
	pthread_mutex_unlock(&links->lock);
	return n;
}
