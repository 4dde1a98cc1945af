// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

func position(first, count int, offset journal.Offset) projection.Position {
	return projection.Position{Slices: journal.Slices{First: first, Count: count}, Offset: offset}
}

func TestArrange(t *testing.T) {
	t.Parallel()
	type list = []projection.Position
	for _, c := range []struct {
		name    string
		stored  list
		workers int
		want    list
	}{
		{"new", nil, 1, list{position(0, 1024, "")}},
		{"new for two", nil, 2, list{position(0, 512, ""), position(512, 512, "")}},
		{"the same", list{position(0, 512, "1"), position(512, 512, "2")}, 2, list{position(0, 512, "1"), position(512, 512, "2")}},
		{"more", list{position(0, 512, "1"), position(512, 512, "2")}, 4, list{position(0, 256, "1"), position(256, 256, "1"), position(512, 256, "2"), position(768, 256, "2")}},
		{"fewer", list{position(0, 512, "1"), position(512, 512, "2")}, 1, list{position(0, 512, "1"), position(512, 512, "2")}},
		{"mixed", list{position(0, 512, "1"), position(512, 256, "2"), position(768, 256, "3")}, 4, list{position(0, 256, "1"), position(256, 256, "1"), position(512, 256, "2"), position(768, 256, "3")}},
		{"a gap", list{position(0, 256, "1"), position(512, 512, "2")}, 1, nil},
		{"an overlap", list{position(0, 512, "1"), position(256, 768, "2")}, 1, nil},
		{"no end", list{position(0, 512, "1")}, 1, nil},
		{"no beginning", list{position(512, 512, "1")}, 1, nil},
		{"beyond the end", list{position(0, 512, "1"), position(512, 1024, "1")}, 1, nil},
		{"odd ranges", list{position(0, 1000, "1"), position(1000, 24, "2")}, 16, nil},
	} {
		got, err := projection.Arrange(c.stored, c.workers)
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
		if err != nil && !errors.Is(err, projection.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", c.name, err)
		}
	}
}

// The number of workers changes, and each event counts once.
func TestWorkersChange(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	for _, workers := range []int{2, 8, 1, 4, 64} {
		s.fill(100, 350)
		handler := sums(table)
		handler.Batch = 9
		cfg := config(s, table)
		cfg.Handler, cfg.Workers = handler, workers
		// Stop half way, so that the positions of the workers differ.
		ctx, cancel := context.WithCancel(t.Context())
		plant(table, projectiontest.BeforeCommit, 12, cancel)
		_ = create(t, cfg).CatchUp(ctx)
		cancel()
		table.Fault = nil
	}
	cfg := config(s, table)
	p := catchUp(t, cfg)
	wantSums(t, table.Rows(), s.sums)
	if got := len(p.Status().Workers); got != 64 {
		t.Errorf("%d workers, want the 64 whose ranges are stored", got)
	}
	if err := p.Rebuild(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.CatchUp(t.Context()); err != nil {
		t.Error(err)
	}
	wantSums(t, table.Rows(), s.sums)
	if got := stored(t, table); len(got) != 1 {
		t.Errorf("%d ranges after a rebuild, want the configured 1", len(got))
	}
}

// Workers run concurrently, each on its slices.
func TestWorkersRunConcurrently(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	for quarter := range 4 {
		n := 0
		for journal.SliceOf(fmt.Sprintf("box|%d", n))/256 != quarter {
			n += 977
		}
		for range 20 {
			s.pay(fmt.Sprintf("box|%d", n), 1)
		}
	}
	var meet sync.WaitGroup
	meet.Add(4)
	var mu sync.Mutex
	slicesOf := make(map[journal.Slices]bool)
	m := newModel()
	cfg := config(s, nil)
	cfg.Workers = 4
	cfg.Observer.Batch = func(i projection.BatchInfo) {
		mu.Lock()
		defer mu.Unlock()
		slicesOf[i.Slices] = true
	}
	var met sync.Map
	cfg.Handler = projection.AtLeastOnce[event]{Store: new(projection.Memory), Handle: func(ctx context.Context, e projection.Envelope[event]) error {
		if _, seen := met.LoadOrStore(journal.SliceOf(e.ID)/256, true); !seen {
			meet.Done()
		}
		meet.Wait() // hangs unless all four workers run
		return m.handle(ctx, e)
	}}
	catchUp(t, cfg)
	wantSums(t, m.sums, s.sums)
	if len(slicesOf) != 4 {
		t.Errorf("the workers have the ranges %v, want 4 ranges", slicesOf)
	}
}

// Two processes run the same projection. If both handle the same events, one of them is fenced.
// Each event counts once.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		handler := sums(table)
		handler.Batch = 3
		var projections []*projection.Projection[event]
		var stops []func() error
		for _, workers := range []int{1, 2, 2} {
			cfg := config(s, table)
			cfg.Handler, cfg.Workers = handler, workers
			p := create(t, cfg)
			projections, stops = append(projections, p), append(stops, start(t, p))
			s.fill(10, 50)
		}
		for range 20 {
			time.Sleep(2 * time.Second)
			s.fill(10, 30)
		}
		time.Sleep(2 * time.Minute)
		wantSums(t, table.Rows(), s.sums)
		restarts := uint64(0)
		for _, p := range projections {
			restarts += p.Status().Restarts
			if len(p.Status().Workers) != 2 {
				t.Errorf("%d workers, want 2 after one process has divided the range", len(p.Status().Workers))
			}
		}
		if restarts == 0 {
			t.Error("0 workers were restarted, want at least 1 that was fenced")
		}
		for i, stop := range stops {
			wantStopped(t, stop)
			s.fill(10, 10)
			time.Sleep(time.Minute)
			if i < 2 {
				wantSums(t, table.Rows(), s.sums) // the others stand by
			}
		}
	})
}

// panickingTable is a table whose methods panic a number of times.
type panickingTable struct {
	*projectiontest.Table
	left atomic.Int64
}

func (p *panickingTable) check(method string) {
	if p.left.Add(-1) >= 0 {
		panic(method)
	}
}

func (p *panickingTable) Load(ctx context.Context, name string) ([]projection.Position, error) {
	p.check("Load")
	return p.Table.Load(ctx, name)
}

func (p *panickingTable) Apply(ctx context.Context, m projection.Move, f func(context.Context, *projectiontest.Rows) error) error {
	p.check("Apply")
	return p.Table.Apply(ctx, m, f)
}

// TestPanicInStore checks that a panic of the journal or of the store restarts a worker, like an
// error.
func TestPanicInStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		s.fill(3, 10)
		table := &panickingTable{Table: new(projectiontest.Table)}
		var queries, restarts atomic.Int64
		s.query = func(context.Context, journal.Offset) error {
			if queries.Add(1) <= 3 {
				panic("Query")
			}
			return nil
		}
		table.left.Store(3)
		cfg := config(s, table.Table)
		h := sums(table.Table)
		h.Store = table
		cfg.Handler = h
		cfg.Observer.Restarted = func(projection.RestartInfo) { restarts.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error)
		go func() { ended <- create(t, cfg).Run(ctx) }()
		for range 3 {
			time.Sleep(time.Hour)
			table.left.Store(2) // Load by the search for rebuilds, and Apply
			s.pay("box|0", 1)
		}
		time.Sleep(time.Hour)
		if got := table.Rows(); !maps.Equal(got, s.sums) || restarts.Load() < 6 {
			t.Errorf("the rows are %v after %d restarts, want %v after at least 6", got, restarts.Load(), s.sums)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want the end of its context", err)
		}
	})
}
