// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, journaltest.Config{
		Open: func(testing.TB) journal.Journal { return inmem.NewJournal() },
	})
}
