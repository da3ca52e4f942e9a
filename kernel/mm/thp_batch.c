// SPDX-License-Identifier: GPL-2.0
/*
 * Switches and per-size counters of the paths that treat a large folio as one
 * thing: the files beside those of mm/huge_memory.c in
 * /sys/kernel/mm/transparent_hugepage/.
 *
 * The counters are kept apart from enum mthp_stat_item, on whose header every
 * object of the kernel depends.
 */
#include "thp_batch.h"

#ifdef CONFIG_SYSFS
DEFINE_PER_CPU(struct thp_batch_stat, thp_batch_stats);

/* /sys/kernel/mm/transparent_hugepage, set when that has been created. */
struct kobject *thp_batch_kobj;

/**
 * thp_batch_mode_show - list the modes of a switch
 * @buf: the page that is shown.
 * @names: names of the modes.
 * @nr: how many.
 * @mode: the one that is in force, put into brackets.
 *
 * Return: bytes written to @buf.
 */
ssize_t thp_batch_mode_show(char *buf, const char * const *names, int nr,
			    int mode)
{
	ssize_t len = 0;
	int i;

	for (i = 0; i < nr; i++)
		len += sysfs_emit_at(buf, len, i == mode ? "%s[%s]" : "%s%s",
				     i ? " " : "", names[i]);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t thp_batch_stat_show(struct kobject *kobj, char *buf,
				   enum thp_batch_stat_item item)
{
	int order = to_thpsize(kobj)->order;
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(thp_batch_stats, cpu).stats[order][item];

	return sysfs_emit(buf, "%lu\n", sum);
}

#define THP_BATCH_STAT_ATTR(_name, _item)				\
static ssize_t _name##_show(struct kobject *kobj,			\
			    struct kobj_attribute *attr, char *buf)	\
{									\
	return thp_batch_stat_show(kobj, buf, _item);			\
}									\
static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

THP_BATCH_STAT_ATTR(wp_fault_reuse, WP_FAULT_REUSE);
THP_BATCH_STAT_ATTR(wp_fault_reuse_ptes, WP_FAULT_REUSE_PTES);
THP_BATCH_STAT_ATTR(wp_fault_alloc, WP_FAULT_ALLOC);
THP_BATCH_STAT_ATTR(wp_fault_fallback, WP_FAULT_FALLBACK);
THP_BATCH_STAT_ATTR(wp_fault_fallback_charge, WP_FAULT_FALLBACK_CHARGE);
THP_BATCH_STAT_ATTR(wp_fault_copied_extra, WP_FAULT_COPIED_EXTRA);
THP_BATCH_STAT_ATTR(madv_free_cut, MADV_FREE_CUT);

static struct attribute *thp_batch_stats_attrs[] = {
	&wp_fault_reuse_attr.attr,
	&wp_fault_reuse_ptes_attr.attr,
	&wp_fault_alloc_attr.attr,
	&wp_fault_fallback_attr.attr,
	&wp_fault_fallback_charge_attr.attr,
	&wp_fault_copied_extra_attr.attr,
	&madv_free_cut_attr.attr,
	NULL,
};

const struct attribute_group thp_batch_stats_group = {
	.name = "stats",
	.attrs = thp_batch_stats_attrs,
};
#endif /* CONFIG_SYSFS */
