// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_FREE by folios.
 *
 * Two things are done differently here from the walk in mm/madvise.c, which
 * /sys/kernel/mm/transparent_hugepage/madv_free_batch brings back:
 *
 * - A folio that is named as a whole costs a few instructions per page: one
 *   scan by exact comparison, one pass that clears accessed and dirty only
 *   where they are set, and the move to the list of lazily freed folios for
 *   many folios under one hold of the lock, with their statistics added up.
 *
 * - A folio that is named in part is cut only where it must be, and without
 *   being unmapped: see lazyfree_cut_folio().
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kobject.h>
#include <linux/folio_batch.h>
#include <linux/leafops.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <asm/tlb.h>

#include "internal.h"
#include "lazyfree.h"
#include "swap.h"
#include "thp_batch.h"

bool madv_free_batch __read_mostly = true;

/*
 * PTEs.
 */

/**
 * lazyfree_scan - count the PTEs that map a folio from a page on
 * @folio: a large folio.
 * @ptep: the PTE of one of its pages.
 * @ptentp: a copy of that PTE. Becomes young if any PTE counted is young, and
 *	    dirty if any is dirty.
 * @max_nr: how many PTEs to look at, at most; within one VMA and page table.
 *
 * The PTEs may differ in anything but the page frame: writable or not, armed
 * for userfaultfd or not, with NUMA hint or not. Most often they are equal but
 * for the page frame, so compare them whole first: accessed and dirty bits that
 * equal those of the PTE before have been seen already. Folios are naturally
 * aligned, so that the same number leads from every PTE to the next; it depends
 * on the other bits only (x86 inverts the page frame of PROT_NONE).
 *
 * Context: PTE lock held.
 * Return: the number of PTEs, at least 1.
 */
static unsigned int lazyfree_scan(struct folio *folio, pte_t *ptep,
				  pte_t *ptentp, unsigned int max_nr)
{
	unsigned long pfn = pte_pfn(*ptentp);
	pte_t pte = *ptentp, expected = pte;
	bool young = false, dirty = false;
	unsigned int nr = 0, hint;
	u64 step;

	max_nr = min_t(unsigned long, max_nr,
		       folio_pfn(folio) + folio_nr_pages(folio) - pfn);

	step = pte_val(pte_advance_pfn(pte, 1)) - pte_val(pte);
	while (nr < max_nr) {
		pte = ptep_get(ptep + nr);
		if (unlikely(!pte_same(pte, expected))) {
			if (!pte_present(pte) || pte_pfn(pte) != pfn + nr)
				break;
			young |= pte_young(pte);
			dirty |= pte_dirty(pte);
			step = pte_val(pte_advance_pfn(pte, 1)) - pte_val(pte);
		}
		/*
		 * Step over what the architecture knows to be one block: its
		 * accessed and dirty bits were gathered by ptep_get().
		 */
		hint = pte_batch_hint(ptep + nr, pte);
		expected = __pte(pte_val(pte) + hint * step);
		nr += hint;
	}

	if (young)
		*ptentp = pte_mkyoung(*ptentp);
	if (dirty)
		*ptentp = pte_mkdirty(*ptentp);
	return min(nr, max_nr);
}

/**
 * lazyfree_clear_ptes - make the PTEs of a folio old and clean
 * @vma: the VMA.
 * @addr: address of the first PTE.
 * @ptep: the first PTE.
 * @nr: how many; they map consecutive pages of one folio.
 *
 * Context: PTE lock held; the caller flushes the TLB before it returns to user
 * space. Until then a CPU may write through a stale entry without leaving a
 * trace: such a write races with the call, and may be lost.
 */
static void lazyfree_clear_ptes(struct vm_area_struct *vma, unsigned long addr,
				pte_t *ptep, unsigned int nr)
{
#ifdef CONFIG_X86_64
	/*
	 * Hardware sets accessed and dirty behind our back, but nothing else,
	 * and never clears them. One locked AND takes both away and keeps
	 * whatever else comes; no need to make the PTE disappear meanwhile.
	 */
	const pteval_t ad = _PAGE_ACCESSED | _PAGE_DIRTY_BITS;
	pte_t *end = ptep + nr;

	do {
		if (pte_flags(ptep_get(ptep)) & ad)
			atomic64_andnot(ad, (atomic64_t *)&ptep->pte);
	} while (++ptep != end);
#else
	clear_young_dirty_ptes(vma, addr, ptep, nr,
			       CYDP_CLEAR_YOUNG | CYDP_CLEAR_DIRTY);
#endif
}

/*
 * The list of lazily freed folios.
 */

/* Pages moved from the lists of one zone of one lruvec. */
struct lazyfree_moved {
	int zid;
	long from_inactive;
	long from_active;
	long to;
	long total;
};

/* Add up once what lruvec_del_folio() and lruvec_add_folio() do per folio. */
static void lazyfree_account(struct lruvec *lruvec, struct lazyfree_moved *moved)
{
	if (!moved->total)
		return;
	if (moved->from_inactive)
		update_lru_size(lruvec, LRU_INACTIVE_ANON, moved->zid,
				-moved->from_inactive);
	if (moved->from_active)
		update_lru_size(lruvec, LRU_ACTIVE_ANON, moved->zid,
				-moved->from_active);
	if (moved->to)
		update_lru_size(lruvec, LRU_INACTIVE_FILE, moved->zid, moved->to);
	__count_vm_events(PGLAZYFREE, moved->total);
	count_memcg_events(lruvec_memcg(lruvec), PGLAZYFREE, moved->total);
	*moved = (struct lazyfree_moved) { .zid = moved->zid };
}

/* lru_lazyfree() of mm/folio.c, but for the statistics. */
static void lazyfree_move(struct lruvec *lruvec, struct folio *folio,
			  struct lazyfree_moved *moved)
{
	long nr = folio_nr_pages(folio);
	bool active;

	if (!folio_test_anon(folio) || !folio_test_swapbacked(folio) ||
	    folio_test_swapcache(folio) || folio_test_unevictable(folio))
		return;

	active = folio_test_active(folio);
	if (!lru_gen_del_folio(lruvec, folio, false)) {
		list_del(&folio->lru);
		if (active)
			moved->from_active += nr;
		else
			moved->from_inactive += nr;
	}
	/* Anew: the multi-gen LRU sets the flag of what it takes off its lists. */
	if (folio_test_active(folio))
		folio_clear_active(folio);
	/* With the multi-gen LRU the flag means something else. */
	if (!lru_gen_enabled() && folio_test_referenced(folio))
		folio_clear_referenced(folio);
	folio_clear_swapbacked(folio);
	if (!lru_gen_add_folio(lruvec, folio, false)) {
		list_add(&folio->lru, &lruvec->lists[LRU_INACTIVE_FILE]);
		moved->to += nr;
	}
	moved->total += nr;
}

/**
 * lazyfree_flush - make the folios of a batch lazily freed
 * @fbatch: the batch; empty afterwards.
 *
 * Context: the PTE lock under which the folios were found is still held: their
 * mappings are what keeps them, no references were taken.
 */
static void lazyfree_flush(struct folio_batch *fbatch)
{
	struct lazyfree_moved moved = {};
	struct lruvec *lruvec = NULL;
	unsigned int i;

	for (i = 0; i < folio_batch_count(fbatch); i++) {
		struct folio *folio = fbatch->folios[i];

		/* Keep the folio in its memcg while it moves. */
		if (!folio_test_clear_lru(folio))
			continue;
		if (lruvec && (!folio_matches_lruvec(folio, lruvec) ||
			       folio_zonenum(folio) != moved.zid))
			lazyfree_account(lruvec, &moved);
		lruvec = folio_lruvec_relock_irq(folio, lruvec);
		moved.zid = folio_zonenum(folio);
		lazyfree_move(lruvec, folio, &moved);
		folio_set_lru(folio);
	}
	if (lruvec) {
		lazyfree_account(lruvec, &moved);
		lruvec_unlock_irq(lruvec);
	}
	folio_batch_reinit(fbatch);
}

/* Have a folio that is old and clean in the page table lazily freed. */
static void lazyfree_add(struct folio_batch *fbatch, struct folio *folio)
{
	if (!folio_test_swapbacked(folio) || !folio_test_lru(folio))
		return;
	if (!folio_batch_add(fbatch, folio))
		lazyfree_flush(fbatch);
}

/*
 * Cutting.
 */

/*
 * Is all of @folio mapped by this page table, in place and within @vma, and
 * nowhere else? @ptep maps its page @first at @addr. PTE lock held: nothing of
 * what is seen here can change before that is dropped.
 */
static bool lazyfree_fully_mapped(struct vm_area_struct *vma, unsigned long addr,
				  pte_t *ptep, struct folio *folio,
				  unsigned int first)
{
	unsigned int nr = folio_nr_pages(folio);
	pte_t pte;

	if (first > pte_index(addr) ||
	    pte_index(addr) - first + nr > PTRS_PER_PTE)
		return false;
	addr -= first * PAGE_SIZE;
	if (addr < vma->vm_start || nr * PAGE_SIZE > vma->vm_end - addr)
		return false;
	if (folio_mapcount(folio) != nr)
		return false;

	ptep -= first;
	pte = ptep_get(ptep);
	if (!pte_present(pte) || pte_pfn(pte) != folio_pfn(folio))
		return false;
	return lazyfree_scan(folio, ptep, &pte, nr) == nr;
}

/*
 * Let no block of PTEs that the architecture handles as one (arm64 contpte)
 * reach across @ptep, the first PTE of a folio of its own: accessed and dirty
 * are kept for the block, not for the PTE. Taking a PTE away unfolds its block,
 * and putting it back does not fold it again, now that it spans two folios.
 */
static void lazyfree_unfold(struct mm_struct *mm, unsigned long addr, pte_t *ptep)
{
	pte_t pte = ptep_get(ptep - 1);

	if (likely(pte_batch_hint(ptep - 1, pte) == 1))
		return;
	addr -= PAGE_SIZE;
	pte = ptep_get_and_clear(mm, addr, ptep - 1);
	set_pte_at(mm, addr, ptep - 1, pte);
}

/* Halve buddies of @folio, frozen, until none reaches across page @idx of @page. */
static void lazyfree_cut_at(struct page *page, unsigned int idx)
{
	struct folio *folio = page_folio(page + idx);

	if (&folio->page == page + idx)
		return;
	__split_unmapped_folio(folio, lazyfree_cut_order(idx), page + idx,
			       NULL, NULL, SPLIT_TYPE_NON_UNIFORM);
}

/**
 * lazyfree_cut_folio - cut a mapped folio where the named pages start and end
 * @vma: the VMA.
 * @addr: address of the first page that is named.
 * @ptep: its PTE.
 * @folio: the large anonymous folio it maps a page of.
 * @nr: how many pages are named; they are mapped by @nr PTEs from @ptep on.
 *
 * Splitting a folio takes it out of the page tables by means of migration
 * entries and puts its parts back, a thousand instructions a page, because in
 * general it may be mapped anywhere. Here all its mappings are known, they are
 * in one page table and its lock is held, so that the folio can stay mapped:
 *
 * - References are frozen at exactly one per PTE. Nobody else has one: not GUP,
 *   not reclaim, migration, compaction or a walk of the rmap, not a batch of
 *   another CPU. And nobody gets one: GUP-fast fails to, and goes on to wait
 *   for our lock; whoever comes by PFN or by the LRU list skips frozen folios.
 * - Whoever comes by the page table waits for the lock, but for the hardware,
 *   which has no use for struct page. PTEs do not change, so that there is
 *   nothing to flush and nothing to notify.
 * - Between the freeze and the end, rmap is taken off the folio as a whole
 *   and put on the pieces. PageAnonExclusive, which is what makes a page ours
 *   to write, stays as it is for every page.
 *
 * When the lock is dropped, each piece is a folio with as many references and
 * mappings as it has pages. The first piece is @folio.
 *
 * Context: PTE lock held, and never dropped.
 * Return: 0 if the folio was cut, -EBUSY if it must be left as it is (shared,
 * locked, referenced by somebody else), -EOPNOTSUPP if it is mapped or used in
 * a way that this function does not handle but a split might.
 */
int lazyfree_cut_folio(struct vm_area_struct *vma, unsigned long addr,
		       pte_t *ptep, struct folio *folio, unsigned int nr)
{
	unsigned int first = pte_pfn(ptep_get(ptep)) - folio_pfn(folio);
	unsigned int nr_pages = folio_nr_pages(folio);
	unsigned int order = folio_order(folio);
	struct lazyfree_piece pieces[LAZYFREE_MAX_PIECES];
	struct page *page = &folio->page;
	unsigned int i, nr_pieces;
	unsigned long exclusive = 0;
	struct lruvec *lruvec;

	if (!madv_free_batch_enabled() || !folio_test_anon(folio))
		return -EOPNOTSUPP;
	if (folio_maybe_mapped_shared(folio))
		return -EBUSY;
	if (!lazyfree_fully_mapped(vma, addr, ptep, folio, first))
		return -EOPNOTSUPP;
	if (!folio_trylock(folio))
		return -EBUSY;
	/* No order 1: see lazyfree_cut_order(). */
	if (order < 2 || folio_test_swapcache(folio) ||
	    folio_test_partially_mapped(folio) || folio_test_mlocked(folio) ||
	    folio_test_unevictable(folio) || folio_contain_hwpoisoned_page(folio)) {
		folio_unlock(folio);
		return -EOPNOTSUPP;
	}
	if (!folio_ref_freeze(folio, nr_pages)) {
		folio_unlock(folio);
		return -EBUSY;
	}
	if (!folio_test_lru(folio)) {
		folio_ref_unfreeze(folio, nr_pages);
		folio_unlock(folio);
		return -EBUSY;
	}

	nr_pieces = lazyfree_plan(order, first, first + nr, pieces);
	for (i = 0; i < nr_pieces; i++)
		if (PageAnonExclusive(page + pieces[i].first))
			exclusive |= BIT(i);

	folio_unqueue_deferred_split(folio);
	folio_remove_rmap_ptes(folio, page, nr_pages, vma);

	lruvec = folio_lruvec_lock_irq(folio);
	if (first)
		lazyfree_cut_at(page, first);
	if (first + nr < nr_pages)
		lazyfree_cut_at(page, first + nr);
	for (i = 1; i < nr_pieces; i++)
		lru_add_split_folio(folio, page_folio(page + pieces[i].first),
				    lruvec, NULL);
	lruvec_unlock_irq(lruvec);

	addr -= first * PAGE_SIZE;
	ptep -= first;
	for (i = 0; i < nr_pieces; i++) {
		unsigned int pos = pieces[i].first;
		struct folio *piece = page_folio(page + pos);

		VM_WARN_ON_FOLIO(folio_page(piece, 0) != page + pos ||
				 folio_order(piece) != pieces[i].order, piece);
		/* The split drops this flag from the first page of a folio. */
		if (exclusive & BIT(i))
			SetPageAnonExclusive(page + pos);
		folio_add_anon_rmap_ptes(piece, page + pos,
					 1U << pieces[i].order, vma,
					 addr + pos * PAGE_SIZE, RMAP_NONE);
		if (pos)
			lazyfree_unfold(vma->vm_mm, addr + pos * PAGE_SIZE,
					ptep + pos);
		folio_ref_unfreeze(piece, 1U << pieces[i].order);
		folio_unlock(piece);
	}

	if (is_pmd_order(order))
		count_vm_event(THP_SPLIT_PAGE);
	count_mthp_stat(order, MTHP_STAT_SPLIT);
	count_thp_batch(order, MADV_FREE_CUT, 1);
	return 0;
}

/**
 * lazyfree_split_pmd - map by PTEs a folio that is to be cut
 * @vma: the VMA.
 * @pmd: the PMD entry that maps the folio.
 * @addr: an address that it maps.
 *
 * Does so only if lazyfree_cut_folio() is then likely to succeed.
 *
 * Context: the mmap lock or the VMA lock held for read; may sleep.
 * Return: true if the folio is now mapped by PTEs.
 */
bool lazyfree_split_pmd(struct vm_area_struct *vma, pmd_t *pmd,
			unsigned long addr)
{
	struct folio *folio;
	bool ok = false;
	spinlock_t *ptl;	/* of the PMD table */

	ptl = pmd_trans_huge_lock(pmd, vma);
	if (!ptl)
		return false;
	if (pmd_present(*pmd) && !is_huge_zero_pmd(*pmd)) {
		folio = pmd_folio(*pmd);
		ok = folio_test_anon(folio) && !folio_is_zone_device(folio) &&
		     !folio_maybe_mapped_shared(folio) &&
		     !folio_test_locked(folio) &&
		     folio_ref_count(folio) == folio_expected_ref_count(folio);
	}
	spin_unlock(ptl);

	if (ok)
		__split_huge_pmd(vma, pmd, addr, false);
	return ok;
}

/*
 * The other way, for a folio that lazyfree_cut_folio() does not handle: split it
 * at one end of the named pages; the other end is done when the walk comes back
 * to what is then a smaller folio. A folio in the swap cache can only be split
 * into single pages.
 *
 * Folio locked and referenced, PTE lock not held.
 */
static int lazyfree_split_folio(struct folio *folio, unsigned int first,
				unsigned int nr)
{
	unsigned int idx = first ? first : nr;

	if (folio_test_swapcache(folio))
		return split_folio(folio);
	return folio_split(folio, lazyfree_cut_order(idx),
			   folio_page(folio, idx), NULL);
}

/*
 * The walk.
 */

/* Drop a swap entry and those that follow it, or a marker of poison. */
static unsigned int lazyfree_nonpresent(struct mm_struct *mm, unsigned long addr,
					unsigned long end, pte_t *pte,
					pte_t ptent, int *nr_swap)
{
	softleaf_t entry = softleaf_from_pte(ptent);
	unsigned int nr = 1;

	if (softleaf_is_swap(entry)) {
		nr = swap_pte_batch(pte, (end - addr) / PAGE_SIZE, ptent);
		*nr_swap -= nr;
		swap_put_entries_direct(entry, nr);
		clear_nonpresent_ptes(mm, addr, pte, nr);
	} else if (softleaf_is_hwpoison(entry) ||
		   softleaf_is_poison_marker(entry)) {
		pte_clear(mm, addr, pte);
	}
	return nr;
}

/*
 * Get rid of a copy in swap and of PG_dirty, so that the folio may be dropped.
 * Return false if that cannot be done, or if the folio is mapped elsewhere too.
 */
static bool lazyfree_make_clean(struct folio *folio)
{
	bool ok = false;

	if (!folio_trylock(folio))
		return false;
	/* All of the folio is mapped here: if that is all, it is exclusive. */
	if (folio_mapcount(folio) == folio_nr_pages(folio) &&
	    (!folio_test_swapcache(folio) || folio_free_swap(folio))) {
		folio_clear_dirty(folio);
		ok = true;
	}
	folio_unlock(folio);
	return ok;
}

/* MADV_FREE for what one page table maps, see lazyfree_pte_range(). */
static noinline void lazyfree_ptes(struct mmu_gather *tlb,
				   struct vm_area_struct *vma, pmd_t *pmd,
				   unsigned long addr, unsigned long end)
{
	struct mm_struct *mm = tlb->mm;
	struct folio_batch fbatch;
	pte_t *start_pte, *pte, ptent;
	struct folio *folio;
	unsigned int nr;
	int nr_swap = 0;
	spinlock_t *ptl;	/* of the page table */

	folio_batch_init(&fbatch);
	tlb_change_page_size(tlb, PAGE_SIZE);
	start_pte = pte_offset_map_lock(mm, pmd, addr, &ptl);
	if (!start_pte)
		return;
	pte = start_pte;
	flush_tlb_batched_pending(mm);
	lazy_mmu_mode_enable();
	for (; addr != end; pte += nr, addr += PAGE_SIZE * nr) {
		nr = 1;
		ptent = ptep_get(pte);
		if (pte_none(ptent))
			continue;
		if (!pte_present(ptent)) {
			nr = lazyfree_nonpresent(mm, addr, end, pte, ptent, &nr_swap);
			continue;
		}

		folio = vm_normal_folio(vma, addr, ptent);
		if (!folio || folio_is_zone_device(folio))
			continue;

		if (folio_test_large(folio)) {
			nr = lazyfree_scan(folio, pte, &ptent, (end - addr) / PAGE_SIZE);
			if (nr < folio_nr_pages(folio)) {
				unsigned int first = pte_pfn(ptent) - folio_pfn(folio);
				int err;

				err = lazyfree_cut_folio(vma, addr, pte, folio, nr);
				if (!err)
					nr = 0;
				if (err != -EOPNOTSUPP)
					continue;

				if (folio_maybe_mapped_shared(folio))
					continue;
				if (!folio_trylock(folio))
					continue;
				folio_get(folio);
				lazyfree_flush(&fbatch);
				lazy_mmu_mode_disable();
				pte_unmap_unlock(start_pte, ptl);
				err = lazyfree_split_folio(folio, first, nr);
				folio_unlock(folio);
				folio_put(folio);
				start_pte = pte_offset_map_lock(mm, pmd, addr, &ptl);
				if (!start_pte)
					break;
				pte = start_pte;
				flush_tlb_batched_pending(mm);
				lazy_mmu_mode_enable();
				if (!err)
					nr = 0;
				continue;
			}
		}

		if ((folio_test_swapcache(folio) || folio_test_dirty(folio)) &&
		    !lazyfree_make_clean(folio))
			continue;

		if (pte_young(ptent) || pte_dirty(ptent)) {
			lazyfree_clear_ptes(vma, addr, pte, nr);
			tlb_remove_tlb_entries(tlb, pte, nr, addr);
		}
		lazyfree_add(&fbatch, folio);
	}

	if (nr_swap)
		add_mm_counter(mm, MM_SWAPENTS, nr_swap);
	if (start_pte) {
		lazyfree_flush(&fbatch);
		lazy_mmu_mode_disable();
		pte_unmap_unlock(start_pte, ptl);
	}
	cond_resched();
}

/**
 * lazyfree_pte_range - MADV_FREE for what one PMD entry maps
 * @pmd: the PMD entry.
 * @addr: where to start.
 * @end: where to end, within the same PMD entry.
 * @walk: the walk; its private data is the mmu_gather.
 *
 * Takes the place of madvise_free_pte_range() when madv_free_batch is on.
 *
 * Context: the mmap lock or the VMA lock held for read; may sleep.
 * Return: 0.
 */
int lazyfree_pte_range(pmd_t *pmd, unsigned long addr, unsigned long end,
		       struct mm_walk *walk)
{
	struct mmu_gather *tlb = walk->private;
	struct vm_area_struct *vma = walk->vma;

	if (pmd_trans_huge(*pmd)) {
		unsigned long next = pmd_addr_end(addr, end);

		if (next - addr != HPAGE_PMD_SIZE)
			lazyfree_split_pmd(vma, pmd, addr);
		else if (madvise_free_huge_pmd(tlb, vma, pmd, addr, next))
			return 0;
	}

	lazyfree_ptes(tlb, vma, pmd, addr, end);
	return 0;
}

/*
 * The switch.
 */

#ifdef CONFIG_SYSFS
static ssize_t madv_free_batch_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", madv_free_batch_enabled());
}

static ssize_t madv_free_batch_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	return thp_batch_switch_store(&madv_free_batch, buf, count);
}

static struct kobj_attribute madv_free_batch_attr =
	__ATTR_RW(madv_free_batch);

static int __init lazyfree_init(void)
{
	return thp_batch_create_knob(&madv_free_batch_attr);
}
late_initcall(lazyfree_init);
#endif /* CONFIG_SYSFS */
