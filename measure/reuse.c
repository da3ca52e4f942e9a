// SPDX-License-Identifier: GPL-2.0
/*
 * reuse: write memory that a fork has made read-only and whose child is gone.
 *
 * Every page is exclusive again, so each fault only makes PTEs writable:
 * "faults" and "insns" tell how many per fault and at what price. insns is the
 * write loop less the same loop over the memory it has made writable, so the
 * stores' own cost is not in it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

static const char *const cases[] = {
	"seq", "random", "memset", "store-64k", "store-2m", "random-16th", "stride-256k",
};

static const unsigned int sizes[] = { 64, 1024, 2048 };

/* Fresh memory for each pass: nothing is learnt from the one before. */
static bool prepare(struct region *r, const struct where *w)
{
	if (!region_alloc(r, w, MAP_BY_PTES))
		return false;
	if (!fork_and_wait()) {
		fail(w, "no child");
		region_free(r);
		return false;
	}
	return true;
}

static void one(const struct where *w, const struct pattern *p)
{
	struct series insns = { 0 }, faults = { 0 };
	struct latency lat;
	struct region r;
	uint64_t first, again, before, after;
	unsigned int i, repeats = opt.repeats + (p->n < 1000 ? 2 : 0);

	progress(w);
	/* of few stores, a timer tick is a large part */
	for (i = 0; i < repeats; i++) {
		if (!prepare(&r, w))
			return;
		minor_faults();
		before = minor_faults();
		first = pattern_write(p, r.base);
		after = minor_faults();
		again = pattern_write(p, r.base);
		if (minor_faults() != after) {
			fail(w, "the memory was not writable after it was written");
			region_free(&r);
			return;
		}
		series_add(&insns, first > again ? (double)(first - again) : 0);
		series_add(&faults, (double)(after - before));
		region_free(&r);
	}
	latency_init(&lat, p->n);
	for (i = 0; i < opt.repeats; i++) {
		if (!prepare(&r, w))
			goto out;
		pattern_time(p, r.base, lat.sample);
		region_free(&r);
	}
	row_series(w, "insns", &insns);
	row_series(w, "faults", &faults);
	latency_rows(&lat, w);
out:
	latency_free(&lat);
}

#define THREADS	8

struct worker {
	pthread_t thread;
	struct pattern part;
	char *base;
	pthread_barrier_t *start;
	pthread_barrier_t *stop;
};

static void *work(void *arg)
{
	struct worker *k = arg;

	pthread_barrier_wait(k->start);
	pattern_write(&k->part, k->base);
	pthread_barrier_wait(k->stop);
	return NULL;
}

/* All threads at once, each a random eighth of all pages; time on the wall. */
static uint64_t threads_write(const struct pattern *p, char *base, uint64_t *faults)
{
	pthread_barrier_t start, stop;
	struct worker k[THREADS];
	size_t share = p->n / THREADS;
	uint64_t from, to, before;
	unsigned int i;

	pthread_barrier_init(&start, NULL, THREADS + 1);
	pthread_barrier_init(&stop, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++) {
		k[i].part = *p;
		k[i].part.page = p->page + i * share;
		k[i].part.n = share;
		k[i].base = base;
		k[i].start = &start;
		k[i].stop = &stop;
		if (pthread_create(&k[i].thread, NULL, work, &k[i])) {
			perror("folio-measure: pthread_create");
			_exit(1);
		}
	}
	usleep(10000);
	before = minor_faults();
	from = now();
	pthread_barrier_wait(&start);
	pthread_barrier_wait(&stop);
	to = now();
	*faults = minor_faults() - before;
	for (i = 0; i < THREADS; i++)
		pthread_join(k[i].thread, NULL);
	pthread_barrier_destroy(&start);
	pthread_barrier_destroy(&stop);
	return elapsed(from, to);
}

static void threads(const struct where *w, const struct pattern *p)
{
	struct series first = { 0 }, again = { 0 }, faults = { 0 };
	uint64_t n, none;
	struct region r;
	unsigned int i;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		skip(w, "only one CPU is online; needs two or more (under QEMU: --accel tcg)");
		return;
	}
	progress(w);
	for (i = 0; i < opt.repeats; i++) {
		if (!prepare(&r, w))
			return;
		series_add(&first, (double)threads_write(p, r.base, &n));
		series_add(&again, (double)threads_write(p, r.base, &none));
		series_add(&faults, (double)n);
		region_free(&r);
	}
	/* A pass without faults takes the least; of one pair, noise may make it longer. */
	if (first.min <= again.min) {
		skip(w, "the machine is too busy to time it");
		return;
	}
	first.min -= again.min;
	first.max -= again.min;
	row_series(w, "insns", &first);
	row_series(w, "faults", &faults);
}

/**
 * run_reuse - the experiment "reuse"
 */
void run_reuse(void)
{
	struct where w = { .experiment = "reuse" };
	struct pattern p;
	unsigned int s, c;

	w.bytes = memory_for(256 * MB, 2);
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		if (opt.quick && sizes[s] == 1024)
			continue;
		w.kb = sizes[s];
		for (c = 0; c <= ARRAY_SIZE(cases); c++) {
			bool mt = c == ARRAY_SIZE(cases);

			w.name = mt ? "threads-8" : cases[c];
			if (!size_obtainable(&w))
				continue;
			if (!pattern_make(&p, mt ? "random" : w.name, w.bytes / pgsize)) {
				fail(&w, "no such pattern");
				continue;
			}
			if (mt)
				threads(&w, &p);
			else
				one(&w, &p);
			pattern_free(&p);
		}
	}
}
