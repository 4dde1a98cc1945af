// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// Lease is a lock with an expiry and at most one owner at a time. Its methods are safe for
// concurrent use.
type Lease struct {
	store   Store
	cfg     Config
	log     *slog.Logger
	turn    chan struct{} // serializes Acquire and Release
	running sync.WaitGroup

	mu     sync.Mutex
	hold   *hold // nil if the lease is not held
	other  string
	closed bool
}

// hold is the state of a lease while it is held.
type hold struct {
	until    time.Time // end of the validity
	revision uint64
	lost     func(error)
	stop     context.CancelFunc
	done     chan struct{} // closed when the renewals have ended
}

// New returns a lease that is not held. The caller keeps ownership of the store. A call of the
// store that panics is treated as failed. The error matches ErrInvalid.
func New(store Store, cfg Config) (*Lease, error) {
	cfg = cfg.withDefaults(store.Timeout())
	if err := cfg.validate(store.Timeout()); err != nil {
		return nil, err
	}
	return &Lease{
		store: panicSafeStore{store}, cfg: cfg, turn: make(chan struct{}, 1),
		log: cfg.Logger.With(slog.String("lease", cfg.Name), slog.String("owner", cfg.Owner)),
	}, nil
}

// Check reports whether the lease is held for certain. It does not block.
func (l *Lease) Check() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold != nil && time.Now().Before(l.hold.until)
}

// Acquire tries once to acquire the lease. It returns true if the lease is held, even if it was
// held before the call. It returns false without an error if another owner holds the lease, or if
// the call took longer than the lease is valid. It returns an error if the outcome is unknown.
func (l *Lease) Acquire(ctx context.Context) (bool, error) { return l.AcquireWithLost(ctx, nil) }

// AcquireWithLost is like Acquire. After AcquireWithLost has returned true, lost is called when the
// lease is lost, but not when it is released. lost may acquire or release the lease. If the lease
// was already held, lost replaces the earlier function.
func (l *Lease) AcquireWithLost(ctx context.Context, lost func(cause error)) (bool, error) {
	if err := l.begin(ctx); err != nil {
		return false, err
	}
	defer l.end()
	if l.stillHeld(lost) {
		return true, nil
	}
	l.drop() // an earlier hold that has ended
	l.heldBy("")
	ctx, cancel := context.WithTimeout(ctx, l.cfg.OperationTimeout)
	defer cancel()
	sent := time.Now()
	revision, err := l.store.Create(ctx, l.cfg.Name, l.cfg.Owner)
	if errors.Is(err, ErrHeld) {
		sent = time.Now()
		revision, err = l.takeOver(ctx)
	}
	switch {
	case errors.Is(err, ErrHeld):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lease: acquire %q: %w", l.cfg.Name, err)
	}
	return l.start(revision, sent, lost), nil //nolint:contextcheck // it is held for longer than the call takes
}

// HeldBy returns the owner that held the lease when Acquire last returned false, or "" if unknown.
// The lease may have changed since.
func (l *Lease) HeldBy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.other
}

func (l *Lease) heldBy(owner string) {
	l.mu.Lock()
	l.other = owner
	l.mu.Unlock()
}

// takeOver takes over an entry that an earlier call of the same owner created.
func (l *Lease) takeOver(ctx context.Context) (uint64, error) {
	entry, err := l.store.Get(ctx, l.cfg.Name)
	switch {
	case errors.Is(err, ErrFree):
		return l.store.Create(ctx, l.cfg.Name, l.cfg.Owner)
	case err != nil:
		return 0, err
	case entry.Owner != l.cfg.Owner:
		l.heldBy(entry.Owner)
		return 0, ErrHeld
	}
	return l.store.Renew(ctx, l.cfg.Name, l.cfg.Owner, entry.Revision)
}

// Release releases the lease. The lease counts as not held from the start of the call. After an
// error the entry may remain until it expires.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	revision := l.drop()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.OperationTimeout)
	defer cancel()
	if err := l.release(ctx, revision); err != nil && !errors.Is(err, ErrFree) && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("lease: release %q: %w", l.cfg.Name, err)
	}
	return nil
}

// release deletes the entry if it belongs to the owner. A call with an unknown outcome may have
// written that entry.
func (l *Lease) release(ctx context.Context, revision uint64) error {
	if revision > 0 {
		if err := l.store.Delete(ctx, l.cfg.Name, revision); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	entry, err := l.store.Get(ctx, l.cfg.Name)
	if err != nil || entry.Owner != l.cfg.Owner {
		return err
	}
	return l.store.Delete(ctx, l.cfg.Name, entry.Revision)
}

// Close stops the renewals. The entry remains until it expires. Close waits for a running call of
// lost, so lost must not call Close.
func (l *Lease) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.drop()
	l.running.Wait()
	return nil
}

// begin waits for the turn of a call.
func (l *Lease) begin(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("lease: %q: %w", l.cfg.Name, context.Cause(ctx))
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		l.end()
		return ErrClosed
	}
	return nil
}

func (l *Lease) end() { <-l.turn }

func (l *Lease) stillHeld(lost func(error)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || !time.Now().Before(l.hold.until) {
		return false
	}
	if lost != nil {
		l.hold.lost = lost
	}
	return true
}

// drop ends a hold and waits until its renewals have ended. It returns the last revision, 0 if
// there was no hold.
func (l *Lease) drop() uint64 {
	l.mu.Lock()
	h := l.hold
	l.hold = nil
	l.mu.Unlock()
	if h == nil {
		return 0
	}
	h.stop()
	<-h.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.revision
}

// errExpired is the cause of the loss when no renewal was acknowledged in time.
var errExpired = errors.New("lease: no renewal was acknowledged in time")

// validity returns the time until which a written entry counts as held.
func (l *Lease) validity(sent time.Time) time.Time { return sent.Add(l.store.Timeout() / 10 * 9) }

// start starts a hold, unless the acquisition took too long.
func (l *Lease) start(revision uint64, sent time.Time, lost func(error)) bool {
	ctx, stop := context.WithCancel(context.Background())
	h := &hold{until: l.validity(sent), revision: revision, lost: lost, stop: stop, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !time.Now().Before(h.until) {
		stop()
		return false
	}
	l.hold = h
	l.running.Go(func() { l.renewLoop(ctx, h) })
	return true
}

// renewLoop renews a hold until it is dropped or lost.
func (l *Lease) renewLoop(ctx context.Context, h *hold) {
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
	l.log.WarnContext(context.WithoutCancel(ctx), "lease: lost", slog.Any("error", cause))
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
			l.log.WarnContext(ctx, "lease: renewal failed", slog.Any("error", err))
			wait = min(wait, time.Second)
		}
		timer.Reset(min(wait, max(0, time.Until(h.until))))
	}
}

func (l *Lease) renew(ctx context.Context, h *hold) error {
	ctx, cancel := context.WithDeadline(ctx, h.until)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, l.cfg.OperationTimeout)
	defer cancel()
	sent := time.Now()
	revision, err := l.store.Renew(ctx, l.cfg.Name, l.cfg.Owner, h.revision)
	if errors.Is(err, ErrConflict) {
		// An earlier renewal with an unknown outcome may have written the entry.
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

// Config configures a Lease.
type Config struct {
	// Name is the name of the lease. Required.
	Name string
	// Owner identifies the holder. It must be unique, also across restarts of a process. Required.
	Owner string
	// Interval is the time between two renewals of the entry, less than half of the store's
	// time-out. Defaults to a tenth of the time-out, or to 5 s if that is longer. The default is at
	// most a quarter of the time-out.
	Interval time.Duration
	// OperationTimeout is how long one call of the store may take. Defaults to 5 s.
	OperationTimeout time.Duration
	// Logger logs the loss of the lease and failed renewals. Defaults to a logger that discards.
	Logger *slog.Logger
}

func (c Config) withDefaults(timeout time.Duration) Config {
	c.Interval = cmp.Or(c.Interval, min(max(timeout/10, 5*time.Second), timeout/4))
	c.OperationTimeout = cmp.Or(c.OperationTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate(timeout time.Duration) error {
	var errs fielderror.Errors
	errs.Join(Check("Config.Name", c.Name))
	errs.Join(Check("Config.Owner", c.Owner))
	if c.Interval <= 0 || c.Interval >= timeout/2 {
		errs.Addf("Config.Interval", "is %v, it must be more than 0 and less than half of %v", c.Interval, timeout)
	}
	fielderror.NotNegative(&errs, "Config.OperationTimeout", c.OperationTimeout)
	return errs.Err(ErrInvalid)
}
