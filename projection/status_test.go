// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// logged returns a logger and its output without times.
func logged() (*slog.Logger, func() []string) {
	var buf bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return logger, func() []string { return strings.Split(strings.TrimSpace(buf.String()), "\n") }
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("log =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each failure is logged with the attempt, the error and the time of the next attempt, and so is
// the recovery.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 1)
		cfg := config(s, table)
		cfg.BackoffJitter = -1
		var lines func() []string
		cfg.Logger, lines = logged()
		stores, journals := 0, 0
		table.Fault = func(context.Context, projectiontest.Step) error {
			if stores++; stores <= 2 {
				return errPlanted
			}
			return nil
		}
		s.query = func(context.Context, journal.Offset) error {
			if journals++; journals <= 2 {
				return errPlanted
			}
			return nil
		}
		catchUp(t, cfg)
		wantLines(t, lines(), []string{
			`level=WARN msg="projection: failed, restarting" projection=sums slices=0-1023 attempt=1 next_try_in=3s error="projection \"sums\": planted"`,
			`level=WARN msg="projection: failed, restarting" projection=sums slices=0-1023 attempt=2 next_try_in=6s error="projection \"sums\": planted"`,
			`level=WARN msg="projection: failed, restarting" projection=sums slices=0-1023 attempt=1 next_try_in=3s error="projection \"sums\": read events after \"\": planted"`,
			`level=WARN msg="projection: failed, restarting" projection=sums slices=0-1023 attempt=2 next_try_in=6s error="projection \"sums\": read events after \"\": planted"`,
			`level=INFO msg="projection: worker recovered" projection=sums slices=0-1023 failures=2`,
		})
	})
}

// Attempts at one event are logged, too; being fenced is not logged as a warning.
func TestRetriesAndFencesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, attempts := newSource(t), &projectiontest.Table{}, 0
		s.fill(1, 1)
		cfg := config(s, table)
		cfg.BackoffJitter = -1
		cfg.Handler = failing(table, "box|0", 1, &attempts, 2, plainFailure)
		cfg.OnFailure = projection.Strategy{Retries: 1, Delay: time.Minute, Skip: true}
		var lines func() []string
		cfg.Logger, lines = logged()
		p := catchUp(t, cfg)
		table.Fault = func(_ context.Context, at projectiontest.Step) error {
			if at == projectiontest.BeforeBegin && p.Status().Failures == 0 {
				return projection.ErrFenced
			}
			return nil
		}
		s.fill(1, 1)
		if err := p.CatchUp(t.Context()); err != nil {
			t.Error(err)
		}
		got := lines()
		for i, line := range got {
			got[i], _, _ = strings.Cut(line, " error=")
		}
		wantLines(t, got, []string{
			`level=WARN msg="projection: retrying an event" projection=sums persistence_id=box|0 sequence_nr=1 manifest=paid@2 attempt=1 next_try_in=1m0s`,
			`level=WARN msg="projection: skipping an event" projection=sums persistence_id=box|0 sequence_nr=1 manifest=paid@2 attempts=2`,
			`level=INFO msg="projection: fenced by another process, restarting" projection=sums slices=0-1023 attempt=1 next_try_in=3s`,
			`level=INFO msg="projection: worker recovered" projection=sums slices=0-1023 failures=1`,
		})
	})
}

// While the journal is unavailable the lag is unknown and not 0, and Status contains the error and
// the time since which the lag is unknown.
func TestLagWithoutAJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 3)
		cfg := config(s, table)
		cfg.BackoffJitter, cfg.MinBackoff, cfg.MaxBackoff = -1, time.Minute, time.Minute
		var fault outage
		s.query = fault.query
		p := create(t, cfg)
		stop := start(t, p)
		synctest.Wait()
		if got := p.Status(); !got.CaughtUp || got.Lag != 0 || !got.LagUnknownSince.IsZero() || got.Err != nil {
			t.Errorf("status %+v, want caught up with a known lag", got)
		}
		time.Sleep(time.Hour)
		lostAt := time.Now()
		fault.begin(planted)
		s.pay("bag|0", 1) // the journal wakes its readers
		for n := 1; n <= 2; n++ {
			if n > 1 {
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			want := lostAt.Add(time.Duration(n) * time.Minute)
			got := p.Status()
			if w := got.Workers[0]; got.CaughtUp || got.State != projection.Waiting || !got.LagUnknownSince.Equal(lostAt) || !errors.Is(got.Err, errPlanted) ||
				got.Failures != n || !got.NextTry.Equal(want) || !w.LagUnknownSince.Equal(lostAt) || !errors.Is(w.Err, errPlanted) || w.Failures != n || w.CaughtUp {
				t.Errorf("status %+v, want waiting for the attempt at %v, with an unknown lag since %v", got, want, lostAt)
			}
		}
		answer := make(chan struct{})
		fault.begin(func(context.Context) error {
			<-answer
			return nil
		})
		time.Sleep(90 * time.Second)
		if got := p.Status(); got.State != projection.Starting || !errors.Is(got.Err, errPlanted) || !got.LagUnknownSince.Equal(lostAt) || got.CaughtUp || !got.NextTry.IsZero() {
			t.Errorf("status %+v in the next attempt, want the error of the last one", got)
		}
		fault.end()
		close(answer)
		time.Sleep(6 * time.Second)
		if got := p.Status(); got.State != projection.Running || got.Err != nil || got.Failures != 0 || !got.LagUnknownSince.IsZero() || !got.CaughtUp {
			t.Errorf("status %+v, want running, without an error and without failures", got)
		}
		stopped := time.Now()
		wantStopped(t, stop)
		time.Sleep(time.Minute)
		if got := p.Status(); got.State != projection.Stopped || !got.LagUnknownSince.Equal(stopped) || !got.CaughtUp {
			t.Errorf("status %+v, want an unknown lag since the stop", got)
		}
	})
}

// A journal that does not respond counts as unavailable.
func TestLagOfASilentJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		var fault outage
		s.query = fault.query
		p := create(t, config(s, table))
		stop := start(t, p)
		synctest.Wait()
		lostAt := time.Now()
		fault.begin(silent)
		s.pay("bag|0", 1)
		time.Sleep(time.Second)
		if got := p.Status(); !got.CaughtUp || !got.LagUnknownSince.IsZero() {
			t.Errorf("status %+v after a second, want a known lag", got)
		}
		time.Sleep(time.Minute)
		if got := p.Status(); got.CaughtUp || !got.LagUnknownSince.Equal(lostAt) {
			t.Errorf("status %+v after a minute, want an unknown lag since %v", got, lostAt)
		}
		wantStopped(t, stop)
	})
}

// The age of a pending event counts as lag during an outage, too.
func TestLagWithPendingEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		var fault outage
		table.Fault = fault.fault
		p := create(t, config(s, table))
		stop := start(t, p)
		synctest.Wait()
		fault.begin(planted)
		s.fill(1, 1)
		time.Sleep(time.Hour)
		if got := p.Status(); got.Lag != time.Hour || !got.LagUnknownSince.IsZero() || !errors.Is(got.Err, errPlanted) {
			t.Errorf("status %+v, want a lag of an hour", got)
		}
		wantStopped(t, stop)

		began := time.Now()
		stop = start(t, p) // the projection can't start
		time.Sleep(time.Minute)
		if got := p.Status(); !got.LagUnknownSince.Equal(began) || got.Failures < 4 || got.NextTry.IsZero() || got.State != projection.Waiting {
			t.Errorf("status %+v, want an unknown lag since %v", got, began)
		}
		wantStopped(t, stop)
	})
}

// A panic of a logger or an observer does not stop the projection.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table, attempts := newSource(t), &projectiontest.Table{}, 0
		s.fill(1, 3)
		cfg := config(s, table)
		cfg.Handler = failing(table, "box|0", 2, &attempts, 3, plainFailure)
		var lines func() []string
		cfg.Logger, lines = logged()
		cfg.Observer = projection.Observer{
			Batch:     func(projection.BatchInfo) { panic("batch") },
			Restarted: func(projection.RestartInfo) { panic("restarted") },
			Skipped:   func(*projection.EventError) { panic("skipped") },
		}
		catchUp(t, cfg)
		wantSums(t, table.Rows(), s.sums)
		attempts = -1000
		s.store("box|0", "paid@2", []byte{0xc1})
		cfg.OnFailure = projection.Strategy{Skip: true}
		catchUp(t, cfg)
		all := strings.Join(lines(), "\n")
		for _, subject := range []string{"batch", "restarted", "skipped"} {
			if !strings.Contains(all, `level=ERROR msg="projection: observer panicked" projection=sums error="panic: `+subject+`" stack=`) {
				t.Errorf("the log has no panic of %s:\n%s", subject, all)
			}
		}
	})
}
