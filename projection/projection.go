// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// Projection keeps a read model up to date with a journal. It is safe for concurrent use.
type Projection[E any] struct {
	cfg     Config[E]
	querier journal.Querier
	d       delivery[E]
	gate    pauseGate
	kick    chan struct{} // a rebuild was requested in this process
	total   counters

	mu        sync.Mutex
	started   bool
	running   bool
	workers   []*worker[E]
	idleSince time.Time // time since when no worker is running, or zero
	err       error     // error that prevented the last start
	failures  int       // number of consecutive failures to start
	nextTry   time.Time // time of the next start, zero if none is pending
}

// counters count since New.
type counters struct{ handled, skipped, retries, restarts atomic.Uint64 }

// New returns a projection that does nothing until Run or CatchUp. If the configuration is invalid,
// the error matches ErrInvalid and lists all invalid fields. If the journal can't be read across
// persistence IDs, the error matches journal.ErrNoQueries.
func New[E any](cfg Config[E]) (*Projection[E], error) {
	cfg = cfg.withDefaults()
	querier, d, err := cfg.build()
	if err != nil {
		return nil, fmt.Errorf("projection %q: %w", cfg.Name, err)
	}
	return &Projection[E]{cfg: cfg, querier: querier, d: d, kick: make(chan struct{}, 1), idleSince: time.Now()}, nil
}

// Run handles events from the stored positions on, and then new events, until ctx ends. It returns
// the cause of ctx, or, before ctx ends, an error that a restart cannot resolve. Such errors are a
// closed journal, a stored offset of another kind of journal, and a store that was not set up.
// Other failures are logged, shown by Status, and retried after a pause, up to Config.MaxRestarts
// times. When Run returns, no handler is running and the handled position is saved. The error
// matches ErrRunning if the projection is already running.
func (p *Projection[E]) Run(ctx context.Context) error { return p.run(ctx, false) }

// CatchUp is like Run, but returns nil when it has handled all events that were visible at the start: the
// journal hides an event as long as an append that began earlier may still store an event before it. When an event cannot be handled, or the journal or a store is unavailable, it returns the
// error after Config.MaxRestarts attempts, by default after 10 (about four minutes).
func (p *Projection[E]) CatchUp(ctx context.Context) error { return p.run(ctx, true) }

// Pause waits for the running handlers and prevents further ones until Resume, also in a later Run.
// It returns early, with the cause of ctx, if ctx ends while a handler is running; in this case the
// projection is paused, too. A pause affects this process only and is not stored. A handler must
// not call Pause.
func (p *Projection[E]) Pause(ctx context.Context) error {
	if err := p.gate.close(ctx); err != nil {
		return fmt.Errorf("projection %q: pause: %w", p.cfg.Name, err)
	}
	return nil
}

// Resume ends a Pause.
func (p *Projection[E]) Resume() { p.gate.open() }

// Paused reports whether Pause was called after the last Resume.
func (p *Projection[E]) Paused() bool { return p.gate.isClosed() }

// Name returns Config.Name.
func (p *Projection[E]) Name() string { return p.cfg.Name }

// CanRebuild reports whether the handler has a Clear, which Rebuild requires.
func (p *Projection[E]) CanRebuild() bool { return p.d.clears }

// Rebuild requests that the read model is cleared and rebuilt from the first event. The request is
// durable when Rebuild returns nil. A projection that runs in this process starts the rebuild
// immediately. A projection that runs in another process starts it within half a minute. If the
// projection is not running, the next Run starts the rebuild. Rebuild has no effect if the
// projection has never run. The error matches ErrNoClear if the handler has no Clear.
func (p *Projection[E]) Rebuild(ctx context.Context) error {
	if !p.d.clears {
		return fmt.Errorf("projection %q: rebuild: %w", p.cfg.Name, ErrNoClear)
	}
	if err := p.d.store.Reset(ctx, p.cfg.Name); err != nil {
		return fmt.Errorf("projection %q: rebuild: %w", p.cfg.Name, err)
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return nil
}

// run is Run and CatchUp.
func (p *Projection[E]) run(ctx context.Context, once bool) error {
	if !p.begin() {
		return fmt.Errorf("projection %q: %w", p.cfg.Name, ErrRunning)
	}
	defer p.end()
	for row := (streak{}); ; {
		began, err := p.session(ctx, once)
		if began {
			row = streak{}
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRebuild) || errors.Is(err, errRangesChanged):
			continue
		case began: // a worker failed permanently
			return err
		}
		if row.add(err, p.cfg.MaxRestarts, once) || isPermanent(err) {
			p.showFailure(err, row.length(), 0)
			return err
		}
		if err = p.restart(ctx, row.length(), err); err != nil {
			return err
		}
	}
}

// begin marks the projection as running.
func (p *Projection[E]) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := !p.running
	p.started, p.running = true, true
	return began
}

func (p *Projection[E]) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.nextTry = false, time.Time{}
}

// session runs the workers until one of them fails permanently or the ranges must be loaded again.
// It reports whether the workers were started.
func (p *Projection[E]) session(ctx context.Context, once bool) (began bool, err error) {
	select {
	case <-p.kick: // the session starts now
	default:
	}
	p.setWorkers(nil)
	var positions []Position
	if err = panics.Catch(func() (err error) {
		positions, err = p.prepare(ctx)
		return err
	}); err != nil {
		return false, fmt.Errorf("projection %q: %w", p.cfg.Name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]*worker[E], len(positions))
	results := make(chan error, len(positions))
	for i, position := range positions {
		workers[i] = &worker[E]{p: p, slices: position.Slices, once: once}
		workers[i].figures.now.State, workers[i].figures.unknownSince = Starting, time.Now()
	}
	p.setWorkers(workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, w := range workers {
		wg.Go(func() {
			result := errExited
			defer func() { results <- result }()
			result = w.run(ctx)
		})
	}
	ticker := time.NewTicker(rebuildCheckInterval)
	defer ticker.Stop()
	for left := len(workers); left > 0; {
		var result error
		select {
		case result = <-results:
			left--
		case <-p.kick:
			result = errRebuild
		case <-ticker.C:
			result = p.lookForRebuild(ctx)
		}
		if result != nil && err == nil {
			err = result
			cancel(err)
		}
	}
	return true, err
}

// rebuildCheckInterval is the interval of the check for a rebuild that another process requested. A
// worker that saves its position detects the request immediately.
const rebuildCheckInterval = 10 * time.Second

// lookForRebuild returns an error if a rebuild was requested.
func (p *Projection[E]) lookForRebuild(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rebuildCheckInterval)
	defer cancel()
	var positions []Position
	err := panics.Catch(func() (err error) {
		positions, err = p.d.store.Load(ctx, p.cfg.Name)
		return err
	})
	if err == nil && mustClear(positions) {
		return errRebuild
	}
	return nil // the workers report errors of the store
}

// prepare loads the positions, divides ranges, and clears the read model if a rebuild was requested.
func (p *Projection[E]) prepare(ctx context.Context) ([]Position, error) {
	if p.d.checkOutcome != nil {
		if err := p.d.checkOutcome(ctx, p.cfg.Name); err != nil {
			return nil, err
		}
	}
	stored, err := p.d.store.Load(ctx, p.cfg.Name)
	if err != nil {
		return nil, err
	}
	positions, err := arrange(stored, p.cfg.Workers)
	if err != nil {
		return nil, err
	}
	if len(positions) > p.cfg.Workers {
		p.cfg.Logger.InfoContext(ctx, "projection: more ranges of slices are stored than workers are configured", slog.String("projection", p.cfg.Name), slog.Int("ranges", len(positions)))
	}
	if mustClear(stored) {
		if !p.d.clears {
			return nil, ErrNoClear
		}
		if positions, err = arrange(nil, p.cfg.Workers); err != nil { // all are at the beginning, so they may be joined
			return nil, err
		}
		if err = p.d.clear(ctx, &p.gate, Move{Projection: p.cfg.Name, From: stored, To: positions}); err != nil {
			return nil, fmt.Errorf("clear the read model: %w", err)
		}
	} else if len(positions) > len(stored) {
		if err = p.d.store.Save(ctx, Move{Projection: p.cfg.Name, From: stored, To: positions}); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

func (p *Projection[E]) restart(ctx context.Context, n int, cause error) error {
	pause := p.cfg.pause(n, rand.Float64()) //nolint:gosec // jitter is not a secret
	p.notifyRestart(ctx, RestartInfo{Attempt: n, Pause: pause, Err: cause})
	p.showFailure(cause, n, pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.kick:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (p *Projection[E]) notifyRestart(ctx context.Context, info RestartInfo) {
	info.Projection = p.cfg.Name
	p.total.restarts.Add(1)
	attrs := p.attrs(info.Err, slog.String("slices", info.Slices.String()), slog.Int("attempt", info.Attempt), slog.Duration("next_try_in", info.Pause))
	if errors.Is(info.Err, ErrFenced) {
		p.cfg.Logger.InfoContext(ctx, "projection: fenced by another process, restarting", attrs...)
	} else {
		p.cfg.Logger.WarnContext(ctx, "projection: failed, restarting", attrs...)
	}
	observe(ctx, p, p.cfg.Observer.Restarted, info)
}

func (p *Projection[E]) setWorkers(workers []*worker[E]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers, p.nextTry = workers, time.Time{}
	if workers != nil {
		p.idleSince, p.err, p.failures = time.Time{}, nil, 0
	} else if p.idleSince.IsZero() {
		p.idleSince = time.Now()
	}
}

// showFailure sets the error of the nth consecutive failure to start. A pause of 0 means that no
// further attempt follows.
func (p *Projection[E]) showFailure(err error, n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.failures = err, n
	if pause > 0 {
		p.nextTry = time.Now().Add(pause)
	}
}

// pauseGate admits handlers while the projection is not paused.
type pauseGate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil while open; closed when it opens
	running int
	left    chan struct{} // nil, or closed when no handler is running
}

// enter waits until the projection is not paused. The caller must call leave afterwards.
func (g *pauseGate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.running++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *pauseGate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// close pauses the projection and waits until no handler is running.
func (g *pauseGate) close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.left == nil {
		g.left = make(chan struct{})
	}
	left := g.left
	g.mu.Unlock()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *pauseGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *pauseGate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed != nil
}
