/* SPDX-License-Identifier: BSD-3-Clause */
/* module_load.h - loading the module of a back end, and with it the libraries of a network's stack. */
#ifndef XPI_CORE_CONFIG_MODULE_LOAD_H
#define XPI_CORE_CONFIG_MODULE_LOAD_H

#include <stddef.h>

/*
 * The stacks read the environment by themselves, and UCX a file ucx.conf in the home and in the current directory, among
 * them what names plug-ins and commands.  In a program with more rights than its caller (AT_SECURE) they must not: there
 * the variables of the stacks are removed for good, and the module is loaded by a thread whose current directory is the
 * root, with no home.
 */

/* Removes those variables.  Before what a stack is to find is set. */
void xpi_load_prepare(void);
/* dlopen of an absolute path; NULL: why it failed is in `why`. */
void *xpi_load(const char *path, char *why, size_t len);

#endif
