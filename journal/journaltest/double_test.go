// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

// double is an in-memory journal with all optional interfaces and capabilities that the suite can
// check. It is correct unless a bug is planted.
type double struct {
	*journaltest.Faulty
	mem *handle
	bug bug

	mu sync.RWMutex // held for writing by a restart
}

// bug replaces methods of a double. Nil fields leave them correct.
type bug struct {
	append   func(ctx context.Context, j journal.Journal, writes []journal.Write) []error
	replay   func(ctx context.Context, j journal.Journal, id string, from, to uint64) iter.Seq2[journal.Event, error]
	highest  func(ctx context.Context, j journal.Journal, id string) (uint64, error)
	delete   func(ctx context.Context, j journal.Journal, id string, to uint64) error
	list     func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error]
	close    func(j journal.Journal) error
	parallel func() int
	query    func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error)
	end      func(ctx context.Context, j journal.Querier) (journal.Offset, error)
	await    func(ctx context.Context, j journal.Querier, after journal.Offset) error
	// attach replaces Config.Attach.
	attach func(d *double) journal.Journal
	// survive changes the history of an ID that a restart restores, and the number of deleted
	// events at the beginning of this history. If survive is set, a restart copies ID by ID.
	survive func(id string, events []journal.Event, deleted int) ([]journal.Event, int)
	// stall replaces Config.Stall.
	stall func(d *double) (release func())
	local bool
}

func (d *double) Local() bool { return d.bug.local }

var (
	_ journal.Journal  = (*double)(nil)
	_ journal.IDLister = (*double)(nil)
	_ journal.Querier  = (*double)(nil)
	_ journal.Parallel = (*double)(nil)
)

func newDouble(b bug) *double { return newDoubleOn(inmem.NewJournal(), b) }

// newDoubleOn returns a double with contents that it shares.
func newDoubleOn(mem *inmem.Journal, b bug) *double {
	h := newHandle(mem)
	return &double{Faulty: journaltest.NewFaulty(h), mem: h, bug: b}
}

func (d *double) Append(ctx context.Context, writes []journal.Write) []error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.bug.append != nil {
		return d.bug.append(ctx, d.Faulty, writes)
	}
	return d.Faulty.Append(ctx, writes)
}

func (d *double) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	if d.bug.replay != nil {
		return d.bug.replay(ctx, d.Faulty, id, from, to)
	}
	return d.Faulty.Replay(ctx, id, from, to)
}

func (d *double) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	if d.bug.highest != nil {
		return d.bug.highest(ctx, d.Faulty, id)
	}
	return d.Faulty.HighestSequenceNr(ctx, id)
}

func (d *double) DeleteTo(ctx context.Context, id string, to uint64) error {
	if d.bug.delete != nil {
		return d.bug.delete(ctx, d.Faulty, id, to)
	}
	return d.Faulty.DeleteTo(ctx, id, to)
}

func (d *double) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	if d.bug.list != nil {
		return d.bug.list(ctx, d.mem, after)
	}
	return d.mem.PersistenceIDs(ctx, after)
}

func (d *double) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if d.bug.query != nil {
		return d.bug.query(ctx, d.mem, q, after)
	}
	return d.mem.Query(ctx, q, after)
}

func (d *double) End(ctx context.Context) (journal.Offset, error) {
	if d.bug.end != nil {
		return d.bug.end(ctx, d.mem)
	}
	return d.mem.End(ctx)
}

func (d *double) Await(ctx context.Context, after journal.Offset) error {
	if d.bug.await != nil {
		return d.bug.await(ctx, d.mem, after)
	}
	return d.mem.Await(ctx, after)
}

func (d *double) MaxAppends() int {
	if d.bug.parallel != nil {
		return d.bug.parallel()
	}
	return 4
}

func (d *double) Close() error {
	if d.bug.close != nil {
		return d.bug.close(d.Faulty)
	}
	return d.Faulty.Close()
}

// restart returns a double with the same contents and closes this one.
func (d *double) restart() *double {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bug.survive == nil {
		must(d.Faulty.Close())
		return newDoubleOn(d.mem.mem, d.bug)
	}
	next := newDouble(d.bug)
	ctx := context.Background()
	for id, err := range d.mem.PersistenceIDs(ctx, "") {
		must(err)
		highest, err := d.mem.HighestSequenceNr(ctx, id)
		must(err)
		events := make([]journal.Event, highest) // deleted events are blank
		for i := range events {
			events[i].SequenceNr = uint64(i + 1)
		}
		deleted := len(events)
		for e, err := range d.mem.Replay(ctx, id, 1, journal.MaxSequenceNr) {
			must(err)
			deleted = min(deleted, int(e.SequenceNr)-1)
			events[e.SequenceNr-1] = e
		}
		events, deleted = d.bug.survive(id, events, deleted)
		for i, e := range events {
			must(only(next.mem.Append(ctx, []journal.Write{{ID: id, Writer: e.Writer, Expect: uint64(i), Events: []journal.Event{e}}})))
		}
		must(next.mem.DeleteTo(ctx, id, uint64(deleted)))
	}
	must(d.Faulty.Close())
	return next
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprint("a double fails to restart: ", err))
	}
}

// only returns the slot of a single write.
func only(errs []error) error {
	if errs == nil {
		return nil
	}
	return errs[0]
}

// slots returns one slot per write, also if all writes were stored.
func slots(errs []error, writes []journal.Write) []error {
	if errs == nil {
		return make([]error, len(writes))
	}
	return errs
}

// all returns the events of a replay, or its error.
func all(seq iter.Seq2[journal.Event, error]) ([]journal.Event, error) {
	var events []journal.Event
	for e, err := range seq {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// again yields events, and then the error if it is not nil.
func again(events []journal.Event, err error) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(journal.Event{}, err)
		}
	}
}

// clone copies writes with their events, for bugs that change them.
func clone(writes []journal.Write) []journal.Write {
	writes = slices.Clone(writes)
	for i := range writes {
		writes[i].Events = slices.Clone(writes[i].Events)
	}
	return writes
}
