// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of mincore() by runs and folios: groups of page table entries,
 * and a page cache made up of folios of all sizes, holes and shadows, which is
 * asked about ranges that begin and end anywhere.
 */
#include <kunit/test.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/prandom.h>
#include <linux/xarray.h>

#include "../mincore_batch.h"

#define NR	MINCORE_PTE_GROUP

static pte_t present_pte(unsigned int i)
{
	pte_t pte = pfn_pte(i + 1, i & 1 ? PAGE_READONLY : PAGE_SHARED);

	return i & 2 ? pte_mkyoung(pte_mkdirty(pte)) : pte;
}

static pte_t absent_pte(unsigned int kind)
{
	switch (kind) {
	case 0:
		return __pte(0);
	case 1:
		return make_pte_marker(PTE_MARKER_POISONED);
	default:
		return swp_entry_to_pte(swp_entry(0, kind * 4099));
	}
}

/* A group is present if every entry is, whatever else the entries are. */
static void mincore_groups(struct kunit *test)
{
	pte_t ptes[NR];
	unsigned int i, kind;

	if (!MINCORE_PTES_SHARE_PRESENT)
		kunit_skip(test, "entries are looked at one by one");

	for (i = 0; i < NR; i++)
		ptes[i] = present_pte(i);
	KUNIT_EXPECT_TRUE(test, mincore_group_present(ptes));

	for (kind = 0; kind < 100; kind++) {
		for (i = 0; i < NR; i++) {
			ptes[i] = absent_pte(kind);
			KUNIT_EXPECT_FALSE(test, mincore_group_present(ptes));
			ptes[i] = present_pte(i);
		}
	}

	for (i = 0; i < NR; i++)
		ptes[i] = pfn_pte(i + 1, PAGE_NONE);
	KUNIT_EXPECT_TRUE(test, mincore_group_present(ptes));
}

/*
 * What groups rest upon: entries that have a bit in common that makes one of
 * them present are all present.  Not so for words that are no entries at all.
 */
static void mincore_groups_never_lie(struct kunit *test)
{
	struct rnd_state rnd;
	pte_t ptes[NR];
	unsigned int round, i;

	if (!MINCORE_PTES_SHARE_PRESENT)
		kunit_skip(test, "entries are looked at one by one");

	prandom_seed_state(&rnd, 1);
	for (round = 0; round < 10000; round++) {
		bool all = true;

		for (i = 0; i < NR; i++) {
			u64 val = (u64)prandom_u32_state(&rnd) << 32 | prandom_u32_state(&rnd);

			/* mostly with the low bits of a present entry */
			if (prandom_u32_state(&rnd) % 8)
				val |= pte_val(present_pte(i)) & 0xfff;
			ptes[i] = __pte(val);
			all &= !!pte_present(ptes[i]);
		}
		if (mincore_group_present(ptes))
			KUNIT_EXPECT_TRUE(test, all);
	}
}

static void mincore_unmapped_runs(struct kunit *test)
{
	pte_t ptes[20];
	unsigned int len, i;

	for (len = 1; len < ARRAY_SIZE(ptes); len++) {
		for (i = 0; i < ARRAY_SIZE(ptes); i++)
			ptes[i] = i < len ? absent_pte(i % 2) :
				  i % 2 ? present_pte(i) : absent_pte(2);
		KUNIT_EXPECT_EQ(test, mincore_unmapped_run(ptes, ARRAY_SIZE(ptes)), len);
		KUNIT_EXPECT_EQ(test, mincore_unmapped_run(ptes, len), len);
		KUNIT_EXPECT_EQ(test, mincore_unmapped_run(ptes, 1), 1);
	}
}

#define CACHE_PAGES	3000u

/* A page cache, and what is to be said of its pages. */
struct cache {
	struct address_space mapping;
	pgoff_t base;
	unsigned char resident[CACHE_PAGES];
};

static void cache_store(struct kunit *test, struct cache *c, pgoff_t index,
			unsigned int order, void *entry)
{
	XA_STATE_ORDER(xas, &c->mapping.i_pages, index, order);

	do {
		xas_lock_irq(&xas);
		xas_store(&xas, entry);
		xas_unlock_irq(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	KUNIT_ASSERT_EQ(test, xas_error(&xas), 0);
}

static void cache_fill(struct kunit *test, struct cache *c, struct rnd_state *rnd,
		       unsigned int max_order)
{
	unsigned int i = 0;

	while (i < CACHE_PAGES) {
		unsigned int order = prandom_u32_state(rnd) % (max_order + 1);
		unsigned int kind = prandom_u32_state(rnd) % 8;
		struct folio *folio;

		/* Mostly small, and where the index allows it */
		if (prandom_u32_state(rnd) % 2)
			order = 0;
		while (order && (!IS_ALIGNED(c->base + i, 1UL << order) ||
				 i + (1U << order) > CACHE_PAGES))
			order--;

		if (kind == 0) {
			i += 1 + prandom_u32_state(rnd) % 200;
			continue;
		}
		if (kind == 1) {
			cache_store(test, c, c->base + i, order, xa_mk_value(i));
			i += 1U << order;
			continue;
		}

		/* There is no folio of two pages in the page cache. */
		folio = folio_alloc(GFP_KERNEL, order == 1 ? 0 : order);
		KUNIT_ASSERT_NOT_NULL(test, folio);
		if (kind != 2) {
			__folio_mark_uptodate(folio);
			memset(c->resident + i, 1, folio_nr_pages(folio));
		}
		cache_store(test, c, c->base + i, folio_order(folio), folio);
		i += folio_nr_pages(folio);
	}
}

static void cache_drop(struct cache *c)
{
	unsigned long index;
	void *entry;

	xa_for_each(&c->mapping.i_pages, index, entry) {
		if (!xa_is_value(entry))
			folio_put(entry);
	}
	xa_destroy(&c->mapping.i_pages);
}

/* First byte of @vec that is not what it has to be, or -1. */
static int cache_wrong(struct cache *c, unsigned int from, unsigned int nr,
		       unsigned char *vec)
{
	unsigned int i;

	memset(vec, 0x5a, CACHE_PAGES + 1);
	mincore_mapping_range(&c->mapping, c->base + from, nr, vec);
	for (i = 0; i < nr; i++) {
		if (vec[i] != c->resident[from + i])
			return i;
	}
	return vec[nr] == 0x5a ? -1 : nr;
}

static void mincore_page_cache(struct kunit *test)
{
	static const unsigned int orders[] = { 0, 2, 4, 6, 9 };
	static const pgoff_t bases[] = { 0, 1, 4096, 1UL << 20, 12345 };
	unsigned char *vec = kunit_kzalloc(test, CACHE_PAGES + 1, GFP_KERNEL);
	struct cache *c = kunit_kzalloc(test, sizeof(*c), GFP_KERNEL);
	struct rnd_state rnd;
	unsigned int round, i;

	KUNIT_ASSERT_NOT_NULL(test, vec);
	KUNIT_ASSERT_NOT_NULL(test, c);
	prandom_seed_state(&rnd, 2);

	for (round = 0; round < 25; round++) {
		memset(c, 0, sizeof(*c));
		xa_init_flags(&c->mapping.i_pages, XA_FLAGS_LOCK_IRQ);
		c->base = bases[round % 5];
		cache_fill(test, c, &rnd, orders[round / 5]);

		KUNIT_EXPECT_EQ(test, cache_wrong(c, 0, CACHE_PAGES, vec), -1);
		for (i = 0; i < 2000; i++) {
			unsigned int from = prandom_u32_state(&rnd) % CACHE_PAGES;
			unsigned int nr = 1 + prandom_u32_state(&rnd) % (i % 2 ? 20 : 700);

			nr = min(nr, CACHE_PAGES - from);
			KUNIT_EXPECT_EQ_MSG(test, cache_wrong(c, from, nr, vec), -1,
					    "round %u: %u pages from %u", round, nr, from);
		}
		cache_drop(c);
	}
}

/* One page at index 0 is no node of the tree but its head. */
static void mincore_page_cache_lone(struct kunit *test)
{
	unsigned char *vec = kunit_kzalloc(test, CACHE_PAGES + 1, GFP_KERNEL);
	struct cache *c = kunit_kzalloc(test, sizeof(*c), GFP_KERNEL);
	struct folio *folio = folio_alloc(GFP_KERNEL, 0);

	KUNIT_ASSERT_NOT_NULL(test, vec);
	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	xa_init_flags(&c->mapping.i_pages, XA_FLAGS_LOCK_IRQ);
	KUNIT_EXPECT_EQ(test, cache_wrong(c, 0, 100, vec), -1);
	cache_store(test, c, 0, 0, folio);
	KUNIT_EXPECT_EQ(test, cache_wrong(c, 0, 100, vec), -1);
	__folio_mark_uptodate(folio);
	c->resident[0] = 1;
	KUNIT_EXPECT_EQ(test, cache_wrong(c, 0, 1, vec), -1);
	KUNIT_EXPECT_EQ(test, cache_wrong(c, 0, CACHE_PAGES, vec), -1);
	KUNIT_EXPECT_EQ(test, cache_wrong(c, 1, 100, vec), -1);
	cache_drop(c);
}

static struct kunit_case mincore_batch_cases[] = {
	KUNIT_CASE(mincore_groups),
	KUNIT_CASE(mincore_groups_never_lie),
	KUNIT_CASE(mincore_unmapped_runs),
	KUNIT_CASE(mincore_page_cache),
	KUNIT_CASE(mincore_page_cache_lone),
	{}
};

static struct kunit_suite mincore_batch_suite = {
	.name = "mincore_batch",
	.test_cases = mincore_batch_cases,
};

kunit_test_suite(mincore_batch_suite);

MODULE_DESCRIPTION("Tests of mincore() by runs and folios");
MODULE_LICENSE("GPL");
