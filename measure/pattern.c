// SPDX-License-Identifier: GPL-2.0
/*
 * Which pages are written, in which order, and the timed loops.
 *
 * All patterns but "memset" are a list of page numbers, so that one loop
 * serves them all. What the loop itself costs is measured by running it again
 * over the memory it has just made writable, and subtracted by the caller.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "measure.h"

/* xorshift64*: the same numbers on every machine and in every run */
static uint64_t rng_state;

static uint64_t rng(void)
{
	rng_state ^= rng_state >> 12;
	rng_state ^= rng_state << 25;
	rng_state ^= rng_state >> 27;
	return rng_state * 2685821657736338717ULL;
}

static void shuffle(uint32_t *v, size_t n)
{
	size_t i, j;
	uint32_t t;

	for (i = n; i > 1; i--) {
		j = rng() % i;
		t = v[i - 1];
		v[i - 1] = v[j];
		v[j] = t;
	}
}

/*
 * As many stores as there are pages, the k-th most popular page being chosen
 * with a probability proportional to 1/k; popularity is scattered over the
 * memory. Draws by bisection in the cumulated weights.
 */
static void zipf(struct pattern *p, size_t pages)
{
	double *cum = scratch(pages * sizeof(double)), sum = 0, u;
	uint32_t *place = scratch(pages * sizeof(uint32_t));
	size_t i, lo, hi, mid;

	for (i = 0; i < pages; i++) {
		sum += 1.0 / (double)(i + 1);
		cum[i] = sum;
		place[i] = (uint32_t)i;
	}
	shuffle(place, pages);
	for (i = 0; i < pages; i++) {
		u = (double)(rng() >> 11) * (1.0 / 9007199254740992.0) * sum;
		for (lo = 0, hi = pages - 1; lo < hi;) {
			mid = (lo + hi) / 2;
			if (cum[mid] < u)
				lo = mid + 1;
			else
				hi = mid;
		}
		p->page[i] = place[lo];
	}
	p->n = pages;
	munmap(cum, pages * sizeof(double));
	munmap(place, pages * sizeof(uint32_t));
}

static void every(struct pattern *p, size_t pages, size_t bytes)
{
	size_t step = bytes / pgsize, i;

	p->n = 0;
	for (i = 0; i < pages; i += step ? step : 1)
		p->page[p->n++] = (uint32_t)i;
}

/**
 * pattern_make - the list of pages a pattern writes
 * @p: gets the pattern
 * @name: seq, random, memset, store-64k, store-2m, stride-256k, random-10 (a
 *	random tenth of the pages), random-16th, zipf
 * @pages: size of the region
 *
 * Return: false when there is no such pattern.
 */
bool pattern_make(struct pattern *p, const char *name, size_t pages)
{
	size_t i;

	memset(p, 0, sizeof(*p));
	p->name = name;
	p->pages = pages;
	p->page = scratch(pages * sizeof(uint32_t));
	p->written = scratch(pages);
	rng_state = 0x9e3779b97f4a7c15ULL;
	every(p, pages, pgsize);
	if (!strcmp(name, "memset")) {
		p->fill = true;
	} else if (!strcmp(name, "store-64k")) {
		every(p, pages, 64 * KB);
	} else if (!strcmp(name, "store-2m")) {
		every(p, pages, 2 * MB);
	} else if (!strcmp(name, "stride-256k")) {
		/* one pass per page of the stride: in the end all are written */
		size_t step = 256 * KB / pgsize, start, n = 0;

		for (start = 0; start < step; start++)
			for (i = start; i < pages; i += step)
				p->page[n++] = (uint32_t)i;
	} else if (!strncmp(name, "random", 6)) {
		shuffle(p->page, pages);
		if (!strcmp(name, "random-10"))
			p->n = pages / 10;
		else if (!strcmp(name, "random-16th"))
			p->n = pages / 16;
	} else if (!strcmp(name, "zipf")) {
		zipf(p, pages);
	} else if (strcmp(name, "seq")) {
		return false;
	}
	for (i = 0; i < p->n; i++)
		p->written[p->page[i]] = 1;
	return true;
}

/**
 * pattern_free - give a pattern's memory back
 */
void pattern_free(struct pattern *p)
{
	munmap(p->page, p->pages * sizeof(uint32_t));
	munmap(p->written, p->pages);
}

typedef long long v2 __attribute__((vector_size(16)));

/* 64 bytes a turn, as a memset does it that has no string instruction */
static inline void fill(char *from, char *to)
{
	v2 x = { 0x0101010101010101LL, 0x0101010101010101LL };
	char *p;

	for (p = from; p < to; p += 64) {
		*(volatile v2 *)(p) = x;
		*(volatile v2 *)(p + 16) = x;
		*(volatile v2 *)(p + 32) = x;
		*(volatile v2 *)(p + 48) = x;
	}
}

/**
 * pattern_write - write the pattern once
 *
 * Return: nanoseconds (instructions) from the first store to after the last.
 */
__attribute__((noinline))
uint64_t pattern_write(const struct pattern *p, char *base)
{
	const uint32_t *page = p->page, *end = p->page + p->n;
	size_t shift = (size_t)__builtin_ctzl(pgsize);
	uint64_t from, to;

	if (p->fill) {
		char *stop = base + (p->n << shift);

		from = now();
		fill(base, stop);
		to = now();
	} else {
		from = now();
		for (; page < end; page++)
			*(volatile char *)(base + ((size_t)*page << shift)) = 1;
		to = now();
	}
	return elapsed(from, to);
}

/**
 * pattern_time - write the pattern once, every store timed by itself
 * @samples: one per store; each keeps the least it was ever given
 *
 * With "memset" the first store to each page is timed.
 */
__attribute__((noinline))
void pattern_time(const struct pattern *p, char *base, uint32_t *samples)
{
	size_t shift = (size_t)__builtin_ctzl(pgsize), i;
	uint64_t from, to;

	for (i = 0; i < p->n; i++) {
		volatile char *at = base + ((size_t)p->page[i] << shift);

		from = now();
		*at = 1;
		to = now();
		to = elapsed(from, to);
		if (to > UINT32_MAX)
			to = UINT32_MAX;
		if ((uint32_t)to < samples[i])
			samples[i] = (uint32_t)to;
		if (p->fill)
			fill((char *)at, (char *)at + pgsize);
	}
}

/**
 * latency_init - room for a sample per store
 * @n: stores of one pass
 */
void latency_init(struct latency *l, size_t n)
{
	l->n = n;
	l->sample = scratch(n * sizeof(uint32_t));
	memset(l->sample, 0xff, n * sizeof(uint32_t));
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* nearest rank: the least value that at least this share does not exceed */
static double rank(const struct latency *l, unsigned int permille)
{
	size_t at = (l->n * permille + 999) / 1000;

	return l->sample[at ? at - 1 : 0];
}

/**
 * latency_rows - p50, p99, p999 and max of the samples
 *
 * Each sample is the least of several passes over fresh memory in the same
 * order: what hits one store in one pass only (a timer tick) is not of the
 * fault and does not count; what the fault itself does comes in every pass.
 */
void latency_rows(struct latency *l, const struct where *w)
{
	qsort(l->sample, l->n, sizeof(uint32_t), by_value);
	row(w, "p50", rank(l, 500));
	row(w, "p99", rank(l, 990));
	row(w, "p999", rank(l, 999));
	row(w, "max", rank(l, 1000));
}

/**
 * latency_free - give the samples' memory back
 */
void latency_free(struct latency *l)
{
	munmap(l->sample, l->n * sizeof(uint32_t));
}
