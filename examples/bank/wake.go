// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// wake starts the accounts whose transfers have not ended, so that what a crash
// left in flight arrives even if nobody asks for its source again. It looks at
// every account without starting it, and returns how many it started.
func (b *bank) wake(ctx context.Context) (started int, err error) {
	lister, ok := journal.As[journal.IDLister](b.journal)
	if !ok {
		return 0, nil
	}
	for pid, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return started, fmt.Errorf("list the accounts: %w", err)
		}
		kind, id := journal.SplitID(pid)
		if kind != AccountTypeName {
			continue
		}
		folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{})
		if err != nil {
			return started, err
		}
		if account, ok := folded.State.(*Account); !ok || account.Transfers.Unconfirmed() == 0 {
			continue
		}
		if err := eventsourcing.Tell(ctx, b.account(id), Command(Lookup{})); err != nil {
			return started, err
		}
		started++
	}
	return started, nil
}
