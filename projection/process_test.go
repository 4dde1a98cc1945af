// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	type config = projection.Config[event]
	for _, c := range []struct {
		c      config
		n      int
		random float64
		want   time.Duration
	}{
		{config{}, 1, 0, 3 * time.Second},
		{config{}, 2, 0, 6 * time.Second},
		{config{}, 4, 0, 24 * time.Second},
		{config{}, 5, 0, 30 * time.Second},
		{config{}, 1_000_000, 0, 30 * time.Second},
		{config{}, 1, 0.5, 3300 * time.Millisecond},
		{config{BackoffJitter: -1}, 1, 0.9, 3 * time.Second},
		{config{MinBackoff: time.Minute}, 3, 0, time.Minute},
		{config{MinBackoff: time.Second, MaxBackoff: 90 * time.Second}, 8, 0, 90 * time.Second},
	} {
		if got := c.c.Pause(c.n, c.random); got != c.want {
			t.Errorf("%+v: pause %d is %v, want %v", c.c, c.n, got, c.want)
		}
	}
}

func TestRestartLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		cfg := config(s, table)
		cfg.MaxRestarts, cfg.BackoffJitter = 3, -1
		s.query = func(context.Context, journal.Offset) error { return errPlanted }
		began := time.Now()
		if err := create(t, cfg).Run(t.Context()); !errors.Is(err, errPlanted) {
			t.Errorf("Run: %v, want the error of the journal", err)
		}
		if took := time.Since(began); took != 21*time.Second {
			t.Errorf("Run ended after %v, want 21 s", took)
		}
		table.Fault = func(context.Context, projectiontest.Step) error { return errPlanted }
		began = time.Now()
		if err := create(t, cfg).Run(t.Context()); !errors.Is(err, errPlanted) {
			t.Errorf("Run: %v, want the error of the store", err)
		}
		if took := time.Since(began); took != 21*time.Second {
			t.Errorf("Run ended after %v, want 21 s", took)
		}
	})
}

// Progress resets the pause to the shortest one.
func TestBackoffResets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 6)
		failures := make(map[uint64]int)
		cfg := config(s, table)
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: func(_ context.Context, e projection.Envelope[event]) error {
			if failures[e.SequenceNr]++; e.SequenceNr%3 == 0 && failures[e.SequenceNr] <= 2 {
				return errPlanted
			}
			return nil
		}}
		cfg.BackoffJitter = -1
		var pauses []time.Duration
		cfg.Observer.Restarted = func(i projection.RestartInfo) { pauses = append(pauses, i.Pause) }
		catchUp(t, cfg)
		if want := []time.Duration{3 * time.Second, 6 * time.Second, 3 * time.Second, 6 * time.Second}; !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
	})
}

// During an outage CatchUp returns the error after its last restart. Run continues.
func TestCatchUpReturnsAfterOutage(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"journal", "store"} {
		synctest.Test(t, func(t *testing.T) {
			s, table := newSource(t), &projectiontest.Table{}
			s.fill(1, 1)
			if missing == "journal" {
				s.query = func(context.Context, journal.Offset) error { return errPlanted }
			} else {
				table.Fault = func(context.Context, projectiontest.Step) error { return errPlanted }
			}
			cfg := config(s, table)
			cfg.BackoffJitter = -1
			began := time.Now()
			p := create(t, cfg)
			if err := p.CatchUp(t.Context()); !errors.Is(err, errPlanted) {
				t.Errorf("CatchUp: %v, want the error of the %s", err, missing)
			}
			if took := time.Since(began); took != 225*time.Second {
				t.Errorf("without a %s CatchUp ended after %v, want 225 s", missing, took)
			}
			got := p.Status()
			if got.State != projection.Stopped || got.Restarts != 10 || got.Failures != 11 || !errors.Is(got.Err, errPlanted) || !got.NextTry.IsZero() || got.CaughtUp {
				t.Errorf("status %+v without a %s, want stopped after 11 failures, with the error", got, missing)
			}
			stop := start(t, p)
			time.Sleep(time.Hour)
			if got := p.Status(); got.State != projection.Waiting || got.Failures < 100 {
				t.Errorf("status %+v after an hour without a %s, want Run to continue", got, missing)
			}
			wantStopped(t, stop)
		})
	}
}

// Outages that are far apart do not count as consecutive failures, even if no event is handled
// between them.
func TestOutagesAreNotConsecutive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 1)
		cfg := config(s, table)
		cfg.MaxRestarts, cfg.BackoffJitter = 1, -1
		var down outage
		s.query = down.query
		var pauses []string
		cfg.Observer.Restarted = func(i projection.RestartInfo) {
			pauses = append(pauses, fmt.Sprint(i.Attempt, " ", i.Pause))
			down.end()
		}
		stop := start(t, create(t, cfg))
		for range 3 {
			synctest.Wait()
			down.begin(planted)
			s.pay("bag|0", 1) // not an event of the projection
			time.Sleep(time.Hour)
		}
		wantStopped(t, stop)
		if want := []string{"1 3s", "1 3s", "1 3s"}; !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
	})
}

// Handled events do not count as progress if their position cannot be saved.
func TestUnsavedEventsAreNoProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, m := newSource(t), &projectiontest.Table{}, newModel()
		s.fill(1, 50)
		catchUp(t, config(s, table))
		s.fill(1, 50)
		table.Fault = func(_ context.Context, at projectiontest.Step) error {
			if at == projectiontest.BeforeSave {
				return errPlanted
			}
			return nil
		}
		cfg := config(s, table)
		cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle}
		cfg.MaxRestarts = 3
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		p := create(t, cfg)
		if err := p.Run(ctx); !errors.Is(err, errPlanted) {
			t.Errorf("Run: %v, want an error after the last restart", err)
		}
		if got := p.Status(); got.Restarts != 3 {
			t.Errorf("%d restarts, want 3", got.Restarts)
		}
	})
}

// Being fenced does not count as a failure.
func TestFencesDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 1)
		var fences atomic.Int64
		table.Fault = func(_ context.Context, at projectiontest.Step) error {
			if at == projectiontest.BeforeBegin && fences.Add(1) < 50 {
				return projection.ErrFenced
			}
			return nil
		}
		cfg := config(s, table)
		cfg.MaxRestarts = 2
		catchUp(t, cfg)
		wantSums(t, table.Rows(), s.sums)
		fences.Store(0)
		cfg.MaxRestarts = -1
		s.fill(1, 1)
		if err := create(t, cfg).CatchUp(t.Context()); !errors.Is(err, projection.ErrFenced) {
			t.Errorf("CatchUp without restarts: %v, want ErrFenced", err)
		}
	})
}
