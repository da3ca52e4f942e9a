// SPDX-License-Identifier: GPL-2.0
/*
 * The run-time switches: every value that a switch lists can be set and is
 * then the one it shows; anything else is refused and leaves it as it was.
 */
#include "common.h"

/* With numbers that are out of their range. */
static const struct {
	const char *name, *bad[2];
} knobs[] = {
	{ "wp_reuse", { } },
	{ "wp_copy", { } },
	{ "wp_copy_max_kb", { "2049", "4294967295" } },
	{ "wp_copy_dense_percent", { "49", "101" } },
	{ "mincore_batch", { } },
	{ "madv_free_batch", { } },
};

static int put(const char *knob, const char *val)
{
	char path[160];

	snprintf(path, sizeof(path), THP_DIR "%s", knob);
	return file_write(path, val);
}

static const char *const bad_words[] = {
	"", "\n", " ", "nonsense", "nev", "neverr", "whole adaptive", "[never]",
	"-1", "2",
};

static const char *const bad_numbers[] = {
	"", "\n", "nonsense", "-1", "1x", "99999999999999999999",
};

static bool refused(const char *knob, const char *val)
{
	char before[64];
	int ret;

	snprintf(before, sizeof(before), "%s", knob_get(knob));
	ret = put(knob, val);
	if (ret != -EINVAL && ret != -ERANGE && val[0]) {
		ksft_print_msg("%s: \"%s\": %d, expected EINVAL\n", knob, val, ret);
		return false;
	}
	if (strcmp(before, knob_get(knob))) {
		ksft_print_msg("%s: \"%s\" changed it from %s to %s\n", knob, val,
			       before, knob_get(knob));
		return false;
	}
	return true;
}

static void check_words(const char *knob, char *list)
{
	char all[256];
	bool ok = true;
	char *save;

	snprintf(all, sizeof(all), "%s", list);
	for (char *w = strtok_r(all, " []\n", &save); w;
	     w = strtok_r(NULL, " []\n", &save)) {
		char nl[80];
		int ret = knob_set(knob, w);

		if (ret || strcmp(knob_get(knob), w)) {
			ksft_print_msg("%s: set %s: %s, shows %s\n", knob, w,
				       strerror(-ret), knob_get(knob));
			ok = false;
		}
		snprintf(nl, sizeof(nl), "%s\n", w);
		ok &= !put(knob, nl);
	}
	ksft_test_result(ok, "%s: every value listed can be set\n", knob);

	/* Nothing is written for an empty string: no error, no change. */
	ok = true;
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_words); i++)
		ok &= refused(knob, bad_words[i]);
	ksft_test_result(ok, "%s: a value not listed is EINVAL and changes nothing\n", knob);
}

static void check_number(const char *knob, const char *const bad[2], char *val)
{
	char num[32], before[64];
	bool ok = true;

	snprintf(before, sizeof(before), "%s", knob_get(knob));
	snprintf(num, sizeof(num), "%ld", atol(val));
	ok = !knob_set(knob, num) && !strcmp(before, knob_get(knob));
	if (!strcmp(val, "0\n") || !strcmp(val, "1\n")) {
		ok &= !put(knob, "0") && !strcmp(knob_get(knob), "0");
		ok &= !put(knob, "1") && !strcmp(knob_get(knob), "1");
		ok &= put(knob, "2") == -EINVAL && !strcmp(knob_get(knob), "1");
	}
	ksft_test_result(ok, "%s: every value listed can be set\n", knob);

	ok = true;
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_numbers); i++)
		ok &= refused(knob, bad_numbers[i]);
	for (unsigned int i = 0; i < 2 && bad[i]; i++)
		ok &= refused(knob, bad[i]);
	ksft_test_result(ok, "%s: a value not listed is EINVAL and changes nothing\n", knob);
}

int main(void)
{
	settings_begin();
	ksft_set_plan(2 * ARRAY_SIZE(knobs));
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++) {
		char path[160], list[256];

		if (!have_knob(knobs[i].name)) {
			ksft_test_result_skip("%s: kernel has no such switch\n", knobs[i].name);
			ksft_test_result_skip("%s: kernel has no such switch\n", knobs[i].name);
			continue;
		}
		snprintf(path, sizeof(path), THP_DIR "%s", knobs[i].name);
		file_read(path, list, sizeof(list));
		if (strchr(list, '['))
			check_words(knobs[i].name, list);
		else
			check_number(knobs[i].name, knobs[i].bad, list);
	}
	settings_restore();
	ksft_finished();
}
