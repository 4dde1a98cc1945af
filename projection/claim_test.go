// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// strict is a read model without transactions. It tracks the sequence number of each box and drops
// late events. After a Clear or an event at the wrong time, the read model therefore remains wrong.
type strict struct {
	model
	upTo map[string]uint64
}

func newStrict() *strict {
	return &strict{model: model{sums: make(map[string]int64)}, upTo: make(map[string]uint64)}
}

func (m *strict) handle(_ context.Context, e projection.Envelope[event]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := e.Event.(paid)
	if !ok {
		return fmt.Errorf("unexpected type %T", e.Event)
	}
	if e.SequenceNr > m.upTo[e.ID] {
		m.sums[e.ID] += p.N
		m.upTo[e.ID] = e.SequenceNr
	}
	return nil
}

func (m *strict) clear(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.upTo)
	clear(m.sums)
	return nil
}

func (m *strict) rows() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.sums)
}

// slow waits, regardless of the context.
func slow(d time.Duration) { time.Sleep(d) }

// Two processes load the mark of a rebuild. Clear takes longer than the life of a claim. Clear is
// called once, and the other process waits for its end.
func TestClearAmongProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
		s.fill(3, 30)
		clears := 0
		cfg := config(s, table)
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: func(ctx context.Context) error {
			clears++
			slow(10 * time.Minute)
			return m.clear(ctx)
		}}
		p := catchUp(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		one := start(t, p)
		synctest.Wait()
		standby := create(t, cfg)
		two := start(t, standby)
		time.Sleep(time.Minute)
		if err := standby.Pause(t.Context()); err != nil { // the standby does nothing
			t.Error(err)
		}
		if got := time.Since(began); got != time.Minute {
			t.Errorf("Pause waited %v for the Clear of another process, want 0", got-time.Minute)
		}
		standby.Resume()
		time.Sleep(time.Hour)
		wantSums(t, m.rows(), s.sums)
		if clears != 1 {
			t.Errorf("Clear was called %d times, want once", clears)
		}
		wantStopped(t, one)
		wantStopped(t, two)
	})
}

// The clearing process crashes. Another process takes over half a minute later. The crashed
// process, once restarted, takes over immediately.
func TestClaimOfCrashedProcess(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
			s.fill(3, 30)
			ctx, crash := context.WithCancel(t.Context())
			cfg := config(s, table)
			handler := projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: func(ctx context.Context) error {
				if crash != nil {
					crash()
					crash = nil
					return errPlanted
				}
				return m.clear(ctx)
			}}
			cfg.Handler = handler
			p := catchUp(t, cfg)
			if err := p.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.CatchUp(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("CatchUp: %v, want context.Canceled", err)
			}
			if !same {
				p = create(t, cfg)
			}
			began := time.Now()
			m.sums["wrong"] = 1
			if err := p.CatchUp(t.Context()); err != nil {
				t.Error(err)
			}
			wantSums(t, m.rows(), s.sums)
			if took := time.Since(began); same && took != 0 || !same && (took < 30*time.Second || took > time.Minute) {
				t.Errorf("the take-over took %v by the same process: %t, want 0 s for the same process and 30 s or more for another", took, same)
			}
		})
	}
}

// The clearing process is cut off from the store, another process takes over, and the first process
// clears the new read model. The first process detects this and requests another rebuild.
func TestLateClear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
		s.fill(3, 30)
		ended := make(chan error, 1)
		link := &linked{Table: table}
		cfg := config(s, table)
		handler := projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: m.clear}
		cfg.Handler = handler
		p := catchUp(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		handler.Store = link
		clears := 0
		handler.Clear = func(ctx context.Context) error {
			if clears++; clears == 1 {
				link.outage.begin(silent)
				<-ctx.Done()
				ended <- context.Cause(ctx)
				slow(10 * time.Minute)
				link.outage.end()
			}
			return m.clear(ctx)
		}
		cfg.Handler = handler
		late := start(t, create(t, cfg))
		time.Sleep(time.Second)
		other := start(t, p)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the context of Clear ends with %v, want the error of the renewal", err)
			}
		default:
			t.Error("Clear continues although its claim cannot be renewed")
		}
		time.Sleep(5 * time.Minute)
		wantSums(t, m.rows(), s.sums) // rebuilt by the other process
		time.Sleep(15 * time.Minute)
		wantSums(t, m.rows(), s.sums) // after the second rebuild
		wantStopped(t, late)
		wantStopped(t, other)
	})
}

// A rebuild is requested while one process clears; another process starts it immediately. The Clear
// of the first process ends later and does not disturb the claim of the other process.
func TestClearsOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
		s.fill(3, 30)
		var clears atomic.Int64
		cfg := config(s, table)
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: func(ctx context.Context) error {
			clears.Add(1)
			slow(time.Minute)
			return m.clear(ctx)
		}}
		p := catchUp(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		var stops []func() error
		for range 3 {
			stops = append(stops, start(t, create(t, cfg)))
		}
		time.Sleep(20 * time.Second)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wantSums(t, m.rows(), s.sums)
		if n := clears.Load(); n != 2 {
			t.Errorf("Clear was called %d times, want once for each Rebuild", n)
		}
		for _, stop := range stops {
			wantStopped(t, stop)
		}
	})
}

// linked is a table that is reached through a connection that can be cut.
type linked struct {
	*projectiontest.Table
	outage outage
}

func (l *linked) Load(ctx context.Context, name string) ([]projection.Position, error) {
	if err := l.outage.check(ctx); err != nil {
		return nil, err
	}
	return l.Table.Load(ctx, name)
}

func (l *linked) Save(ctx context.Context, m projection.Move) error {
	if err := l.outage.check(ctx); err != nil {
		return err
	}
	return l.Table.Save(ctx, m)
}

func (l *linked) Reset(ctx context.Context, name string) error {
	if err := l.outage.check(ctx); err != nil {
		return err
	}
	return l.Table.Reset(ctx, name)
}

// A process is still handling an event while another process clears and rebuilds the read model.
// The late change is detected.
func TestLateHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
		s.fill(1, 200)
		cfg := config(s, table)
		handler := projection.AtLeastOnce[event]{Store: table, Handle: m.handle, SaveEvery: 1, Clear: m.clear}
		first := true
		handler.Handle = func(ctx context.Context, e projection.Envelope[event]) error {
			if e.SequenceNr == 150 && first {
				first = false
				slow(time.Minute + time.Second/3) // ends between two events of the other process
			}
			return m.handle(ctx, e)
		}
		cfg.Handler = handler
		late := start(t, create(t, cfg))
		synctest.Wait()
		handler.Handle = func(ctx context.Context, e projection.Envelope[event]) error {
			slow(time.Second)
			return m.handle(ctx, e)
		}
		cfg.Handler = handler
		p := create(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := start(t, p)
		time.Sleep(time.Hour)
		wantSums(t, m.rows(), s.sums)
		wantStopped(t, late)
		wantStopped(t, other)
	})
}

// A process has handled the first events without saving its position. Then another process clears
// the read model. The late process is fenced, because the first position that it loaded differs
// from the stored one.
func TestFirstPositionsDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
		s.fill(1, 10)
		cfg := config(s, table)
		handler := projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: m.clear}
		handled := false
		handler.Handle = func(ctx context.Context, e projection.Envelope[event]) error {
			err := m.handle(ctx, e)
			if e.SequenceNr == 5 && !handled {
				handled = true
				slow(time.Minute)
			}
			return err
		}
		cfg.Handler = handler
		late := start(t, create(t, cfg))
		synctest.Wait()
		p := create(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		handler.Handle = func(context.Context, projection.Envelope[event]) error { return errPlanted } // this process clears the read model and handles no event
		cfg.Handler = handler
		other := start(t, create(t, cfg))
		time.Sleep(30 * time.Second)
		wantStopped(t, other)
		time.Sleep(time.Hour)
		wantSums(t, m.rows(), s.sums)
		wantStopped(t, late)
	})
}

// Several processes start and stop, rebuilds are requested repeatedly, and slow handlers and Clears
// ignore their context. The final read model is correct.
func TestRebuildsAmongProcesses(t *testing.T) {
	t.Parallel()
	seeds := effort.Count[uint64](8, 40, 2000)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			s, table, m := newSource(t), &projectiontest.Table{}, newStrict()
			cfg := config(s, table)
			cfg.Handler = projection.AtLeastOnce[event]{
				Store: table, SaveEvery: 1 + rnd.IntN(20),
				Handle: func(ctx context.Context, e projection.Envelope[event]) error {
					if e.SequenceNr%7 == 0 {
						slow(time.Duration(e.SequenceNr%5) * 3 * time.Second)
					}
					return m.handle(ctx, e)
				},
				Clear: func(ctx context.Context) error {
					// A Clear takes longer than a handler continues after the mark (10 s and 12 s),
					// because a handler that outlasts a whole rebuild is not detected, as
					// documented.
					slow(time.Duration(25+time.Now().Unix()%65) * time.Second)
					return m.clear(ctx)
				},
			}
			s.fill(5, 40)
			var stops []func() error
			for range 30 {
				switch rnd.IntN(5) {
				case 0, 1:
					if len(stops) < 3 {
						cfg.Workers = 1 << rnd.IntN(3)
						stops = append(stops, start(t, create(t, cfg)))
					}
				case 2:
					if len(stops) > 0 {
						wantStopped(t, stops[0])
						stops = stops[1:]
					}
				case 3:
					if err := create(t, cfg).Rebuild(t.Context()); err != nil {
						t.Error(err)
					}
				case 4:
					s.fill(5, 5)
				}
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Second)
			}
			stops = append(stops, start(t, create(t, cfg)))
			time.Sleep(3 * time.Hour)
			wantSums(t, m.rows(), s.sums)
			for _, stop := range stops {
				wantStopped(t, stop)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
