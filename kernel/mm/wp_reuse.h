/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which PTEs of an exclusive large folio one write fault makes writable.
 *
 * Pure policy: what is seen around the faulting PTE goes in, a window comes
 * out. The page table is read and changed in wp_reuse.c.
 */
#ifndef __MM_WP_REUSE_H
#define __MM_WP_REUSE_H

#include <linux/align.h>
#include <linux/minmax.h>
#include <linux/types.h>

struct folio;
struct vm_fault;

/* The window of mode "block", whatever is seen. */
#define WP_REUSE_BLOCK		16u

/*
 * What another write fault on a folio takes at least. A PTE made writable
 * costs a fiftieth of a fault, so this costs about as much as one fault more:
 * even PTEs that nobody writes to cannot do much worse than double what a
 * fault per page costs.
 */
#define WP_REUSE_AGAIN		64u

/* The most PTEs that one fault makes writable: bounds its latency. */
#define WP_REUSE_MOST		256u

/**
 * struct wp_reuse_view - what a write fault sees around its PTE
 * @lo: first PTE the fault may change: in the folio, VMA and page table.
 * @hi: one past the last PTE the fault may change.
 * @pos: the faulting PTE, @lo <= @pos < @hi.
 * @below: writable PTEs in a run that ends just below @pos. May reach beyond
 *	@lo; a lower bound is enough.
 * @above: the same for a run that begins just above @pos.
 * @again: not the first write fault on this folio: the PTE at @lo, which that
 *	one marks by making it writable, is writable; or pages of the folio were
 *	copied away before.
 *
 * PTEs are numbered as in the page table.
 */
struct wp_reuse_view {
	unsigned int lo;
	unsigned int hi;
	unsigned int pos;
	unsigned int below;
	unsigned int above;
	bool again;
};

/**
 * struct wp_reuse_window - PTEs to make writable
 * @first: the first PTE.
 * @nr: how many; the faulting PTE is among them.
 */
struct wp_reuse_window {
	unsigned int first;
	unsigned int nr;
};

/**
 * wp_reuse_clamp - cut a range to what the fault may change
 * @view: what the fault sees.
 * @first: first PTE of the range.
 * @last: one past the last PTE of the range.
 *
 * Return: the part of the range in [lo, hi).
 */
static inline struct wp_reuse_window
wp_reuse_clamp(const struct wp_reuse_view *view, unsigned int first,
	       unsigned int last)
{
	first = max(first, view->lo);
	last = min(last, view->hi);

	return (struct wp_reuse_window){ .first = first, .nr = last - first };
}

/**
 * wp_reuse_block - the aligned block of PTEs around the faulting one
 * @view: what the fault sees.
 * @nr: size of the block, a power of two.
 *
 * Return: the window.
 */
static inline struct wp_reuse_window
wp_reuse_block(const struct wp_reuse_view *view, unsigned int nr)
{
	const unsigned int first = ALIGN_DOWN(view->pos, nr);

	return wp_reuse_clamp(view, first, first + nr);
}

/**
 * wp_reuse_adaptive - a window that grows with what was written
 * @view: what the fault sees.
 *
 * The first write to a folio may be the only one: it takes its own PTE. A
 * later one takes a block of %WP_REUSE_AGAIN. A fault that continues a
 * writable run, upwards or downwards, takes twice the run's length in that
 * direction: a sequential writer soon takes %WP_REUSE_MOST PTEs at a fault,
 * also across folios.
 *
 * So n faults make at most %WP_REUSE_AGAIN PTEs each writable, or twice what
 * was writable beside them.
 *
 * Return: the window.
 */
static inline struct wp_reuse_window
wp_reuse_adaptive(const struct wp_reuse_view *view)
{
	const unsigned int run = max(view->below, view->above);
	const unsigned int block = view->again ? WP_REUSE_AGAIN : 1;
	const unsigned int take = min(2 * run, WP_REUSE_MOST);

	if (take <= block)
		return wp_reuse_block(view, block);
	if (run == view->below)
		return wp_reuse_clamp(view, view->pos, view->pos + take);
	return wp_reuse_clamp(view, view->pos + 1 - min(take, view->pos + 1),
			      view->pos + 1);
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
void wp_reuse_around(struct vm_fault *vmf, struct folio *folio, bool exclusive);
void wp_reuse_unshare(struct vm_fault *vmf, struct folio *folio);
#else
static inline void wp_reuse_around(struct vm_fault *vmf, struct folio *folio,
				   bool exclusive)
{
}

static inline void wp_reuse_unshare(struct vm_fault *vmf, struct folio *folio)
{
}
#endif

#endif /* __MM_WP_REUSE_H */
