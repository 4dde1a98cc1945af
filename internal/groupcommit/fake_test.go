// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/refold-io/refold/internal/groupcommit"
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

// arrival is a call of Append that waits for its result.
type arrival struct {
	ctx    context.Context //nolint:containedctx // it belongs to the call
	writes []journal.Write // a copy
	answer chan<- []error
}

// names returns "id@expect" of each write.
func (a arrival) names() []string {
	var names []string
	for _, w := range a.writes {
		names = append(names, fmt.Sprintf("%s@%d", w.ID, w.Expect))
	}
	return names
}

// manual returns an Append that hands each call to the test.
func manual() (func(context.Context, []journal.Write) []error, <-chan arrival) {
	calls := make(chan arrival)
	return func(ctx context.Context, writes []journal.Write) []error {
		answer := make(chan []error)
		calls <- arrival{ctx, slices.Clone(writes), answer}
		return <-answer
	}, calls
}

// entity is an Owner that records its calls.
type entity struct {
	id     string
	stream groupcommit.Stream
	log    *ledger
	seqNr  uint64
	room   func() // called instead of recording the call
	exit   bool   // Written calls runtime.Goexit
}

// ledger contains the outcomes of all entities of a test, in order.
type ledger struct {
	mu      sync.Mutex
	entries []string
	errs    map[string]error
}

func newLedger() *ledger { return &ledger{errs: map[string]error{}} }

func (l *ledger) entity(id string) *entity { return &entity{id: id, log: l} }

func (l *ledger) record(entry string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
	l.errs[entry] = err
}

// take returns the entries since the last take.
func (l *ledger) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.entries
	l.entries = nil
	return taken
}

// err returns the last recorded outcome of an entry.
func (l *ledger) err(entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errs[entry]
}

func (e *entity) Written(r *groupcommit.Request, err error) {
	e.log.record(fmt.Sprintf("%s@%d", e.id, r.Write.Expect), err)
	if e.exit {
		runtime.Goexit()
	}
}

func (e *entity) Room() {
	if e.room != nil {
		e.room()
		return
	}
	e.log.record("room "+e.id, nil)
}

// write returns the entity's next write, of n events with a payload each.
func (e *entity) write(payloads ...string) *groupcommit.Request {
	r := &groupcommit.Request{
		Write:  journal.Write{ID: e.id, Writer: "w", Expect: e.seqNr},
		Stream: &e.stream,
		Owner:  e,
	}
	for _, p := range payloads {
		e.seqNr++
		r.Write.Events = append(r.Write.Events, journal.Event{SequenceNr: e.seqNr, Manifest: "m", Payload: []byte(p)})
	}
	return r
}

// submit submits the next write and fails the test if there is no room.
func (e *entity) submit(t *testing.T, w *groupcommit.Writer) {
	t.Helper()
	if r := e.write("x"); !w.Submit(r) {
		t.Fatalf("no room for %s@%d", r.Write.ID, r.Write.Expect)
	}
}

func newWriter(t *testing.T, j journal.Journal, cfg journal.WriterConfig) *groupcommit.Writer {
	t.Helper()
	w, err := groupcommit.New(j, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closeWriter(t *testing.T, w *groupcommit.Writer) {
	t.Helper()
	if err := w.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, subject string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", subject, got, want)
	}
}
