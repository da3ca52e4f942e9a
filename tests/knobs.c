// SPDX-License-Identifier: GPL-2.0
/*
 * The run-time switches: every value that a switch lists can be set and is
 * then the one it shows; anything else is refused and leaves it as it was.
 */
#include "common.h"

static const char *const knobs[] = {
	"wp_reuse", "wp_copy", "wp_copy_max_kb", "mincore_batch", "madv_free_batch",
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

static void check_words(const char *knob, char *list)
{
	char all[256], before[64];
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

	ok = true;
	snprintf(before, sizeof(before), "%s", knob_get(knob));
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_words); i++) {
		int ret = put(knob, bad_words[i]);

		/* Nothing is written for an empty string: no error, no change. */
		if (ret != -EINVAL && bad_words[i][0]) {
			ksft_print_msg("%s: \"%s\": %d, expected EINVAL\n", knob,
				       bad_words[i], ret);
			ok = false;
		}
		if (strcmp(before, knob_get(knob))) {
			ksft_print_msg("%s: \"%s\" changed it from %s to %s\n",
				       knob, bad_words[i], before, knob_get(knob));
			ok = false;
		}
	}
	ksft_test_result(ok, "%s: a value not listed is EINVAL and changes nothing\n", knob);
}

static void check_number(const char *knob, char *val)
{
	char before[64], num[32];
	bool ok = true;
	int ret;

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
	snprintf(before, sizeof(before), "%s", knob_get(knob));
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_numbers); i++) {
		ret = put(knob, bad_numbers[i]);
		if (ret != -EINVAL && ret != -ERANGE && bad_numbers[i][0]) {
			ksft_print_msg("%s: \"%s\": %d, expected EINVAL\n", knob,
				       bad_numbers[i], ret);
			ok = false;
		}
		if (strcmp(before, knob_get(knob))) {
			ksft_print_msg("%s: \"%s\" changed it from %s to %s\n",
				       knob, bad_numbers[i], before, knob_get(knob));
			ok = false;
		}
	}
	ksft_test_result(ok, "%s: a value not listed is EINVAL and changes nothing\n", knob);
}

int main(void)
{
	settings_begin();
	ksft_set_plan(2 * ARRAY_SIZE(knobs));
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++) {
		char path[160], list[256];

		if (!have_knob(knobs[i])) {
			ksft_test_result_skip("%s: kernel has no such switch\n", knobs[i]);
			ksft_test_result_skip("%s: kernel has no such switch\n", knobs[i]);
			continue;
		}
		snprintf(path, sizeof(path), THP_DIR "%s", knobs[i]);
		file_read(path, list, sizeof(list));
		if (strchr(list, '['))
			check_words(knobs[i], list);
		else
			check_number(knobs[i], list);
	}
	settings_restore();
	ksft_finished();
}
