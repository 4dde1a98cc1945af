// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

var errPlanted = errors.New("planted")

var steps = []projectiontest.Step{
	projectiontest.BeforeLoad, projectiontest.BeforeSave, projectiontest.AfterSave, projectiontest.BeforeBegin,
	projectiontest.BeforeAdd, projectiontest.BeforeCommit, projectiontest.AfterCommit,
}

// plant makes the nth call of a step fail, either with an error, after which the process continues,
// or with a crash, which ends its context and makes all further calls fail. It returns whether the
// fault occurred.
func plant(table *projectiontest.Table, step projectiontest.Step, n int64, crash context.CancelFunc) *atomic.Bool {
	var count atomic.Int64
	var done atomic.Bool
	table.Fault = func(_ context.Context, at projectiontest.Step) error {
		if crash != nil && done.Load() {
			return errPlanted // the process has crashed
		}
		if at != step || count.Add(1) != n {
			return nil
		}
		done.Store(true)
		if crash != nil {
			crash()
		}
		return errPlanted
	}
	return &done
}

// After any failure or crash, the final read model corresponds to all events.
func TestExactlyOnceThroughFaults(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		for _, step := range steps {
			t.Run(fmt.Sprintf("%d workers %s", workers, step), func(t *testing.T) {
				t.Parallel()
				for n, hit := int64(1), true; hit; n++ {
					synctest.Test(t, func(t *testing.T) { hit = exactlyOnce(t, workers, step, n, n%2 == 0) })
				}
			})
		}
	}
}

func exactlyOnce(t *testing.T, workers int, step projectiontest.Step, n int64, crashes bool) bool {
	t.Helper()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(5, 60)
	s.encode(old(), "box|0", other{}) // decodes to nothing
	handler := sums(table)
	handler.Batch = 7
	cfg := config(s, table)
	cfg.Handler, cfg.Workers = handler, workers

	ctx, crash := context.WithCancel(t.Context())
	defer crash()
	if !crashes {
		crash = nil
	}
	hit := plant(table, step, n, crash)
	if err := create(t, cfg).CatchUp(ctx); err != nil && (crash == nil || ctx.Err() == nil) {
		t.Errorf("%s %d: CatchUp: %v", step, n, err)
	}
	table.Fault = nil
	s.fill(5, 11)
	p := catchUp(t, cfg)
	wantSums(t, table.Rows(), s.sums)
	if got := p.Status(); !got.CaughtUp || got.Lag != 0 {
		t.Errorf("%s %d: status %+v, want caught up", step, n, got)
	}
	return hit.Load()
}

// The read model always corresponds to the events up to the position.
func TestExactlyOncePositionAndResultAgree(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(3, 50)
	handler := sums(table)
	handler.Batch = 4
	cfg := config(s, table)
	cfg.Handler = handler
	for cut := 1; ; cut++ {
		ctx, cancel := context.WithCancel(t.Context())
		hit := plant(table, projectiontest.AfterCommit, 1, cancel)
		err := create(t, cfg).CatchUp(ctx)
		cancel()
		table.Fault = nil
		want := make(map[string]int64)
		page, queryErr := s.Journal.Query(t.Context(), journal.Criteria{Types: []string{"box"}}, "")
		if queryErr != nil {
			t.Fatal(queryErr)
		}
		position := stored(t, table)[0].Offset
		for _, e := range page.Events {
			if e.Offset.Compare(position) <= 0 {
				value, decodeErr := events().Decode(e.Manifest, e.Payload)
				if decodeErr != nil {
					t.Fatal(decodeErr)
				}
				if p, ok := value.(paid); ok {
					want[e.ID] += p.N
				}
			}
		}
		wantSums(t, table.Rows(), want)
		if !hit.Load() {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
	wantSums(t, table.Rows(), s.sums)
}

// Every event is handled at least once, and repeated only after the last saved position.
func TestAtLeastOnceThroughFaults(t *testing.T) {
	t.Parallel()
	for _, step := range []projectiontest.Step{projectiontest.BeforeLoad, projectiontest.BeforeSave, projectiontest.AfterSave} {
		for n := int64(1); n <= 6; n++ {
			synctest.Test(t, func(t *testing.T) {
				s, table, m := newSource(t), &projectiontest.Table{}, newModel()
				s.fill(5, 60)
				cfg := config(s, table)
				cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle, SaveEvery: 10}
				ctx, crash := context.WithCancel(t.Context())
				plant(table, step, n, crash)
				_ = create(t, cfg).CatchUp(ctx)
				crash()
				table.Fault = nil
				catchUp(t, cfg)
				wantSums(t, m.sums, s.sums)
				repeated := 0
				for _, times := range m.seen {
					repeated += times - 1
				}
				if repeated > 10 {
					t.Errorf("%s %d: %d events were handled again, want at most 10", step, n, repeated)
				}
			})
		}
	}
}

// crashed is the fault of all store calls of a crashed process.
func crashed(context.Context, projectiontest.Step) error { return errPlanted }

// A crash in the handler, after it has changed the read model, must not lose the event.
func TestAtLeastOnceCrashInHandler(t *testing.T) {
	t.Parallel()
	s, table, m := newSource(t), &projectiontest.Table{}, newModel()
	s.fill(1, 3)
	cfg := config(s, table)
	ctx, crash := context.WithCancel(t.Context())
	cfg.Handler = projection.AtLeastOnce[event]{Store: table, SaveEvery: 1, Handle: func(_ context.Context, e projection.Envelope[event]) error {
		if e.SequenceNr == 2 {
			table.Fault = crashed
			crash()
			return errPlanted
		}
		return m.handle(ctx, e)
	}}
	if err := create(t, cfg).CatchUp(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("CatchUp: %v, want the cause of its context", err)
	}
	table.Fault = nil
	cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle}
	catchUp(t, cfg)
	wantSums(t, m.sums, s.sums)
}

func TestAtMostOnceThroughFaults(t *testing.T) {
	t.Parallel()
	for _, step := range []projectiontest.Step{projectiontest.BeforeLoad, projectiontest.BeforeSave, projectiontest.AfterSave} {
		for n := int64(1); n <= 12; n++ {
			synctest.Test(t, func(t *testing.T) {
				s, table, m := newSource(t), &projectiontest.Table{}, newModel()
				s.fill(2, 10)
				cfg := config(s, table)
				cfg.Handler = projection.AtMostOnce[event]{Store: table, Handle: m.handle}
				ctx, crash := context.WithCancel(t.Context())
				plant(table, step, n, crash)
				_ = create(t, cfg).CatchUp(ctx)
				crash()
				table.Fault = nil
				catchUp(t, cfg)
				for e, times := range m.seen {
					if times > 1 {
						t.Errorf("%s %d: event %s was handled %d times, want at most once", step, n, e, times)
					}
				}
				if lost := 10 - len(m.seen); lost > 1 || lost == 1 && step != projectiontest.AfterSave {
					t.Errorf("%s %d: one crash lost %d events, want at most 1", step, n, lost)
				}
			})
		}
	}
}

// After a crash of the handler the position is already after the event.
func TestAtMostOnceCrashInHandler(t *testing.T) {
	t.Parallel()
	s, table, m := newSource(t), &projectiontest.Table{}, newModel()
	s.fill(1, 3)
	cfg := config(s, table)
	ctx, crash := context.WithCancel(t.Context())
	cfg.Handler = projection.AtMostOnce[event]{Store: table, Handle: func(_ context.Context, e projection.Envelope[event]) error {
		if e.SequenceNr == 2 {
			table.Fault = crashed
			crash()
			return errPlanted
		}
		return m.handle(ctx, e)
	}}
	if err := create(t, cfg).CatchUp(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("CatchUp: %v, want the cause of its context", err)
	}
	table.Fault = nil
	cfg.Handler = projection.AtMostOnce[event]{Store: table, Handle: m.handle}
	catchUp(t, cfg)
	wantSums(t, m.sums, map[string]int64{"box|0": 1 + 3})
}
