// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// handle is a view of shared contents, like a plugin on one disk or server.
type handle struct {
	mem    *inmem.Journal
	closed context.Context //nolint:containedctx // ends with Close
	close  context.CancelFunc
}

var (
	_ journal.Journal  = (*handle)(nil)
	_ journal.IDLister = (*handle)(nil)
	_ journal.Querier  = (*handle)(nil)
)

func newHandle(mem *inmem.Journal) *handle {
	closed, cancel := context.WithCancel(context.Background())
	return &handle{mem, closed, cancel}
}

func (h *handle) check() error {
	if h.closed.Err() != nil {
		return fmt.Errorf("handle: %w", journal.ErrClosed)
	}
	return nil
}

func (h *handle) Append(ctx context.Context, writes []journal.Write) []error {
	if err := h.check(); err != nil {
		errs := make([]error, len(writes))
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", journal.ErrNotSent, err)
		}
		return errs
	}
	return h.mem.Append(ctx, writes)
}

func (h *handle) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		if err := h.check(); err != nil {
			yield(journal.Event{}, err)
			return
		}
		for e, err := range h.mem.Replay(ctx, id, from, to) {
			if closed := h.check(); closed != nil {
				yield(journal.Event{}, closed)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (h *handle) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	if err := h.check(); err != nil {
		return 0, err
	}
	return h.mem.HighestSequenceNr(ctx, id)
}

func (h *handle) DeleteTo(ctx context.Context, id string, to uint64) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.mem.DeleteTo(ctx, id, to)
}

func (h *handle) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := h.check(); err != nil {
			yield("", err)
			return
		}
		h.mem.PersistenceIDs(ctx, after)(yield)
	}
}

func (h *handle) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if err := h.check(); err != nil {
		return journal.Page{}, err
	}
	return h.mem.Query(ctx, q, after)
}

func (h *handle) End(ctx context.Context) (journal.Offset, error) {
	if err := h.check(); err != nil {
		return "", err
	}
	return h.mem.End(ctx)
}

func (h *handle) Await(ctx context.Context, after journal.Offset) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.closed, func() { cancel(h.check()) })() //nolint:contextcheck // two contexts end the wait
	if err := h.check(); err != nil {
		return err
	}
	return h.mem.Await(ctx, after)
}

func (h *handle) Close() error {
	h.close()
	return nil
}
