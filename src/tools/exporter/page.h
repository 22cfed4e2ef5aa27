/* SPDX-License-Identifier: BSD-3-Clause */
/* page.h - the texts of all publishers as one page. */
#ifndef EXPORTER_PAGE_H
#define EXPORTER_PAGE_H

#include "tools/exporter/buffer.h"
#include "tools/exporter/publishers.h"

/* Writes the page: each family once, with the samples of all publishers, each with the labels of its publisher. */
void ex_page_write(struct ex_buffer *page, const struct ex_publishers *p);

#endif
