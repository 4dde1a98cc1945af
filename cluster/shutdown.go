// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
)

// errPhaseTimeout is the cause of a context that ends because its phase took too long.
var errPhaseTimeout = errors.New("cluster: the phase of the shutdown took too long")

// Shutdown lets the node leave its cluster and end, phase by phase, and waits for it. It returns nil if the node has left, otherwise what Err
// returns. If ctx ends before, the shutdown goes on and the error is that of ctx.
func (n *Node) Shutdown(ctx context.Context) error {
	n.beginShutdown()
	select {
	case <-n.done:
	case <-ctx.Done():
		return fmt.Errorf("cluster: shut down %v: %w", n.self, context.Cause(ctx))
	}
	if errors.Is(n.err, ErrLeft) {
		return nil
	}
	return n.err
}

// Stop ends the membership at once, without leaving: the others find this node unreachable. It begins a shutdown and does not
// wait for it.
func (n *Node) Stop() {
	n.inputs.add(node.Membership{Input: membership.Shutdown{}})
	n.beginShutdown()
}

// ShutdownOnSignal waits for a signal, or for the end of ctx, and shuts the node down, however long that takes. It also returns when the node
// ends by itself. The result is that of Shutdown. The signals are SIGTERM and SIGINT if none are named; a second one
// does what it does by default, which is to end the process.
func (n *Node) ShutdownOnSignal(ctx context.Context, signals ...os.Signal) error {
	if len(signals) == 0 {
		signals = []os.Signal{syscall.SIGTERM, os.Interrupt}
	}
	told, stop := signal.NotifyContext(ctx, signals...)
	select {
	case <-told.Done():
		n.outlet.write(slog.LevelInfo, "the node was told to shut down", slog.Any("cause", context.Cause(told)))
	case <-n.done:
	}
	stop()
	return n.Shutdown(context.WithoutCancel(ctx))
}

// Stopping is closed when the shutdown of the node has begun.
func (n *Node) Stopping() <-chan struct{} { return n.stopped }

// beginShutdown begins the shutdown, once.
func (n *Node) beginShutdown() {
	n.stopping.Do(func() {
		close(n.stopped)
		go n.shutdown(n.base)
	})
}

// shutdown runs all phases. Then it ends what the node owns, and waits for it.
func (n *Node) shutdown(base context.Context) {
	builtIn := map[Phase]func(context.Context) error{
		PhaseLeave: n.phaseLeave, PhaseExiting: n.phaseExiting, PhaseExitingDone: n.phaseExitingDone,
		PhaseClusterStop: n.phaseClusterStop, PhaseTerminate: n.phaseTerminate,
	}
	for p := range phases {
		hooks := n.phases.of(p)
		if f := builtIn[p]; f != nil {
			hooks = append(hooks, &hook{"cluster", f})
		}
		n.runPhase(base, p, hooks)
	}
	close(n.quit)
	<-n.ended
	n.admins.Wait()
	if err := n.transport.Close(); err != nil {
		n.outlet.write(slog.LevelWarn, "the transport was not closed well", slog.Any("error", err))
	}
	n.leases.close(n.cfg.PhaseTimeout[PhaseTerminate])
	if n.err = n.left; n.err == nil {
		n.err = ErrStopped
	}
	n.hub.close()
	n.outlet.write(slog.LevelInfo, "the node has ended", slog.String("because", n.err.Error()))
	n.outlet.close(n.cfg.PhaseTimeout[PhaseTerminate])
	close(n.done)
}

// runPhase does what is to be done in a phase, all at once, for as long as the phase may take.
func (n *Node) runPhase(base context.Context, p Phase, hooks []*hook) {
	if len(hooks) == 0 {
		return
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(base, n.cfg.PhaseTimeout[p], errPhaseTimeout)
	defer cancel()
	var running sync.WaitGroup
	over := make([]atomic.Bool, len(hooks))
	for i, h := range hooks {
		running.Go(func() {
			defer over[i].Store(true)
			n.runHook(ctx, p, h)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		running.Wait()
	}()
	timedOut := false
	select {
	case <-done:
		timedOut = ctx.Err() != nil
	case <-ctx.Done():
		timedOut = true
	}
	took := time.Since(begun)
	if timedOut {
		var open []string
		for i, h := range hooks {
			if !over[i].Load() {
				open = append(open, h.name)
			}
		}
		n.outlet.write(slog.LevelWarn, "a phase of the shutdown took too long, it goes on without", slog.String("phase", p.String()), slog.Any("unfinished", open), slog.Duration("after", took))
	}
	if f := n.cfg.Observer.Phase; f != nil {
		n.outlet.add(func() { f(PhaseInfo{p, took, timedOut}) })
	}
}

// runHook does one thing of a phase.
func (n *Node) runHook(ctx context.Context, p Phase, h *hook) {
	defer func() {
		if r := recover(); r != nil {
			n.outlet.write(slog.LevelError, "a part of the shutdown panicked", slog.String("phase", p.String()), slog.String("part", h.name),
				slog.String("panic", fmt.Sprint(r)), slog.String("stack", string(debug.Stack())))
		}
	}()
	if err := h.f(ctx); err != nil {
		n.outlet.write(slog.LevelWarn, "a part of the shutdown failed", slog.String("phase", p.String()), slog.String("part", h.name), slog.Any("error", err))
	}
}

// leaves reports whether a node that is in this state can still leave.
func (n *Node) leaves(s *State) bool {
	return s.Joined && !s.Stopped && s.Status(n.self) != Down
}

// phaseLeave announces that the node leaves.
func (n *Node) phaseLeave(ctx context.Context) error {
	if !n.leaves(n.hub.current()) {
		return nil
	}
	if err := n.call(ctx, func() { n.member(membership.Leave{Node: n.self}) }); err != nil {
		return err
	}
	_, err := n.until(ctx, func(s *State) bool { return !n.leaves(s) || s.Status(n.self) == Leaving || s.Status(n.self) == Exiting })
	return err
}

// phaseExiting waits until all know that the node leaves, and gives away what it hosts.
func (n *Node) phaseExiting(ctx context.Context) error {
	s, err := n.until(ctx, func(s *State) bool { return !n.leaves(s) || s.Status(n.self) == Exiting })
	if err != nil || !n.leaves(s) {
		return err
	}
	if err := n.call(ctx, func() { n.step(node.Exit{}) }); err != nil {
		return err
	}
	return n.phaseExitingDone(ctx)
}

// phaseExitingDone waits until the node has left.
func (n *Node) phaseExitingDone(ctx context.Context) error {
	_, err := n.until(ctx, func(s *State) bool { return !n.leaves(s) || s.Status(n.self) != Exiting })
	return err
}

// phaseClusterStop ends the membership, if that has not happened. A node that is Down tells those that are Down with it.
func (n *Node) phaseClusterStop(ctx context.Context) error {
	s := n.hub.current()
	if s.Joined && s.Status(n.self) == Down {
		if _, err := n.until(ctx, func(s *State) bool { return s.Stopped }); err == nil {
			return nil
		}
	}
	if n.hub.current().Stopped {
		return nil
	}
	return n.call(context.WithoutCancel(ctx), func() { n.member(membership.Shutdown{}) })
}

// phaseTerminate waits for the instances of singletons, and for what is still to be sent.
func (n *Node) phaseTerminate(ctx context.Context) error {
	var errs []error
	if !n.hosts.busy.wait(ctx) {
		errs = append(errs, fmt.Errorf("singletons still run: %w", context.Cause(ctx)))
	}
	_ = n.call(ctx, n.handleAll) // that they have ended leads to releases; a loop that has failed releases nothing
	if !n.leases.busy.wait(ctx) {
		errs = append(errs, fmt.Errorf("leases are still being released: %w", context.Cause(ctx)))
	}
	if n.transport.Connected() == nil {
		errs = append(errs, n.transport.Flush(ctx))
	}
	return errors.Join(errs...)
}

// Phase is a part of a node's shutdown. Phases come one after the other; a phase that takes too long is passed
// over.
type Phase uint8

// The phases, in their order. In brackets is what the node itself does.
const (
	PhaseBeforeUnbind Phase = iota
	// PhaseUnbind: stop listening for requests from outside.
	PhaseUnbind
	// PhaseRequestsDone: answer those that are open.
	PhaseRequestsDone
	// PhaseStopServices: stop what answers them.
	PhaseStopServices
	PhaseBeforeClusterShutdown
	// PhaseStopRegions: give up shards. It may take 10 s.
	PhaseStopRegions
	// PhaseLeave [the node announces that it leaves].
	PhaseLeave
	// PhaseExiting [all know it; singletons are handed over]. It may take 10 s.
	PhaseExiting
	// PhaseExitingDone [the node has left].
	PhaseExitingDone
	// PhaseClusterStop [the node ends its membership, if it could not leave].
	PhaseClusterStop
	PhaseBeforeTerminate
	// PhaseTerminate: close what others may have used until now [instances of singletons have ended, the transport is closed after]. It
	// may take 10 s.
	PhaseTerminate

	phases
)

func (p Phase) String() string {
	names := [...]string{
		"before-unbind", "unbind", "requests-done", "stop-services", "before-cluster-shutdown", "stop-regions",
		"leave", "exiting", "exiting-done", "cluster-stop", "before-terminate", "terminate",
	}
	if int(p) >= len(names) {
		return fmt.Sprintf("phase(%d)", uint8(p))
	}
	return names[p]
}

// hook is something to be done in a phase.
type hook struct {
	name string
	f    func(context.Context) error
}

// phaseHooks are what is to be done in all phases.
type phaseHooks struct {
	mu    sync.Mutex
	begun Phase // this one and those after it have not begun
	hooks [phases][]*hook
}

// OnShutdown lets f be called in a phase of the node's shutdown, side by side with the others of that phase. Its context ends when
// the phase has taken too long; f should return then, for nobody waits for it any more. An error is logged under
// the name. Remove takes it away again; it is never nil. The error matches ErrInvalid, or ErrShuttingDown if the phase has begun: then f
// is not called.
func (n *Node) OnShutdown(p Phase, name string, f func(ctx context.Context) error) (remove func(), err error) {
	nothing := func() {}
	switch {
	case p >= phases:
		return nothing, invalid("there is no %v of the shutdown, for %q", p, name)
	case f == nil:
		return nothing, invalid("there is nothing to call in the phase %v of the shutdown for %q", p, name)
	}
	added := &hook{name, f}
	n.phases.mu.Lock()
	defer n.phases.mu.Unlock()
	if p < n.phases.begun {
		return nothing, fmt.Errorf("%w: the phase %v has begun, it comes too late for %q", ErrShuttingDown, p, name)
	}
	n.phases.hooks[p] = append(n.phases.hooks[p], added)
	return func() {
		n.phases.mu.Lock()
		defer n.phases.mu.Unlock()
		n.phases.hooks[p] = slices.DeleteFunc(n.phases.hooks[p], func(other *hook) bool { return other == added })
	}, nil
}

// of begins a phase, and returns what is to be done in it.
func (h *phaseHooks) of(p Phase) []*hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = p + 1
	return slices.Clone(h.hooks[p])
}
