// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"fmt"
	"slices"

	"github.com/refold-io/refold/journal"
)

// Append implements journal.Journal. Writes of one ID behind a struck one share
// its fate, as they would in a journal that stores them in order.
func (f *Faulty) Append(ctx context.Context, writes []journal.Write) []error {
	f.count(OpAppend, len(writes))
	struck := f.plan(ctx, writes)
	if struck == nil {
		return f.inner.Append(ctx, writes)
	}
	for _, s := range struck {
		if s != nil && s.fault.Do == Stall {
			if err := s.wait(ctx); err != nil {
				return slices.Repeat([]error{err}, len(writes))
			}
		}
	}
	errs := f.pass(ctx, writes, struck)
	failed := make(map[string]bool) // IDs with a failed write
	for i, s := range struck {
		if s != nil {
			errs[i] = s.outcome(&writes[i], errs[i], failed[writes[i].ID])
		}
		if errs[i] != nil {
			failed[writes[i].ID] = true
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errs
}

// plan returns what strikes each write, nil if nothing does, and postpones what
// is late.
func (f *Faulty) plan(ctx context.Context, writes []journal.Write) []*strike {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) == 0 {
		return nil
	}
	struck := make([]*strike, len(writes))
	fate := make(map[string]*strike)
	for i, w := range writes {
		s := fate[w.ID]
		if s == nil {
			s = f.strike(Call{Op: OpAppend, ID: w.ID, Write: w})
		}
		if s == nil {
			continue
		}
		fate[w.ID], struck[i] = s, s
		if s.fault.WholeCall {
			struck = slices.Repeat([]*strike{s}, len(writes))
			break
		}
	}
	if len(fate) == 0 {
		return nil
	}
	for i, s := range struck {
		if s == nil || s.fault.Do != Late || slices.Contains(struck[:i], s) {
			continue
		}
		late := pick(writes, func(k int) bool { return struck[k] == s })
		f.postpone(s.Injected, func() int {
			return stored(f.inner.Append(context.WithoutCancel(ctx), late), len(late))
		})
	}
	return struck
}

// pass sends on the writes that reach the inner journal and returns one slot for
// each write.
func (f *Faulty) pass(ctx context.Context, writes []journal.Write, struck []*strike) []error {
	passes := func(i int) bool {
		return struck[i] == nil || struck[i].fault.Do == Store || struck[i].fault.Do == Stall
	}
	errs := make([]error, len(writes))
	through := pick(writes, passes)
	if len(through) == 0 {
		return errs
	}
	inner := f.inner.Append(ctx, through)
	for i := range writes {
		if inner != nil && passes(i) {
			errs[i], inner = inner[0], inner[1:]
		}
	}
	return errs
}

// outcome returns the slot of a struck write. inner is what the inner journal
// said if it was asked, behind whether an earlier write of the ID has failed.
func (s *strike) outcome(w *journal.Write, inner error, behind bool) error {
	switch do := s.fault.Do; {
	case do == Lose, do == Store, do == Late:
		return s.err()
	case do == Stall:
		return inner
	case behind:
		return journal.ErrSkipped
	case do == Reject:
		return &journal.RejectedError{ID: w.ID, Reason: s.err()}
	case do == Conflict:
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect}
	default:
		return fmt.Errorf("%w: %w", journal.ErrNotSent, s.err())
	}
}

// pick copies some of the writes, with their slices of events: those belong to
// the caller once Append has returned.
func pick(writes []journal.Write, picked func(i int) bool) []journal.Write {
	var out []journal.Write
	for i, w := range writes {
		if picked(i) {
			w.Events = slices.Clone(w.Events)
			out = append(out, w)
		}
	}
	return out
}

// stored counts the writes that an Append call has stored.
func stored(errs []error, writes int) int {
	for _, err := range errs {
		if err != nil {
			writes--
		}
	}
	return writes
}
