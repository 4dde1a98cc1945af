// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/refold-io/refold/journal"
)

// fake is a journal whose calls are functions of the test.
type fake struct {
	append  func(ctx context.Context, writes []journal.Write) []error
	highest func(ctx context.Context, id string) (uint64, error)
	delete  func(ctx context.Context, id string, to uint64) error
	replay  func(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error]
	close   func() error
}

func (f *fake) Append(ctx context.Context, writes []journal.Write) []error {
	return f.append(ctx, writes)
}

func (f *fake) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	return f.highest(ctx, id)
}

func (f *fake) DeleteTo(ctx context.Context, id string, to uint64) error {
	return f.delete(ctx, id, to)
}

func (f *fake) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return f.replay(ctx, id, from, to)
}

func (f *fake) Close() error { return f.close() }

// parallel is a fake that allows several calls in flight.
type parallel struct {
	fake
	max int
}

func (p *parallel) MaxAppends() int { return p.max }

func expect(t *testing.T, subject string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", subject, got, want)
	}
}
