/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Switches and per-size counters of the paths that treat a large folio as one
 * thing.
 */
#ifndef __MM_THP_BATCH_H
#define __MM_THP_BATCH_H

#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

/**
 * enum thp_batch_stat_item - events counted per folio size
 * @WP_FAULT_REUSE: write faults that reused a large folio.
 * @WP_FAULT_REUSE_PTES: PTEs that these faults made writable.
 * @WP_FAULT_ALLOC: write faults served with a new large folio.
 * @WP_FAULT_FALLBACK: write faults that were to get one, but could not.
 * @WP_FAULT_FALLBACK_CHARGE: of these, because the charge to the memcg failed.
 * @WP_FAULT_COPIED_EXTRA: pages copied beyond the faulting ones, by the size of
 *	the folio that they were copied from.
 * @MADV_FREE_CUT: folios cut where an madvise() call started or ended.
 * @__THP_BATCH_STAT_COUNT: number of counters.
 *
 * Shown in hugepages-<size>kB/stats/, the names in lower case.
 */
enum thp_batch_stat_item {
	WP_FAULT_REUSE,
	WP_FAULT_REUSE_PTES,
	WP_FAULT_ALLOC,
	WP_FAULT_FALLBACK,
	WP_FAULT_FALLBACK_CHARGE,
	WP_FAULT_COPIED_EXTRA,
	MADV_FREE_CUT,
	__THP_BATCH_STAT_COUNT
};

#if defined(CONFIG_TRANSPARENT_HUGEPAGE) && defined(CONFIG_SYSFS)
struct thp_batch_stat {
	unsigned long stats[ilog2(MAX_PTRS_PER_PTE) + 1][__THP_BATCH_STAT_COUNT];
};

DECLARE_PER_CPU(struct thp_batch_stat, thp_batch_stats);

/**
 * count_thp_batch - add to a per-size counter
 * @order: order of the folio, 1 to PMD_ORDER.
 * @item: what to count.
 * @nr: how many to add.
 */
static inline void count_thp_batch(unsigned int order,
				   enum thp_batch_stat_item item, unsigned int nr)
{
	this_cpu_add(thp_batch_stats.stats[order][item], nr);
}

extern struct kobject *thp_batch_kobj;
extern const struct attribute_group thp_batch_stats_group;

ssize_t thp_batch_mode_show(char *buf, const char * const *names, int nr,
			    int mode);

/**
 * thp_batch_create_knob - show a switch in /sys/kernel/mm/transparent_hugepage/
 * @knob: the attribute.
 *
 * Context: once, from an initcall later than subsys_initcall().
 * Return: 0, or a negative error.
 */
static inline int __init thp_batch_create_knob(struct kobj_attribute *knob)
{
	/* No THP on this machine: nothing to switch. */
	if (!thp_batch_kobj)
		return 0;
	return sysfs_create_file(thp_batch_kobj, &knob->attr);
}
#else
static inline void count_thp_batch(unsigned int order,
				   enum thp_batch_stat_item item, unsigned int nr)
{
}

static inline int thp_batch_create_knob(struct kobj_attribute *knob)
{
	return 0;
}
#endif

/**
 * thp_batch_switch_store - set a switch that is on or off
 * @on: the switch.
 * @buf: what was written to its file.
 * @count: how much that is.
 *
 * Return: @count, or -EINVAL if it is neither 0 nor 1.
 */
static inline ssize_t thp_batch_switch_store(bool *on, const char *buf,
					     size_t count)
{
	unsigned int value;

	if (kstrtouint(buf, 10, &value) || value > 1)
		return -EINVAL;
	WRITE_ONCE(*on, value);
	return count;
}

#endif /* __MM_THP_BATCH_H */
