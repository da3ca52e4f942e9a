/* SPDX-License-Identifier: GPL-2.0 */
/*
 * folio-workload: what the kernel's treatment of large folios does for real programs.
 *
 *   process.c    programs that are started, watched and ended; folio sizes for all
 *   client.c     a client of Redis on a Unix socket
 *   redis.c, usemem.c, jemalloc.c, residency.c    the workloads
 *
 * Clock, settings, snapshots of memory and the report are folio-measure's.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "measure.h"

#define PROGRAMS	"/wf"		/* where the programs are */
#define WORKDIR		"/tmp/workload"	/* what they write; emptied for each run */

/* Folio sizes that anonymous memory comes in; a page's size: THP off. */
extern const unsigned int workload_sizes[3];
bool size_wanted(unsigned int kb);

/* ---- process.c --------------------------------------------------------- */

/* A program that runs; what it prints goes to WORKDIR/log. */
struct program {
	const struct where *w;	/* the case its failure is filed under */
	const char *name;
	pid_t pid;
};

/* What a program that has ended used, with its children that it waited for. */
struct used {
	uint64_t insns;		/* from start to end, by the clock */
	uint64_t faults;	/* that needed no I/O */
};

/* What a process' anonymous memory is in. */
struct memory {
	double large_share;	/* share of it in folios of 64 KiB and more */
	double folios_per_mib;	/* 256 of 4 KiB, half a one of 2 MiB */
};

bool sizes_always(unsigned int kb);
bool program_start(struct program *p, const struct where *w, char *const argv[]);
bool program_end(struct program *p, struct used *used);
void program_kill(struct program *p);
bool program_run(const struct where *w, char *const argv[], struct used *used);
const char *program_log(void);

uint64_t process_faults(pid_t pid);
bool process_has_memory(pid_t pid);
pid_t process_child(pid_t pid);
struct memory process_memory(pid_t pid);
size_t anon_kb(void);

void rows_ops(const struct where *w, const struct series *per_op);

/* ---- client.c ---------------------------------------------------------- */

#define VALUE_BYTES	1000	/* with the allocator's rounding, four to a page */

struct client {
	int fd;
	uint32_t *version;	/* how often each key was set */
	size_t keys;
	char *buf;
};

bool client_open(struct client *c, const char *path, size_t keys);
void client_close(struct client *c);
bool client_load(struct client *c);
bool client_set(struct client *c, uint32_t key);
bool client_verify(struct client *c, uint32_t key);
bool client_command(struct client *c, const char *command, char *reply, size_t len);
double client_info(struct client *c, const char *section, const char *field);

/* ---- the workloads ----------------------------------------------------- */

void run_redis(void);
void run_valkey(void);
void run_usemem(void);
void run_jemalloc(void);
void run_residency(void);

#endif
