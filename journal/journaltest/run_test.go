// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

// TestSound runs all checks on a correct journal that has all capabilities.
func TestSound(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, config(func() bug { return bug{} }))
}

// config returns a Config that opens a double with a bug.
func config(plant func() bug) journaltest.Config {
	return journaltest.Config{
		Open:   func(testing.TB) journal.Journal { return newDouble(plant()) },
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal { return asDouble(tb, j).restart() },
		Attach: func(tb testing.TB, j journal.Journal) journal.Journal {
			d := asDouble(tb, j)
			if d.bug.attach != nil {
				return d.bug.attach(d)
			}
			return newDoubleOn(d.mem.mem, d.bug)
		},
		Stall: func(tb testing.TB, j journal.Journal) func() {
			d := asDouble(tb, j)
			if d.bug.stall != nil {
				return d.bug.stall(d)
			}
			return d.Inject(journaltest.Fault{Do: journaltest.Late}).Release
		},
	}
}

func asDouble(tb testing.TB, j journal.Journal) *double {
	tb.Helper()
	d, ok := j.(*double)
	if !ok {
		tb.Fatalf("the suite passes a %T to Reopen, want the journal that Open returned", j)
	}
	return d
}
