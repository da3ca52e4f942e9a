// SPDX-License-Identifier: GPL-2.0
/*
 * alloc-mix: a program that allocates and frees objects of mixed sizes for a while.
 *
 *   alloc-mix LIVE-MIB ROUNDS
 *
 * Run with an allocator preloaded. Sizes are 16 bytes to 128 KiB, each power of two
 * with the same number of bytes. A round frees a random quarter of the objects and fills
 * up with new ones; every 16th frees a half and leaves it at that, as a program has
 * peaks. Every allocation is written, every object checked when it is freed. At the end
 * it prints "OPERATIONS NANOSECONDS" and stops itself, so that its memory can be looked at.
 */
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct object {
	uint64_t *at;
	uint32_t size;
	uint32_t stamp;
};

static uint64_t state = 0x9e3779b97f4a7c15ULL, ops;
static size_t live;

static uint32_t draw(uint32_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 2685821657736338717ULL >> 33) % below);
}

/* Each power of two half as often as the one below. */
static uint32_t size_draw(void)
{
	unsigned int order = 0, k = draw(8191);

	while (order < 12 && k >= 8191U - (8191U >> (order + 1)))
		order++;
	return (16U << order) + draw(16U << order);
}

static void object_new(struct object *o)
{
	o->size = size_draw();
	o->at = malloc(o->size);
	if (!o->at) {
		fprintf(stderr, "alloc-mix: no memory\n");
		exit(1);
	}
	o->stamp = draw(1U << 30);
	memset(o->at, (int)o->stamp, o->size);
	*o->at = o->stamp;
	live += o->size;
	ops++;
}

static void object_free(struct object *o)
{
	if (*o->at != o->stamp ||
	    ((unsigned char *)o->at)[o->size - 1] != (unsigned char)o->stamp) {
		fprintf(stderr, "alloc-mix: an object has lost what was written to it\n");
		exit(1);
	}
	free(o->at);
	o->at = NULL;
	live -= o->size;
	ops++;
}

static uint64_t clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	size_t wanted, n, nr = 0, i;
	unsigned int rounds, round, part;
	struct object *o;
	uint64_t from;

	if (argc != 3)
		return 2;
	wanted = strtoul(argv[1], NULL, 10) << 20;
	rounds = (unsigned int)strtoul(argv[2], NULL, 10);
	/* the mean object has some 160 bytes */
	n = wanted / 96;
	o = calloc(n, sizeof(*o));
	if (!o || !wanted)
		return 1;
	from = clock_now();
	while (live < wanted && nr < n)
		object_new(&o[nr++]);
	for (round = 1; round <= rounds; round++) {
		part = round % 16 ? 4 : 2;
		for (i = 0; i < nr; i++)
			if (o[i].at && !draw(part))
				object_free(&o[i]);
		for (i = 0; round % 16 && i < nr && live < wanted; i++)
			if (!o[i].at)
				object_new(&o[i]);
	}
	printf("%" PRIu64 " %" PRIu64 "\n", ops, clock_now() - from);
	fflush(stdout);
	return raise(SIGSTOP);
}
