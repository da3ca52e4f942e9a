/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MADV_FREE by folios: what mm/lazyfree.c offers, and the policy it follows.
 *
 * The policy (where a folio that is named in part is cut) is pure: it looks at
 * numbers only, so that mm/tests/lazyfree_kunit.c can walk through all of it.
 */
#ifndef __MM_LAZYFREE_H
#define __MM_LAZYFREE_H

#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>

struct mm_walk;
struct xa_state;

/**
 * struct lazyfree_piece - one of the folios that a cut leaves behind
 * @first: its first page, counted from the start of the folio that is cut.
 * @order: its order: 0, or 2 and more.
 */
struct lazyfree_piece {
	unsigned short first;
	unsigned short order;
};

/*
 * A cut has at most two ends. In the worst case they lie in different halves of
 * the folio, and each half of order n leaves one piece of every order from
 * n - 1 down to 2, and four single pages: n + 2 pieces.
 */
#define LAZYFREE_MAX_PIECES	(2 * (ilog2(MAX_PTRS_PER_PTE) + 1))

/**
 * lazyfree_cut_order - how small a folio must become to end at a page
 * @idx: page within the folio, not 0.
 *
 * If the buddies around @idx are halved until a folio of the returned order
 * starts there, then no folio reaches across @idx any more.
 *
 * Return: the order. Never 1: anonymous folios of order 1 do not exist.
 */
static inline unsigned int lazyfree_cut_order(unsigned int idx)
{
	unsigned int order = __ffs(idx);

	return order == 1 ? 0 : order;
}

/* Would a folio of @order at page @pos reach across page @idx? */
static inline bool lazyfree_straddles(unsigned int pos, unsigned int order,
				      unsigned int idx)
{
	return pos < idx && idx < pos + (1U << order);
}

/**
 * lazyfree_plan - the largest folios that keep named and unnamed pages apart
 * @order: order of the folio to be cut.
 * @first: first page named, counted from the start of the folio.
 * @last: the page after the last one named, at most 1 << @order.
 * @pieces: filled with the folios that are to remain, in order of address;
 *          room for LAZYFREE_MAX_PIECES.
 *
 * Each piece is naturally aligned and as large as a buddy can be that lies
 * wholly inside or wholly outside of [@first, @last).
 *
 * Return: the number of pieces, 1 if nothing needs to be cut.
 */
static inline unsigned int lazyfree_plan(unsigned int order, unsigned int first,
					 unsigned int last,
					 struct lazyfree_piece *pieces)
{
	unsigned int pos, nr = 0;

	for (pos = 0; pos < 1U << order; pos += 1U << pieces[nr++].order) {
		unsigned int o = pos ? min_t(unsigned int, order, __ffs(pos)) : order;

		while (lazyfree_straddles(pos, o, first) ||
		       lazyfree_straddles(pos, o, last))
			o--;
		/* Anonymous folios of order 1 do not exist. */
		if (o == 1)
			o = 0;
		pieces[nr].first = pos;
		pieces[nr].order = o;
	}
	return nr;
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
extern bool madv_free_batch;

/**
 * madv_free_batch_enabled - is MADV_FREE done by folios?
 *
 * Return: the state of /sys/kernel/mm/transparent_hugepage/madv_free_batch.
 */
static inline bool madv_free_batch_enabled(void)
{
	return READ_ONCE(madv_free_batch);
}

int lazyfree_pte_range(pmd_t *pmd, unsigned long addr, unsigned long end,
		       struct mm_walk *walk);
int lazyfree_cut_folio(struct vm_area_struct *vma, unsigned long addr,
		       pte_t *ptep, struct folio *folio, unsigned int nr);
bool lazyfree_split_pmd(struct vm_area_struct *vma, pmd_t *pmd,
			unsigned long addr);

/* In mm/huge_memory.c. */
int __split_unmapped_folio(struct folio *folio, int new_order,
			   struct page *split_at, struct xa_state *xas,
			   struct address_space *mapping,
			   enum split_type split_type);
void lru_add_split_folio(struct folio *folio, struct folio *new_folio,
			 struct lruvec *lruvec, struct list_head *list);
#else
static inline bool madv_free_batch_enabled(void)
{
	return false;
}

static inline int lazyfree_pte_range(pmd_t *pmd, unsigned long addr,
				     unsigned long end, struct mm_walk *walk)
{
	return 0;
}

static inline int lazyfree_cut_folio(struct vm_area_struct *vma,
				     unsigned long addr, pte_t *ptep,
				     struct folio *folio, unsigned int nr)
{
	return -EOPNOTSUPP;
}

static inline bool lazyfree_split_pmd(struct vm_area_struct *vma, pmd_t *pmd,
				      unsigned long addr)
{
	return false;
}
#endif /* CONFIG_TRANSPARENT_HUGEPAGE */

#endif /* __MM_LAZYFREE_H */
