// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/loop"
)

const (
	// slowCall is the duration from which a statement is reported as slow, including the wait for a
	// connection.
	slowCall = 2 * time.Second
	// longStall is the duration from which blocked readers are reported.
	longStall = 5 * time.Second
	// reportPause is the shortest time between two reports of a stall.
	reportPause = time.Minute
)

// watch logs conditions of the server that no call returns as an error. It holds no connection
// string.
type watch struct {
	log       *slog.Logger
	slowCall  time.Duration
	longStall time.Duration
	throttle  loop.Throttle[string] // by message

	mu    sync.Mutex
	stall stall
}

func (w *watch) logSlow(ctx context.Context, statement string, began time.Time) {
	if took := time.Since(began); took >= w.slowCall {
		const message = "slow statement"
		w.throttle.Log(ctx, w.log, message, slog.LevelWarn, message, slog.String("statement", statement), slog.Duration("took", took))
	}
}

// logStall logs a watermark that has not moved for long, and its next move.
func (w *watch) logStall(ctx context.Context, m mark, class int32) {
	w.mu.Lock()
	age, lasts, over := w.stall.saw(time.Now(), m, w.longStall)
	w.mu.Unlock()
	if lasts {
		w.log.WarnContext(ctx, "an append that does not end blocks all queries", slog.Duration("age", age),
			slog.Int64("behind_ordinal", m.below), slog.Int64("pg_locks_classid", int64(uint32(class)))) //nolint:gosec // the same 32 bits
	}
	if over {
		w.log.InfoContext(ctx, "queries are no longer blocked", slog.Duration("after", age))
	}
}

// logLost logs the loss of notifications with its reason, and returns whether a report was due.
func (w *watch) logLost(ctx context.Context, err error) bool {
	_, due := w.throttle.Allow("lost")
	if due {
		w.log.WarnContext(ctx, "no notifications from the server, polling instead", slog.String("reason", reason(err)))
	}
	return due
}

// stall detects readers that wait for the same append for long.
type stall struct {
	below    int64     // ordinal up to which the order is settled
	since    time.Time // when the watermark stopped there; zero while it moves
	reported bool      // this stall was reported
	next     time.Time // earliest time of the next report
}

// saw adds a mark. age is how long readers are or were blocked. lasts reports that a report about a
// lasting stall is due, and over that a report about its end is due.
func (s *stall) saw(now time.Time, m mark, long time.Duration) (age time.Duration, lasts, over bool) {
	if !s.since.IsZero() {
		age = now.Sub(s.since)
	}
	if !m.held || m.below > s.below || s.since.IsZero() {
		over = s.reported
		s.below, s.since, s.reported = m.below, time.Time{}, false
		if m.held {
			s.since = now
		}
		return age, false, over
	}
	if lasts = age >= long && !now.Before(s.next); lasts {
		s.reported, s.next = true, now.Add(reportPause)
	}
	return age, lasts, false
}
