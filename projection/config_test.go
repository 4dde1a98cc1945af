// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// failing makes the handler fail at one event for a number of attempts.
func failing(table *projectiontest.Table, id string, seqNr uint64, attempts *int, times int, fail func() error) projection.ExactlyOnce[event, *projectiontest.Rows] {
	handler := sums(table)
	handler.Handle = func(ctx context.Context, tx *projectiontest.Rows, events []projection.Envelope[event]) error {
		for _, e := range events {
			if e.ID == id && e.SequenceNr == seqNr {
				if *attempts++; *attempts <= times || times < 0 {
					return fail()
				}
			}
			if err := add(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}
	return handler
}

func plainFailure() error { return errPlanted }

// An event that fails is isolated in its batch. The earlier events of the batch count, the error
// names the failing event, and the projection restarts at this event.
func TestFailIsTheDefault(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{"error": plainFailure, "panic": func() error { panic(errPlanted) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, table, attempts := newSource(t), &projectiontest.Table{}, 0
			s.fill(1, 100)
			cfg := config(s, table)
			cfg.Handler = failing(table, "box|0", 70, &attempts, -1, fail)
			cfg.MaxRestarts = -1
			err := create(t, cfg).CatchUp(t.Context())
			found, ok := errors.AsType[*projection.EventError](err)
			if !ok || found.ID != "box|0" || found.SequenceNr != 70 || found.Manifest != "paid@2" || found.Undecodable || !errors.Is(err, errPlanted) {
				t.Fatalf("CatchUp: %v, want an error about event 70 of box|0", err)
			}
			if want := `projection "sums": handle event 70 of "box|0" (paid@2): `; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error = %q, want the prefix %q", err, want)
			}
			if panicked := strings.Contains(err.Error(), "panic: "); panicked != (name == "panic") {
				t.Errorf("the error %q reports a panic: %t", err, panicked)
			}
			wantSums(t, table.Rows(), map[string]int64{"box|0": 69 * 70 / 2})
			if attempts > 9 {
				t.Errorf("the handler received the event %d times, more than halving a batch of 100 requires", attempts)
			}
			cfg.Handler = sums(table)
			catchUp(t, cfg)
			wantSums(t, table.Rows(), s.sums)
		})
	}
}

func TestFailRestartsAfterPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, attempts := newSource(t), &projectiontest.Table{}, 0
		s.fill(1, 3)
		cfg := config(s, table)
		cfg.Handler = failing(table, "box|0", 3, &attempts, 6, plainFailure) // once in a batch, 5 times alone
		cfg.BackoffJitter = -1
		var pauses []time.Duration
		cfg.Observer.Restarted = func(i projection.RestartInfo) {
			pauses = append(pauses, i.Pause)
			if i.Projection != "sums" || !errors.Is(i.Err, errPlanted) {
				t.Errorf("Restarted was called with %+v, want the planted error", i)
			}
		}
		began := time.Now()
		p := catchUp(t, cfg)
		want := []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, 24 * time.Second, 30 * time.Second}
		if attempts != 7 || !slices.Equal(pauses, want) {
			t.Errorf("%d attempts with pauses %v, want 7 with %v", attempts, pauses, want)
		}
		if took := time.Since(began); took != 75*time.Second {
			t.Errorf("CatchUp took %v, want 75 s", took)
		}
		wantSums(t, table.Rows(), s.sums)
		if got := p.Status(); got.Restarts != 5 || got.Handled != 3 || got.Skipped != 0 {
			t.Errorf("status %+v, want 5 restarts, 3 handled and 0 skipped", got)
		}
	})
}

func TestSkip(t *testing.T) {
	t.Parallel()
	s, table, attempts := newSource(t), &projectiontest.Table{}, 0
	s.fill(2, 2500)
	var skipped []*projection.EventError
	cfg := config(s, table)
	cfg.Handler = failing(table, "box|1", 600, &attempts, -1, plainFailure)
	cfg.OnFailure = projection.Strategy{Skip: true}
	cfg.Observer.Skipped = func(e *projection.EventError) { skipped = append(skipped, e) }
	p := catchUp(t, cfg)
	s.sums["box|1"] -= 1200
	wantSums(t, table.Rows(), s.sums)
	if len(skipped) != 1 || skipped[0].ID != "box|1" || skipped[0].SequenceNr != 600 || skipped[0].Attempts != 1 {
		t.Errorf("skipped %v, want event 600 of box|1", skipped)
	}
	if got := p.Status(); got.Skipped != 1 || got.Handled != 2499 || got.Restarts != 0 {
		t.Errorf("status %+v, want 1 skipped and 2499 handled", got)
	}
	cfg.Handler = sums(table)
	catchUp(t, cfg)
	wantSums(t, table.Rows(), s.sums) // the skipped event is not handled again
}

// A skipped event remains skipped, even if no event follows it.
func TestSkipAdvances(t *testing.T) {
	t.Parallel()
	s, table, attempts := newSource(t), &projectiontest.Table{}, 0
	s.fill(1, 2)
	cfg := config(s, table)
	cfg.Handler = failing(table, "box|0", 2, &attempts, -1, plainFailure)
	cfg.OnFailure = projection.Strategy{Skip: true}
	end, err := s.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, crash := context.WithCancel(t.Context())
	cfg.Observer.Skipped = func(*projection.EventError) {
		if at := stored(t, table)[0].Offset; at != end {
			t.Errorf("the position is %q when the event is skipped, want %q", at, end)
		}
		plant(table, "none", 1, crash)
		crash()
	}
	if err := create(t, cfg).CatchUp(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	cfg.Handler = sums(table)
	catchUp(t, cfg)
	wantSums(t, table.Rows(), map[string]int64{"box|0": 1})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		strategy projection.Strategy
		failures int // of the event alone
		retries  uint64
		skipped  uint64
		restarts uint64
		took     time.Duration
	}{
		{"succeeds at the third", projection.Strategy{Retries: 5}, 2, 2, 0, 0, 2 * time.Second},
		{"succeeds at the last", projection.Strategy{Retries: 5, Skip: true}, 5, 5, 0, 0, 5 * time.Second},
		{"skips", projection.Strategy{Retries: 5, Skip: true}, 6, 5, 1, 0, 5 * time.Second},
		{"fails", projection.Strategy{Retries: 5}, 6, 5, 0, 1, 8 * time.Second},
		{"custom values", projection.Strategy{Retries: 2, Delay: time.Minute, Skip: true}, 9, 2, 1, 0, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, table, attempts := newSource(t), &projectiontest.Table{}, 0
				s.fill(1, 4)
				cfg := config(s, table)
				cfg.Handler = failing(table, "box|0", 3, &attempts, 2+c.failures, plainFailure) // in 4, in 2, then alone
				cfg.OnFailure, cfg.BackoffJitter = c.strategy, -1
				began := time.Now()
				p := catchUp(t, cfg)
				got := p.Status()
				if took := time.Since(began); got.Retries != c.retries || got.Skipped != c.skipped || got.Restarts != c.restarts || took != c.took {
					t.Errorf("%d retries, %d skipped, %d restarts in %v; want %d, %d, %d in %v", got.Retries, got.Skipped, got.Restarts, took, c.retries, c.skipped, c.restarts, c.took)
				}
				if c.skipped > 0 {
					s.sums["box|0"] -= 3
				}
				wantSums(t, table.Rows(), s.sums)
			})
		})
	}
}

// Events that cannot be decoded are skipped, or fail the worker, like events that the handler fails
// on. They are not retried.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(s *source)
		cause error
	}{
		"unknown manifest": {func(s *source) { s.store("box|bad", "unheard", []byte{1}) }, codec.ErrUnknown},
		"damaged":          {func(s *source) { s.store("box|bad", "paid@2", []byte{0xc1}) }, codec.ErrMalformed},
		"another type":     {func(s *source) { s.encode(events(), "box|bad", other{N: 1}) }, projection.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, table := newSource(t), &projectiontest.Table{}
			s.fill(2, 10)
			c.plant(s)
			s.fill(2, 10)
			cfg := config(s, table)
			cfg.OnFailure = projection.Strategy{Retries: 5}
			cfg.MaxRestarts = -1
			err := create(t, cfg).CatchUp(t.Context())
			found, ok := errors.AsType[*projection.EventError](err)
			if !ok || found.ID != "box|bad" || found.SequenceNr != 1 || !found.Undecodable || found.Attempts != 0 || !errors.Is(err, c.cause) {
				t.Errorf("CatchUp: %v, want an undecodable event 1 of box|bad", err)
			}
			wantSums(t, table.Rows(), map[string]int64{"box|0": 1 + 3 + 5 + 7 + 9, "box|1": 2 + 4 + 6 + 8 + 10})
			cfg.OnFailure = projection.Strategy{Retries: 5, Skip: true}
			p := catchUp(t, cfg)
			wantSums(t, table.Rows(), s.sums)
			if got := p.Status(); got.Skipped != 1 || got.Retries != 0 || got.Handled != 10 {
				t.Errorf("status %+v, want 1 skipped, 0 retries and 10 handled", got)
			}
		})
	}
}

// A failure of the store or the journal is not attributed to an event.
func TestOutagesSkipNothing(t *testing.T) {
	t.Parallel()
	for _, step := range steps[3:] {
		synctest.Test(t, func(t *testing.T) {
			s, table := newSource(t), &projectiontest.Table{}
			s.fill(2, 30)
			cfg := config(s, table)
			cfg.OnFailure = projection.Strategy{Skip: true}
			plant(table, step, 1, nil)
			fault := table.Fault
			table.Fault = func(ctx context.Context, at projectiontest.Step) error {
				if err := fault(ctx, at); err != nil {
					return fmt.Errorf("%w: %w", projection.ErrUnavailable, err)
				}
				return nil
			}
			queries := 0
			s.query = func(context.Context, journal.Offset) error {
				if queries++; queries == 2 {
					return errPlanted
				}
				return nil
			}
			p := catchUp(t, cfg)
			wantSums(t, table.Rows(), s.sums)
			if got := p.Status(); got.Skipped != 0 || got.Restarts == 0 {
				t.Errorf("%s: %d skipped, %d restarts; want 0 skipped and at least 1 restart", step, got.Skipped, got.Restarts)
			}
		})
	}
}

func TestHandlerEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(1, 3)
	cfg := config(s, table)
	cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: func(context.Context, projection.Envelope[event]) error {
		runtime.Goexit()
		return nil
	}}
	if err := create(t, cfg).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "goroutine") {
		t.Errorf("Run: %v, want an error about the goroutine of the handler", err)
	}
}

// A transaction that is refused at the commit is a failure of the handler.
func TestRefusedTransactions(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(1, 8)
	var poisoned bool
	handler := sums(table)
	inner := handler.Handle
	handler.Handle = func(ctx context.Context, tx *projectiontest.Rows, events []projection.Envelope[event]) error {
		poisoned = slices.ContainsFunc(events, func(e projection.Envelope[event]) bool { return e.SequenceNr == 5 })
		return inner(ctx, tx, events)
	}
	table.Fault = func(_ context.Context, at projectiontest.Step) error {
		if at == projectiontest.BeforeCommit && poisoned {
			return fmt.Errorf("%w: a constraint", projection.ErrRefused)
		}
		return nil
	}
	cfg := config(s, table)
	cfg.Handler, cfg.OnFailure = handler, projection.Strategy{Skip: true}
	p := catchUp(t, cfg)
	wantSums(t, table.Rows(), map[string]int64{"box|0": 36 - 5})
	if got := p.Status(); got.Skipped != 1 {
		t.Errorf("%d events were skipped, want 1", got.Skipped)
	}
}

// An error of a handler never counts as permanent.
func TestHandlerErrorsAreNotPermanent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, attempts := newSource(t), &projectiontest.Table{}, 0
		s.fill(1, 3)
		cfg := config(s, table)
		cfg.Handler = failing(table, "box|0", 2, &attempts, 5, func() error { return journal.ErrClosed })
		p := catchUp(t, cfg)
		wantSums(t, table.Rows(), s.sums)
		if p.Status().Restarts == 0 {
			t.Error("the worker was never restarted")
		}
	})
}
