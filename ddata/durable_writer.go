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
type disk struct {
	store  durable.Store
	behind time.Duration
	tell   func(replication.Stored)
	log    *slog.Logger
	base   context.Context //nolint:containedctx // of all calls
	giveUp context.CancelFunc
	news   chan struct{}
	quit   chan struct{}
	done   chan struct{}

	mu             sync.Mutex
	backlog        replica.Backlog
	writes, errors uint64
	failed         error // what was left unwritten at the end
}

func newDisk(base context.Context, store durable.Store, behind time.Duration, tell func(replication.Stored), log *slog.Logger) *disk {
	d := &disk{
		store: store, behind: behind, tell: tell, log: log,
		news: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	d.base, d.giveUp = context.WithCancel(base)
	go d.run()
	return d
}

// add lets records be written. With write-behind they count as stored now.
func (d *disk) add(stores []replication.Store) {
	fit, unfit := replica.Fit(stores)
	if d.behind > 0 && len(fit) > 0 {
		s := replication.Stored{}
		for i := range fit {
			s.Nrs = append(s.Nrs, fit[i].Nr)
		}
		d.tell(s)
	}
	for _, s := range unfit {
		d.tell(s)
	}
	d.mu.Lock()
	d.backlog.Add(fit)
	d.mu.Unlock()
	select {
	case d.news <- struct{}{}:
	default:
	}
}

func (d *disk) run() {
	defer close(d.done)
	for d.wait() {
		_ = d.writeAll() // it is logged, and tried again
	}
	if err := d.writeAll(); err != nil {
		d.failed = fmt.Errorf("ddata: write what was left: %w", err)
	}
}

// wait waits until there is something to write. It is false when that is for the last time.
func (d *disk) wait() bool {
	select {
	case <-d.news:
	case <-d.quit:
		return false
	}
	if d.behind == 0 {
		return true
	}
	timer := time.NewTimer(d.behind)
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
func (d *disk) writeAll() error {
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
			if d.behind > 0 {
				d.backlog.Return(w)
			}
		}
		d.mu.Unlock()
		switch {
		case d.behind == 0:
			d.tell(replication.Stored{Nrs: w.Nrs, Err: err})
		case err != nil:
			d.log.ErrorContext(d.base, "durable keys could not be written, it will be tried again", slog.Int("keys", len(w.Records)), slog.Any("error", err))
			d.again()
			return err
		}
	}
}

// again lets what was not written be tried again after the next interval.
func (d *disk) again() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

func (d *disk) stats() (writes, errors uint64, waiting int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes, d.errors, d.backlog.Len()
}

// close writes what is left and closes the store.
func (d *disk) close() error {
	close(d.quit)
	<-d.done
	d.giveUp()
	if err := d.store.Close(); err != nil && d.failed == nil {
		return fmt.Errorf("ddata: close the store: %w", err)
	}
	return d.failed
}
