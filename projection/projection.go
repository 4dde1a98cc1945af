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

	"github.com/refold-io/refold/journal"
)

// Projection keeps a read model up to date with a journal. It is safe for
// concurrent use.
type Projection[E any] struct {
	cfg     Config[E]
	querier journal.Querier
	d       delivery[E]
	gate    gate
	kick    chan struct{} // a rebuild was asked for here
	total   counters

	mu       sync.Mutex
	started  bool
	running  bool
	workers  []*worker[E]
	blind    time.Time // since when there are no workers, zero if there are
	err      error     // why it could not begin the last time
	failures int       // how often in a row
	nextTry  time.Time // when it begins again, zero if it does not wait for that
}

// counters count since New.
type counters struct{ handled, skipped, retries, restarts atomic.Uint64 }

// New returns a projection that does nothing until Run or CatchUp. The error
// matches ErrInvalid and names all mistakes in the configuration; it matches
// journal.ErrNoQueries if the journal can't be read across persistence IDs.
func New[E any](cfg Config[E]) (*Projection[E], error) {
	cfg = cfg.withDefaults()
	querier, d, err := cfg.build()
	if err != nil {
		return nil, fmt.Errorf("projection %q: %w", cfg.Name, err)
	}
	return &Projection[E]{cfg: cfg, querier: querier, d: d, kick: make(chan struct{}, 1), blind: time.Now()}, nil
}

// Run handles events, from the stored positions on and then live, until ctx
// ends. It returns the cause of ctx, or earlier an error that beginning again
// can't mend: the journal was closed, its offsets are of another kind, the store
// was never set up. All other failures are logged, shown by Status, and tried again
// after a pause, for ever or as often as Config.MaxRestarts says. When it has
// returned no handler is running, and what was handled is saved. The error matches
// ErrRunning if the projection runs already.
func (p *Projection[E]) Run(ctx context.Context) error { return p.run(ctx, false) }

// CatchUp is Run that returns nil when it has handled all events that the
// journal showed when it began. When an event can't be handled, or a journal or a
// store is away, it gives up after 10 attempts in a row, which is about four
// minutes, and returns the error; Config.MaxRestarts says otherwise.
func (p *Projection[E]) CatchUp(ctx context.Context) error { return p.run(ctx, true) }

// Pause waits for the handlers in progress to end, and lets none begin until
// Resume, in a later Run too. It returns early, with the cause of ctx, if that
// ends while a handler runs; none begins then either. It is about this process
// only, and is not remembered. A handler must not call it.
func (p *Projection[E]) Pause(ctx context.Context) error {
	if err := p.gate.close(ctx); err != nil {
		return fmt.Errorf("projection %q: pause: %w", p.cfg.Name, err)
	}
	return nil
}

// Resume ends a Pause.
func (p *Projection[E]) Resume() { p.gate.open() }

// Rebuild asks for the read model to be cleared and built anew from the first
// event. When it returns nil this is durable: a projection that runs does it at
// once here, and within half a minute in another process; otherwise the next Run
// does it. It does nothing if the projection has never run. The error matches
// ErrNoClear if the handler has no Clear.
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
		case errors.Is(err, errRebuild) || errors.Is(err, errMoved):
			continue
		case began: // a worker gave up
			return err
		}
		if row.add(err, p.cfg.MaxRestarts, once) || hopeless(err) {
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

// session runs the workers, until one of them gives up or the ranges have to be
// looked at anew. It reports whether it came that far.
func (p *Projection[E]) session(ctx context.Context, once bool) (began bool, err error) {
	select {
	case <-p.kick: // what it asks for is about to be looked at
	default:
	}
	p.show(nil)
	positions, err := p.prepare(ctx)
	if err != nil {
		return false, fmt.Errorf("projection %q: %w", p.cfg.Name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]*worker[E], len(positions))
	results := make(chan error, len(positions))
	for i, position := range positions {
		workers[i] = &worker[E]{p: p, slices: position.Slices, once: once}
		workers[i].figures.create(position.Slices)
	}
	p.show(workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, w := range workers {
		wg.Go(func() {
			result := errExited
			defer func() { results <- result }()
			result = w.run(ctx)
		})
	}
	ticker := time.NewTicker(lookInterval)
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

// lookInterval is how often to look whether another process asked for a rebuild.
// Workers that move see it by themselves.
const lookInterval = 10 * time.Second

// lookForRebuild returns an error if a rebuild was asked for.
func (p *Projection[E]) lookForRebuild(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	positions, err := p.d.store.Load(ctx, p.cfg.Name)
	if err == nil && mustClear(positions) {
		return errRebuild
	}
	return nil // the workers find out about an error
}

// prepare loads the positions, divides ranges, and clears the read model if that
// was asked for.
func (p *Projection[E]) prepare(ctx context.Context) ([]Position, error) {
	if p.d.settle != nil {
		if err := p.d.settle(ctx, p.cfg.Name); err != nil {
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
		p.cfg.Logger.InfoContext(ctx, "more ranges of slices are stored than workers asked for", slog.String("projection", p.cfg.Name), slog.Int("ranges", len(positions)))
	}
	switch {
	case mustClear(stored):
		if !p.d.clears {
			return nil, ErrNoClear
		}
		if positions, err = arrange(nil, p.cfg.Workers); err != nil { // all are at the beginning, so they may be joined
			return nil, err
		}
		if err = p.d.clear(ctx, &p.gate, Move{Projection: p.cfg.Name, From: stored, To: positions}); err != nil {
			return nil, fmt.Errorf("clear the read model: %w", err)
		}
	case len(positions) > len(stored):
		if err = p.d.store.Save(ctx, Move{Projection: p.cfg.Name, From: stored, To: positions}); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// restart waits before the next attempt to begin.
func (p *Projection[E]) restart(ctx context.Context, n int, cause error) error {
	pause := p.cfg.pause(n, rand.Float64()) //nolint:gosec // jitter is not a secret
	p.tellRestart(ctx, RestartInfo{Attempt: n, Pause: pause, Err: cause})
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

// tellRestart counts and reports a failure.
func (p *Projection[E]) tellRestart(ctx context.Context, info RestartInfo) {
	info.Projection = p.cfg.Name
	p.total.restarts.Add(1)
	attrs := p.attrs(info.Err, slog.String("slices", info.Slices.String()), slog.Int("attempt", info.Attempt), slog.Duration("next_try_in", info.Pause))
	if errors.Is(info.Err, ErrFenced) {
		p.cfg.Logger.InfoContext(ctx, "a projection gives way to another process and begins again", attrs...)
	} else {
		p.cfg.Logger.WarnContext(ctx, "a projection failed and begins again", attrs...)
	}
	observe(ctx, p, p.cfg.Observer.Restarted, info)
}

// show is what Status sees from now on.
func (p *Projection[E]) show(workers []*worker[E]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers, p.nextTry = workers, time.Time{}
	switch {
	case workers != nil:
		p.blind, p.err, p.failures = time.Time{}, nil, 0
	case p.blind.IsZero():
		p.blind = time.Now()
	}
}

// showFailure makes Status see why the projection did not begin for the nth time in
// a row. No pause means that it gives up.
func (p *Projection[E]) showFailure(err error, n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.failures = err, n
	if pause > 0 {
		p.nextTry = time.Now().Add(pause)
	}
}
