// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// errExpired is what a lease is lost for when no renewal came through in time.
var errExpired = errors.New("lease: no renewal was acknowledged in time")

// validity returns until when an entry that was written counts as held.
func (l *Lease) validity(sent time.Time) time.Time { return sent.Add(l.store.Timeout() / 10 * 9) }

// keep begins to hold a lease, unless it took too long to get it.
func (l *Lease) keep(revision uint64, sent time.Time, lost func(error)) bool {
	ctx, stop := context.WithCancel(context.Background())
	h := &hold{until: l.validity(sent), revision: revision, lost: lost, stop: stop, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !time.Now().Before(h.until) {
		stop()
		return false
	}
	l.hold = h
	l.running.Go(func() { l.renewing(ctx, h) })
	return true
}

// renewing renews a hold until it is dropped or lost.
func (l *Lease) renewing(ctx context.Context, h *hold) {
	cause := l.renewAll(ctx, h)
	h.stop()
	close(h.done) // from here on lost may call Release
	l.mu.Lock()
	current := l.hold == h
	if current {
		l.hold = nil
	}
	lost := h.lost
	l.mu.Unlock()
	if !current || cause == nil {
		return
	}
	l.log.WarnContext(context.WithoutCancel(ctx), "lease is lost", slog.Any("error", cause))
	if lost != nil {
		lost(cause)
	}
}

// renewAll returns why the lease is lost, or nil when ctx has ended.
func (l *Lease) renewAll(ctx context.Context, h *hold) error {
	timer := time.NewTimer(l.cfg.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !time.Now().Before(h.until) {
			return errExpired
		}
		wait := l.cfg.Interval
		if err := l.renew(ctx, h); errors.Is(err, ErrConflict) {
			return err
		} else if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "lease can't be renewed", slog.Any("error", err))
			wait = min(wait, time.Second)
		}
		timer.Reset(min(wait, max(0, time.Until(h.until))))
	}
}

// renew renews the entry once.
func (l *Lease) renew(ctx context.Context, h *hold) error {
	ctx, cancel := context.WithDeadline(ctx, h.until)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, l.cfg.OperationTimeout)
	defer cancel()
	sent := time.Now()
	revision, err := l.store.Renew(ctx, l.cfg.Name, l.cfg.Owner, h.revision)
	if errors.Is(err, ErrConflict) {
		// It may be what an earlier renewal with an unknown outcome has written.
		entry, failed := l.store.Get(ctx, l.cfg.Name)
		switch {
		case errors.Is(failed, ErrFree):
			return err
		case failed != nil:
			return failed
		case entry.Owner != l.cfg.Owner || entry.Revision == h.revision:
			return err
		}
		sent = time.Now()
		revision, err = l.store.Renew(ctx, l.cfg.Name, l.cfg.Owner, entry.Revision)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.revision, h.until = revision, l.validity(sent)
	return nil
}
