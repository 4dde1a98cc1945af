// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

const (
	// maxWriteRecords and maxWriteBytes are how much is written with one call.
	maxWriteRecords = 16_384
	maxWriteBytes   = 8 << 20
)

// disk writes records on a goroutine of its own: what has piled up during a call goes into the next one.
type durableWriter struct {
	store        durable.Store
	writeBehind  time.Duration
	report       func(replication.Stored)
	log          *slog.Logger
	base         context.Context //nolint:containedctx // of all calls
	cancelWrites context.CancelFunc
	news         chan struct{}
	quit         chan struct{}
	done         chan struct{}

	mu             sync.Mutex
	backlog        replica.Backlog
	writes, errors uint64
	failed         error // what was left unwritten at the end
}

func newDurableWriter(base context.Context, store durable.Store, behind time.Duration, tell func(replication.Stored), log *slog.Logger) *durableWriter {
	d := &durableWriter{
		store: store, writeBehind: behind, report: tell, log: log,
		news: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	d.base, d.cancelWrites = context.WithCancel(base)
	go d.run()
	return d
}

// add lets records be written. With write-behind they count as stored now.
func (d *durableWriter) add(stores []replication.Store) {
	fit, unfit := replica.Fit(stores)
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
	select {
	case d.news <- struct{}{}:
	default:
	}
}

func (d *durableWriter) run() {
	defer close(d.done)
	for d.wait() {
		_ = d.writeAll() // it is logged, and tried again
	}
	if err := d.writeAll(); err != nil {
		d.failed = fmt.Errorf("ddata: write what was left: %w", err)
	}
}

// wait waits until there is something to write. It is false when that is for the last time.
func (d *durableWriter) wait() bool {
	select {
	case <-d.news:
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

// writeAll writes what has piled up, and what does meanwhile. With write-behind it ends with the first error, and what was
// not written waits.
func (d *durableWriter) writeAll() error {
	for {
		d.mu.Lock()
		w := d.backlog.Take(maxWriteRecords, maxWriteBytes)
		d.mu.Unlock()
		if len(w.Records) == 0 {
			return nil
		}
		err := d.store.Write(d.base, w.Records)
		d.mu.Lock()
		d.writes++
		if err != nil {
			d.errors++
			if d.writeBehind > 0 {
				d.backlog.Return(w)
			}
		}
		d.mu.Unlock()
		switch {
		case d.writeBehind == 0:
			d.report(replication.Stored{Nrs: w.Nrs, Err: err})
		case err != nil:
			d.log.ErrorContext(d.base, "durable keys could not be written, it will be tried again", slog.Int("keys", len(w.Records)), slog.Any("error", err))
			d.retryLater()
			return err
		}
	}
}

// again lets what was not written be tried again after the next interval.
func (d *durableWriter) retryLater() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

func (d *durableWriter) stats() (writes, errors uint64, waiting int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes, d.errors, d.backlog.Len()
}

// close writes what is left and closes the store.
func (d *durableWriter) close() error {
	close(d.quit)
	<-d.done
	d.cancelWrites()
	if err := d.store.Close(); err != nil && d.failed == nil {
		return fmt.Errorf("ddata: close the store: %w", err)
	}
	return d.failed
}
