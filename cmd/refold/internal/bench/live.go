// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

const (
	liveIDs    = 100                   // events of one append, each of another ID
	livePeriod = 10 * time.Millisecond // from one append to the next
)

// live measures how long after its commit an event reaches a live query of
// another handle, as another process would have it, while 10,000 events a second are
// written.
func live(ctx context.Context, b *run) (results []Result, err error) {
	var delays []time.Duration
	for i := range max(1, b.settings.Rounds) {
		b.progress("round %d of %d", i+1, b.settings.Rounds)
		some, err := b.liveRound(ctx)
		if err != nil {
			return nil, err
		}
		delays = append(delays, some...)
	}
	p50, p99 := percentile(delays, 0.5), percentile(delays, 0.99)
	return []Result{Result{
		Value: ms(p99), Unit: "ms p99", Ratio: ms(p99), Goal: 100, Better: lower,
		Settings: fmt.Sprintf("%d events a second in appends of %d, from commit to delivery in another handle", int(liveIDs*time.Second/livePeriod), liveIDs),
		Detail:   fmt.Sprintf("p50 %v, %d events", p50.Round(10*time.Microsecond), len(delays)),
	}.judge()}, nil
}

// liveRound returns the delays of one run.
func (b *run) liveRound(ctx context.Context) (delays []time.Duration, err error) {
	s, err := b.openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	other, err := postgres.Open(ctx, b.dsn, postgres.Config{Schema: s.schema})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()

	appends := max(10, int(b.settings.Length/livePeriod))
	committed := make([]atomic.Int64, appends) // nanoseconds since start
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := writePaced(ctx, s.journal, start, committed); err != nil {
			cancel(err)
		}
	}()
	defer func() { <-written }()
	for e, err := range journal.Live(ctx, other.Journal(), journal.Criteria{}, "") {
		if err != nil {
			cancel(err)
			return nil, err
		}
		n := binary.BigEndian.Uint64(e.Payload)
		if n >= uint64(len(committed)) {
			return nil, fmt.Errorf("wrong event %d of %q", e.SequenceNr, e.ID)
		}
		delay := time.Duration(0) // it came before its append returned
		if at := committed[n].Load(); at > 0 {
			delay = max(0, time.Since(start)-time.Duration(at))
		}
		if delays = append(delays, delay); len(delays) == appends*liveIDs {
			break
		}
	}
	return delays, nil
}

// writePaced appends at a steady rate and notes when each append returned.
func writePaced(ctx context.Context, j journal.Journal, start time.Time, committed []atomic.Int64) error {
	ticks := time.NewTicker(livePeriod)
	defer ticks.Stop()
	for n := range committed {
		payload := make([]byte, 200)
		binary.BigEndian.PutUint64(payload, uint64(n))
		writes := make([]journal.Write, liveIDs)
		for i := range writes {
			writes[i] = journal.Write{
				ID: fmt.Sprintf("counter|%d", i), Writer: "bench", Expect: uint64(n),
				Events: []journal.Event{{SequenceNr: uint64(n) + 1, Time: time.Now().UTC().Truncate(time.Microsecond), Manifest: "added", Payload: payload}},
			}
		}
		if slots := j.Append(ctx, writes); slots != nil {
			return errors.Join(slots...)
		}
		committed[n].Store(int64(time.Since(start)))
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
