// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// slowCall is from when on a statement is slow, with the wait for a connection.
	slowCall = 2 * time.Second
	// longStall is from when on readers are said to be held back.
	longStall = 5 * time.Second
	// tellPause is the least time between two reports of the same.
	tellPause = time.Minute
)

// watch reports what an operator wants to know about the server, and no caller
// is told. It never has a connection string.
type watch struct {
	log       *slog.Logger
	slowCall  time.Duration
	longStall time.Duration

	mu    sync.Mutex
	slow  sparse
	deaf  sparse
	stall stall
}

func newWatch(log *slog.Logger) *watch {
	return &watch{log: log, slowCall: slowCall, longStall: longStall}
}

// took reports a call that was slow.
func (w *watch) took(ctx context.Context, what string, began time.Time) {
	took := time.Since(began)
	if took < w.slowCall {
		return
	}
	w.mu.Lock()
	omitted, due := w.slow.due(time.Now())
	w.mu.Unlock()
	if due {
		w.log.WarnContext(ctx, "the server is slow", slog.String("statement", what), slog.Duration("took", took), slog.Int("more_since_last_report", omitted))
	}
}

// saw reports a watermark that stands still for long, and when it moves again.
func (w *watch) saw(ctx context.Context, m mark, class int32) {
	w.mu.Lock()
	age, told := w.stall.saw(time.Now(), m, w.longStall)
	w.mu.Unlock()
	switch told {
	case stallLasts:
		w.log.WarnContext(ctx, "a transaction that appends does not end and holds all queries back", slog.Duration("age", age),
			slog.Int64("behind_ordinal", m.below), slog.Int64("pg_locks_classid", int64(uint32(class)))) //nolint:gosec // the same 32 bits
	case stallOver:
		w.log.InfoContext(ctx, "queries go on", slog.Duration("after", age))
	case stallQuiet:
	}
}

// silence reports that there are no notifications, and why, and whether it was
// time to.
func (w *watch) silence(ctx context.Context, err error) bool {
	w.mu.Lock()
	_, due := w.deaf.due(time.Now())
	w.mu.Unlock()
	if due {
		w.log.WarnContext(ctx, "no notifications from the server: readers poll", slog.String("reason", reason(err)))
	}
	return due
}

// hears reports that there are notifications again.
func (w *watch) hears(ctx context.Context, since time.Time) {
	w.log.InfoContext(ctx, "notifications are back", slog.Duration("after", time.Since(since)))
}

// sparse lets something be reported once in a while.
type sparse struct {
	next    time.Time
	omitted int
}

// due reports whether it is time, and how many were left out since the last time.
func (s *sparse) due(now time.Time) (omitted int, due bool) {
	if now.Before(s.next) {
		s.omitted++
		return 0, false
	}
	omitted, s.omitted = s.omitted, 0
	s.next = now.Add(tellPause)
	return omitted, true
}

// stall notices that readers stand before the same append for long.
type stall struct {
	below int64     // up to where the order is settled
	since time.Time // since when it is held there; zero if it is not
	told  bool      // of this one
	next  time.Time // before that nothing is told again
}

type stallReport uint8

const (
	stallQuiet stallReport = iota
	stallLasts
	stallOver
)

// saw returns what there is to report of a mark, and how long readers are or were
// held back.
func (s *stall) saw(now time.Time, m mark, long time.Duration) (age time.Duration, report stallReport) {
	if !s.since.IsZero() {
		age = now.Sub(s.since)
	}
	if !m.held || m.below > s.below || s.since.IsZero() {
		if s.told {
			report = stallOver
		}
		s.below, s.since, s.told = m.below, time.Time{}, false
		if m.held {
			s.since = now
		}
		return age, report
	}
	if age < long || now.Before(s.next) {
		return age, stallQuiet
	}
	s.told, s.next = true, now.Add(tellPause)
	return age, stallLasts
}
