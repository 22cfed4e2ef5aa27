/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_pmi_wire.h - the bytes of PMI-1 and PMI-2.
 *
 * A PMI-1 message is a line of words KEY=VALUE with spaces between them.  A PMI-2 message has its length in six characters,
 * and then items KEY=VALUE; in which a semicolon of the value is doubled.  Both begin with cmd=.
 */
#ifndef SVC_GROUP_PMI_WIRE_H
#define SVC_GROUP_PMI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SVC_PMI_MESSAGE_MAX = 16384, SVC_PMI2_HEAD = 6 };

/*
 * Finds the first message of `bytes`: *begin and *end are those of its text, *used is what it takes with head and end of line.
 * Returns 1, or 0 if bytes are missing, or -1 if this cannot become a message of less than SVC_PMI_MESSAGE_MAX bytes.
 */
int svc_pmi1_frame(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used);
int svc_pmi2_frame(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used);

/* Copies the value of a key. False: there is none, or it does not fit into `size` with its NUL. */
bool svc_pmi1_word(const char *text, const char *key, char *value, size_t size);
bool svc_pmi2_word(const char *text, const char *key, char *value, size_t size);

/* Writes 2 * len lower-case digits and a NUL. */
void svc_pmi_to_hex(const uint8_t *bytes, size_t len, char *hex);
/* Reads digits. Returns the number of bytes, or -1 if the text is not hexadecimal or too long. */
int svc_pmi_from_hex(const char *hex, uint8_t *bytes, size_t size);

#endif
