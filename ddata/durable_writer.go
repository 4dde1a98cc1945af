// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
)

const (
	// maxWriteRecords and maxWriteBytes limit one call of the store.
	maxWriteRecords = 16_384
	maxWriteBytes   = 8 << 20
)

// durableWriter writes records on its own goroutine. Records that arrive during a call are combined
// into the next call.
type durableWriter struct {
	store        durable.Store
	writeBehind  time.Duration
	report       func(replication.Stored)
	log          *slog.Logger
	base         context.Context //nolint:containedctx // the context of all calls of the store
	cancelWrites context.CancelFunc
	ready        loop.Signal
	quit         chan struct{}
	done         chan struct{}

	mu             sync.Mutex
	backlog        replication.Backlog
	writes, errors uint64
	failed         error // the error of the last write before the end
}

func newDurableWriter(base context.Context, store durable.Store, behind time.Duration, tell func(replication.Stored), log *slog.Logger) *durableWriter {
	d := &durableWriter{
		store: store, writeBehind: behind, report: tell, log: log,
		ready: loop.NewSignal(), quit: make(chan struct{}), done: make(chan struct{}),
	}
	d.base, d.cancelWrites = context.WithCancel(base)
	go d.run()
	return d
}

// add queues records. With write-behind they count as stored immediately.
func (d *durableWriter) add(stores []replication.Store) {
	fit, unfit := replication.Fit(stores)
	if d.writeBehind > 0 && len(fit) > 0 {
		s := replication.Stored{}
		for i := range fit {
			s.Nrs = append(s.Nrs, fit[i].Nr)
		}
		d.report(s)
	}
	for _, s := range unfit {
		d.report(s)
	}
	d.mu.Lock()
	d.backlog.Add(fit)
	d.mu.Unlock()
	d.ready.Set()
}

func (d *durableWriter) run() {
	defer close(d.done)
	var failed error // of the last attempt: an earlier one was logged or reported, and is repeated
	for d.wait() {
		_, failed = d.writeAll()
	}
	if some, err := d.writeAll(); some {
		failed = err
	}
	if failed != nil {
		d.failed = fmt.Errorf("ddata: write remaining records: %w", failed)
	}
}

// wait waits for records. It returns false when the writer ends: the next write is the last one.
func (d *durableWriter) wait() bool {
	select {
	case <-d.ready:
	case <-d.quit:
		return false
	}
	if d.writeBehind == 0 {
		return true
	}
	timer := time.NewTimer(d.writeBehind)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.quit:
		return false
	}
}

// writeAll writes all queued records, including those that arrive during the writes. With
// write-behind it stops at the first error and keeps the unwritten records. It reports whether there were
// any records.
func (d *durableWriter) writeAll() (some bool, failed error) {
	for ; ; some = true {
		d.mu.Lock()
		w := d.backlog.Take(maxWriteRecords, maxWriteBytes)
		d.mu.Unlock()
		if len(w.Records) == 0 {
			return some, failed
		}
		err := panics.Catch(func() error { return d.store.Write(d.base, w.Records) })
		d.mu.Lock()
		d.writes++
		if err != nil {
			d.errors++
			if d.writeBehind > 0 {
				d.backlog.Return(w)
			}
		}
		d.mu.Unlock()
		if d.writeBehind == 0 {
			d.report(replication.Stored{Nrs: w.Nrs, Err: err})
			failed = cmp.Or(failed, err)
		} else if err != nil {
			d.log.ErrorContext(d.base, "write of durable keys failed, retrying", slog.Int("keys", len(w.Records)), slog.Any("error", err))
			d.ready.Set() // try again after the next interval
			return true, err
		}
	}
}

func (d *durableWriter) stats() (writes, errors uint64, waiting int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes, d.errors, d.backlog.Len()
}

func (d *durableWriter) close() error {
	close(d.quit)
	<-d.done
	d.cancelWrites()
	if err := panics.Catch(d.store.Close); err != nil && d.failed == nil {
		return fmt.Errorf("ddata: close store: %w", err)
	}
	return d.failed
}
