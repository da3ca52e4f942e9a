// SPDX-License-Identifier: GPL-2.0
/*
 * redis, valkey: SETs before, while and after a snapshot is saved (BGSAVE).
 *
 * The server forks to save. Until the child's exit a write fault must copy (path 2);
 * after it, what has not been copied is exclusive again (path 1). One client sends one
 * SET at a time and waits for the answer; keys are drawn uniformly or by Zipf's law.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workload.h"

#define SOCKET		WORKDIR "/redis.sock"
#define MOST_OPS	1000000		/* of one phase, a bound on memory */
#define GLANCE		8		/* SETs between two looks at the child */

enum phase { BEFORE, SAVE, AFTER, PHASES };

static const char *const cases[][PHASES] = {
	{ "uniform-before", "uniform-save", "uniform-after" },
	{ "zipf-before", "zipf-save", "zipf-after" },
};

/* What is measured of a phase, over the repeats. */
struct figures {
	struct series per_op, faults, p50, p99, p999, max, large, folios;
	struct series ops, cow, fork, peak;	/* of the phase "save" */
};

/* One run of a server. */
struct run {
	struct where w;
	struct program server;
	struct client client;
	struct pattern zipf;		/* a list of keys; uniform ones are drawn as needed */
	bool by_zipf;
	size_t at;			/* in the list */
	uint64_t rng;
	uint32_t *sample;		/* latencies of the phase at work */
	pid_t child;
};

static uint32_t key_draw(struct run *r)
{
	if (r->by_zipf)
		return r->zipf.page[r->at++ % r->zipf.n];
	/* xorshift64*, as in pattern.c */
	r->rng ^= r->rng >> 12;
	r->rng ^= r->rng << 25;
	r->rng ^= r->rng >> 27;
	return (uint32_t)((r->rng * 2685821657736338717ULL >> 33) % r->client.keys);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* The latency that the share @q of the SETs stays within. */
static double percentile(const uint32_t *sorted, size_t n, double q)
{
	size_t i = (size_t)((double)n * q);

	return sorted[i < n ? i : n - 1];
}

static bool lost(struct run *r, const char *what)
{
	/* the server's own last words say more, if it has ended */
	if (r->server.pid && process_has_memory(r->server.pid))
		fail(&r->w, "%s; the server's last: %s", what, program_log());
	else
		program_end(&r->server, NULL);
	program_kill(&r->server);
	return false;
}

/*
 * Send SETs: @ops of them, or with 0 for as long as the child lives. The clock is
 * stopped while we look at other things than the server.
 */
static bool phase(struct run *r, size_t ops, struct figures *f)
{
	uint64_t faults = process_faults(r->server.pid), busy = 0, from, to;
	size_t n, peak = anon_kb(), kb;
	struct memory memory;

	for (n = 0; ops ? n < ops : n < MOST_OPS; n++) {
		uint32_t key = key_draw(r);

		if (!ops && n % GLANCE == 0 && !process_has_memory(r->child))
			break;
		if (n % 4096 == 0)
			progress(&r->w);
		if (n % 512 == 0) {
			kb = anon_kb();
			peak = kb > peak ? kb : peak;
		}
		from = now();
		if (!client_set(&r->client, key))
			return lost(r, "a SET failed");
		to = now();
		busy += elapsed(from, to);
		r->sample[n] = (uint32_t)elapsed(from, to);
	}
	if (!n)
		return lost(r, "the snapshot was saved before the first SET");
	faults = process_faults(r->server.pid) - faults;
	qsort(r->sample, n, sizeof(*r->sample), by_value);
	series_add(&f->per_op, (double)busy / (double)n);
	series_add(&f->faults, (double)faults / (double)n);
	series_add(&f->p50, percentile(r->sample, n, 0.5));
	series_add(&f->p99, percentile(r->sample, n, 0.99));
	series_add(&f->p999, percentile(r->sample, n, 0.999));
	series_add(&f->max, r->sample[n - 1]);
	memory = process_memory(r->server.pid);
	series_add(&f->large, memory.large_share);
	series_add(&f->folios, memory.folios_per_mib);
	series_add(&f->ops, (double)n);
	series_add(&f->peak, (double)peak);
	return true;
}

/* Have the server fork and save, with SETs until its child has ended. */
static bool save(struct run *r, struct figures *f)
{
	char reply[256];
	unsigned int i;

	if (!client_command(&r->client, "BGSAVE", reply, sizeof(reply)))
		return lost(r, "BGSAVE failed");
	r->child = process_child(r->server.pid);
	if (!r->child)
		return lost(r, "BGSAVE forked no child");
	if (!phase(r, 0, f))
		return false;
	for (i = 0; client_info(&r->client, "persistence", "rdb_bgsave_in_progress") != 0; i++) {
		if (i == 1000)
			return lost(r, "the server does not see its child's end");
		usleep(20000);
	}
	if (client_info(&r->client, "persistence", "rdb_saves") != 1)
		return lost(r, "the snapshot was not saved");
	series_add(&f->cow, client_info(&r->client, "persistence", "rdb_last_cow_size") / 1024);
	series_add(&f->fork, client_info(&r->client, "stats", "latest_fork_usec"));
	return true;
}

/* No write may be lost, whatever was shared, copied or reused. */
static bool verify(struct run *r)
{
	size_t key;

	for (key = 0; key < r->client.keys; key += 61)
		if (!client_verify(&r->client, (uint32_t)key))
			return lost(r, "a key has not the value that was set last");
	return true;
}

static bool server_run(struct run *r, const char *program, size_t keys,
		       struct figures f[PHASES])
{
	char *const argv[] = {
		(char *)program, "--port", "0", "--unixsocket", SOCKET, "--dir", WORKDIR,
		"--save", "", "--appendonly", "no", "--rdbcompression", "no",
		"--disable-thp", "no", NULL,
	};
	bool ok = false;

	unlink(SOCKET);
	if (!program_start(&r->server, &r->w, argv))
		return false;
	if (!client_open(&r->client, SOCKET, keys))
		return lost(r, "no server listens");
	r->rng = 0x9e3779b97f4a7c15ULL;
	r->at = 0;
	if (!client_load(&r->client))
		lost(r, "the data set could not be loaded");
	else
		ok = phase(r, keys / 16, &f[BEFORE]) && save(r, &f[SAVE]) &&
		     phase(r, keys / 4, &f[AFTER]) && verify(r);
	client_close(&r->client);
	program_kill(&r->server);
	unlink(WORKDIR "/dump.rdb");
	return ok;
}

static void rows(const struct where *w, enum phase p, const struct figures *f)
{
	rows_ops(w, &f->per_op);
	row_series(w, "faults_per_op", &f->faults);
	row_series(w, "p50", &f->p50);
	row_series(w, "p99", &f->p99);
	row_series(w, "p999", &f->p999);
	row_series(w, "max", &f->max);
	row_series(w, "large_share", &f->large);
	row_series(w, "folios_per_mib", &f->folios);
	row_series(w, "peak_kb", &f->peak);
	if (p != SAVE)
		return;
	row_series(w, "cow_kb", &f->cow);
	row_series(w, "fork_us", &f->fork);
	row_series(w, "sets", &f->ops);
}

static void servers(const char *experiment, const char *program)
{
	size_t keys = opt.memory / VALUE_BYTES;
	unsigned int size, dist, i, p;
	struct run r;

	memset(&r, 0, sizeof(r));
	r.w.experiment = experiment;
	r.w.bytes = keys * VALUE_BYTES;
	r.sample = scratch(MOST_OPS * sizeof(*r.sample));
	if (!pattern_make(&r.zipf, "zipf", keys))
		return;
	for (size = 0; size < ARRAY_SIZE(workload_sizes); size++) {
		r.w.kb = workload_sizes[size];
		if (!size_wanted(r.w.kb))
			continue;
		for (dist = 0; dist < ARRAY_SIZE(cases); dist++) {
			struct figures f[PHASES] = { 0 };

			r.by_zipf = dist == 1;
			r.w.name = cases[dist][AFTER];
			for (i = 0; i < opt.repeats; i++) {
				progress(&r.w);
				sizes_always(r.w.kb);
				if (!server_run(&r, program, keys, f))
					break;
			}
			for (p = 0; p < PHASES && i == opt.repeats; p++) {
				r.w.name = cases[dist][p];
				rows(&r.w, p, &f[p]);
			}
		}
	}
	pattern_free(&r.zipf);
	munmap(r.sample, MOST_OPS * sizeof(*r.sample));
}

/**
 * run_redis - the workload "redis"
 */
void run_redis(void)
{
	servers("redis", "redis-server");
}

/**
 * run_valkey - the workload "valkey"
 */
void run_valkey(void)
{
	servers("valkey", "valkey-server");
}
