// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// The event types. paid is a payment into a box.
type (
	event  interface{ isEvent() }
	paid   struct{ N int64 }
	paidV1 struct{ Amounts []int64 }
	other  struct{ N int64 } // not an event type of the projection
)

func (paid) isEvent() {}

func events() *codec.Registry {
	return codec.Types(
		codec.Name[paid]("paid").Version(2),
		codec.Split("paid", 1, func(old paidV1) ([]any, error) {
			var parts []any
			for _, n := range old.Amounts {
				parts = append(parts, paid{N: n})
			}
			return parts, nil
		}),
		codec.Name[other]("other"),
		codec.Removed("greeted"),
	)
}

// old returns the registry of an older version of the program.
func old() *codec.Registry {
	return codec.Types(codec.Name[paidV1]("paid"), codec.Name[other]("greeted"))
}

// source is a journal with faults that a test fills.
type source struct {
	*inmem.Journal
	// query is called before each Query.
	query func(ctx context.Context, after journal.Offset) error

	t    testing.TB
	nrs  map[string]uint64
	sums map[string]int64 // sum of the payments into each box
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{Journal: inmem.NewJournal(), t: t, nrs: make(map[string]uint64), sums: make(map[string]int64)}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *source) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if s.query != nil {
		if err := s.query(ctx, after); err != nil {
			return journal.Page{}, err
		}
	}
	return s.Journal.Query(ctx, q, after)
}

// store appends an encoded event.
func (s *source) store(id, manifest string, payload []byte) {
	s.t.Helper()
	e := journal.Event{SequenceNr: s.nrs[id] + 1, Time: time.Now().UTC().Truncate(time.Microsecond), Manifest: manifest, Payload: payload}
	if errs := s.Append(context.Background(), []journal.Write{{ID: id, Writer: "w", Expect: s.nrs[id], Events: []journal.Event{e}}}); errs != nil {
		s.t.Fatal(errs)
	}
	s.nrs[id]++
}

func (s *source) encode(r *codec.Registry, id string, v any) {
	s.t.Helper()
	manifest, payload, err := r.Encode(v)
	if err != nil {
		s.t.Fatal(err)
	}
	s.store(id, manifest, payload)
}

// pay appends an event.
func (s *source) pay(id string, n int64) {
	s.t.Helper()
	s.encode(events(), id, paid{N: n})
	s.sums[id] += n
}

// fill appends events to a number of boxes in turn.
func (s *source) fill(boxes, count int) {
	s.t.Helper()
	for i := range count {
		s.pay(fmt.Sprintf("box|%d", i%boxes), int64(i+1))
	}
}

// config returns a projection that sums payments by box, exactly once, into a table.
func config(s *source, table *projectiontest.Table) projection.Config[event] {
	return projection.Config[event]{
		Name: "sums", Journal: s, Criteria: journal.Criteria{Types: []string{"box"}}, Events: events(),
		Handler: sums(table),
	}
}

func sums(table *projectiontest.Table) projection.ExactlyOnce[event, *projectiontest.Rows] {
	return projection.ExactlyOnce[event, *projectiontest.Rows]{
		Store: table,
		Handle: func(ctx context.Context, tx *projectiontest.Rows, events []projection.Envelope[event]) error {
			for _, e := range events {
				if err := add(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		},
		Clear: func(_ context.Context, tx *projectiontest.Rows) error {
			tx.Clear()
			return nil
		},
	}
}

func add(ctx context.Context, tx *projectiontest.Rows, e projection.Envelope[event]) error {
	p, ok := e.Event.(paid)
	if !ok {
		return fmt.Errorf("unexpected type %T", e.Event)
	}
	return tx.Add(ctx, e.ID, p.N)
}

// model is a read model without transactions.
type model struct {
	mu   sync.Mutex
	sums map[string]int64
	seen map[string]int // how often each event was handled
}

func newModel() *model { return &model{sums: make(map[string]int64), seen: make(map[string]int)} }

func key(e projection.Envelope[event]) string {
	return fmt.Sprintf("%s %d.%d", e.ID, e.SequenceNr, e.Part)
}

func (m *model) handle(_ context.Context, e projection.Envelope[event]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[key(e)]++; m.seen[key(e)] == 1 {
		p, ok := e.Event.(paid)
		if !ok {
			return fmt.Errorf("unexpected type %T", e.Event)
		}
		m.sums[e.ID] += p.N
	}
	return nil
}

func (m *model) clear(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sums)
	clear(m.seen)
	return nil
}

func (m *model) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

func create(t *testing.T, cfg projection.Config[event]) *projection.Projection[event] {
	t.Helper()
	p, err := projection.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func catchUp(t *testing.T, cfg projection.Config[event]) *projection.Projection[event] {
	t.Helper()
	p := create(t, cfg)
	if err := p.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs a projection until the returned function is called, which returns the error of Run.
func start(t *testing.T, p *projection.Projection[event]) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	return func() error {
		cancel()
		return <-result
	}
}

func wantStopped(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want the cause of its context", err)
	}
}

func wantSums(t *testing.T, got, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("the read model is %v, want %v", short(got), short(want))
	}
}

func short(m map[string]int64) string { return fmt.Sprintf("%.400s", fmt.Sprint(m)) }

// stored returns the position of a projection.
func stored(t *testing.T, store projection.Store) []projection.Position {
	t.Helper()
	positions, err := store.Load(context.Background(), "sums")
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

// outage is a fault that a test switches on and off.
type outage struct {
	f atomic.Pointer[func(ctx context.Context) error]
}

func (o *outage) begin(f func(ctx context.Context) error) { o.f.Store(&f) }
func (o *outage) end()                                    { o.f.Store(nil) }

// query is the fault of a source. fault is the fault of a table.
func (o *outage) query(ctx context.Context, _ journal.Offset) error { return o.check(ctx) }

func (o *outage) fault(ctx context.Context, _ projectiontest.Step) error { return o.check(ctx) }

func (o *outage) check(ctx context.Context) error {
	if f := o.f.Load(); f != nil {
		return (*f)(ctx)
	}
	return nil
}

func planted(context.Context) error { return errPlanted }

func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
