// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// wakeInterval is how often at least it is looked for transfers that nobody carries on.
const wakeInterval = time.Minute

// keepAwake sees to it that transfers go on whose source was on a branch that has gone, or left memory when its shard moved: it
// is started again where its shard is now. One branch does so for all.
func (b *branch) keepAwake(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	changes, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range b.node.Changes(ctx, cluster.MemberRemoved) {
			select {
			case changes <- struct{}{}:
			default: // it looks soon anyway
			}
		}
	}()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(wakeInterval)
	defer tick.Stop()
	for {
		woken, err := b.wake(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.logger.WarnContext(ctx, "accounts with pending transfers not started", slog.Any("error", err))
		case woken > 0:
			b.logger.InfoContext(ctx, "accounts with pending transfers are asked to go on", slog.Int("accounts", woken))
		}
		select {
		case <-changes:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// wake sends a command that does nothing to each account whose transfers have not ended, wherever it is. It returns how many
// these are.
func (b *branch) wake(ctx context.Context) (woken int, err error) {
	lister, ok := journal.As[journal.IDLister](b.journal)
	if !ok {
		return 0, fmt.Errorf("wake: %w: the journal can't list what it holds", eventsourcing.ErrInvalid)
	}
	var first error
	for pid, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return woken, fmt.Errorf("wake: list the accounts: %w", err)
		}
		kind, id := journal.SplitID(pid)
		if kind != AccountTypeName {
			continue
		}
		pending, err := b.pending(ctx, id)
		if err == nil && pending {
			woken++
			err = eventsourcing.Tell(ctx, b.account(id), Lookup{})
		}
		if err != nil && first == nil {
			first = fmt.Errorf("wake account %s: %w", id, err)
		}
	}
	return woken, first
}

// pending reports whether an account has transfers that have not ended.
func (b *branch) pending(ctx context.Context, id string) (bool, error) {
	folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{})
	if err != nil {
		return false, err
	}
	account, ok := folded.State.(*Account)
	return ok && account.Transfers.Unconfirmed() > 0, nil
}
