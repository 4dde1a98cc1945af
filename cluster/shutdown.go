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
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/panics"
)

var errPhaseTimeout = errors.New("cluster: the phase of the shutdown took too long")

// Shutdown lets the node leave its cluster, phase by phase, and waits until the node has ended. It
// returns nil if the node has left. If the node has ended without leaving, it returns the result of
// Err. If ctx ends first, the shutdown continues and the error is that of ctx.
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

// Stop ends the membership at once without leaving: the other nodes find this node unreachable.
// Stop starts the shutdown and does not wait for its end.
func (n *Node) Stop() {
	n.inputs.Add(node.Membership{Input: membership.Shutdown{}})
	n.beginShutdown()
}

// ShutdownOnSignal waits for a signal or the end of ctx. Then it shuts the node down and waits
// until the node has ended. It also returns when the node ends for another reason. The result is
// that of Shutdown. The default signals are SIGTERM and SIGINT. A second signal has its default
// effect: the process ends.
func (n *Node) ShutdownOnSignal(ctx context.Context, signals ...os.Signal) error {
	if len(signals) == 0 {
		signals = []os.Signal{syscall.SIGTERM, os.Interrupt}
	}
	signalled, stop := signal.NotifyContext(ctx, signals...)
	select {
	case <-signalled.Done():
		n.out.Log(slog.LevelInfo, "shutdown: requested", slog.Any("cause", context.Cause(signalled)))
	case <-n.done:
	}
	stop()
	return n.Shutdown(context.WithoutCancel(ctx))
}

// Stopping returns a channel that is closed when the shutdown of the node begins.
func (n *Node) Stopping() <-chan struct{} { return n.stopped }

func (n *Node) beginShutdown() {
	n.stopping.Do(func() {
		close(n.stopped)
		go n.shutdown(n.base)
	})
}

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
		n.out.Log(slog.LevelWarn, "shutdown: closing the transport failed", slog.Any("error", err))
	}
	n.leases.close(base, n.cfg.PhaseTimeout[PhaseTerminate])
	if n.err = n.left; n.err == nil {
		n.err = ErrStopped
		if s := n.events.current(); s.Joined && s.Status(n.self) == Down {
			n.err = ErrDowned // PhaseClusterStop timed out before the membership ended
		}
	}
	n.events.close()
	n.out.Log(slog.LevelInfo, "node ended", slog.String("reason", n.err.Error()))
	n.out.Close(n.cfg.PhaseTimeout[PhaseTerminate])
	close(n.done)
}

// runPhase runs the hooks of a phase concurrently, for at most the time-out of the phase.
func (n *Node) runPhase(base context.Context, p Phase, hooks []*hook) {
	if len(hooks) == 0 {
		return
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(base, n.cfg.PhaseTimeout[p], errPhaseTimeout)
	defer cancel()
	var running loop.InFlight
	over := make([]atomic.Bool, len(hooks))
	for i, h := range hooks {
		running.Begin()
		go func() {
			defer running.End()
			defer over[i].Store(true)
			n.runHook(ctx, p, h)
		}()
	}
	timedOut := !running.Wait(ctx) || ctx.Err() != nil
	took := time.Since(begun)
	if timedOut {
		var open []string
		for i, h := range hooks {
			if !over[i].Load() {
				open = append(open, h.name)
			}
		}
		n.out.Log(slog.LevelWarn, "shutdown: phase timed out, continuing with the next one", slog.String("phase", p.String()), slog.Any("unfinished", open), slog.Duration("after", took))
	}
	if f := n.cfg.Observer.Phase; f != nil {
		n.out.Do(func() { f(PhaseInfo{p, took, timedOut}) })
	}
}

func (n *Node) runHook(ctx context.Context, p Phase, h *hook) {
	err := panics.Catch(func() error { return h.f(ctx) })
	attrs := []slog.Attr{slog.String("phase", p.String()), slog.String("function", h.name), slog.Any("error", err)}
	if panicked, ok := errors.AsType[*panics.Error](err); ok {
		n.out.Log(slog.LevelError, "shutdown: function panicked", append(attrs, slog.String("stack", string(panicked.Stack)))...)
	} else if err != nil {
		n.out.Log(slog.LevelWarn, "shutdown: function failed", attrs...)
	}
}

// leaves reports whether a node in this state can still leave.
func (n *Node) leaves(s *State) bool {
	return s.Joined && !s.Stopped && s.Status(n.self) != Down
}

func (n *Node) phaseLeave(ctx context.Context) error {
	if !n.leaves(n.events.current()) {
		return nil
	}
	if err := n.call(ctx, func() { n.member(membership.Leave{Node: n.self}) }); err != nil {
		return err
	}
	_, err := n.until(ctx, func(s *State) bool { return !n.leaves(s) || s.Status(n.self) == Leaving || s.Status(n.self) == Exiting })
	return err
}

// phaseExiting waits until all members have seen that the node leaves, and hands over its
// singletons.
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

func (n *Node) phaseExitingDone(ctx context.Context) error {
	_, err := n.until(ctx, func(s *State) bool { return !n.leaves(s) || s.Status(n.self) != Exiting })
	return err
}

// phaseClusterStop ends the membership if it has not ended. A node that is Down notifies the
// members that are Down with it.
func (n *Node) phaseClusterStop(ctx context.Context) error {
	s := n.events.current()
	if s.Joined && s.Status(n.self) == Down {
		if _, err := n.until(ctx, func(s *State) bool { return s.Stopped }); err == nil {
			return nil
		}
	}
	if n.events.current().Stopped {
		return nil
	}
	return n.call(context.WithoutCancel(ctx), func() { n.member(membership.Shutdown{}) })
}

func (n *Node) phaseTerminate(ctx context.Context) error {
	var errs []error
	if !n.instances.busy.Wait(ctx) {
		errs = append(errs, fmt.Errorf("singletons still run: %w", context.Cause(ctx)))
	}
	_ = n.call(ctx, n.handleAll) // an instance that has ended may release its lease; a failed loop releases nothing
	if !n.leases.busy.Wait(ctx) {
		errs = append(errs, fmt.Errorf("leases are still being released: %w", context.Cause(ctx)))
	}
	if n.transport.Connected() == nil {
		errs = append(errs, n.transport.Flush(ctx))
	}
	return errors.Join(errs...)
}

// Phase is a step of a node's shutdown. Phases run one after another. The shutdown continues with
// the next phase if one times out.
type Phase uint8

// The phases in their order. Brackets contain the actions of the node itself.
const (
	PhaseBeforeUnbind Phase = iota
	// PhaseUnbind: stop listening for requests from outside.
	PhaseUnbind
	// PhaseRequestsDone: finish the open requests.
	PhaseRequestsDone
	// PhaseStopServices: stop the services that handle requests.
	PhaseStopServices
	PhaseBeforeClusterShutdown
	// PhaseStopRegions: hand off shards. Its time-out defaults to 10 s.
	PhaseStopRegions
	// PhaseLeave [the node announces that it leaves].
	PhaseLeave
	// PhaseExiting [all members have seen that the node leaves; singletons are handed over]. Its
	// time-out defaults to 10 s.
	PhaseExiting
	// PhaseExitingDone [the node has left].
	PhaseExitingDone
	// PhaseClusterStop [the node ends its membership if it could not leave].
	PhaseClusterStop
	PhaseBeforeTerminate
	// PhaseTerminate: close resources that earlier phases may use [singletons' instances have
	// ended; the transport is closed afterwards]. Its time-out defaults to 10 s.
	PhaseTerminate

	phases
)

func (p Phase) String() string {
	return enum.Name(p, "phase",
		"before-unbind", "unbind", "requests-done", "stop-services", "before-cluster-shutdown",
		"stop-regions", "leave", "exiting", "exiting-done", "cluster-stop", "before-terminate", "terminate")
}

type hook struct {
	name string
	f    func(context.Context) error
}

type shutdownHooks struct {
	mu    sync.Mutex
	begun Phase // the first phase that has not begun
	hooks [phases][]*hook
}

// OnShutdown registers f for a phase of the node's shutdown. All functions of a phase run
// concurrently. The context of f ends when the phase times out; then the shutdown continues without
// waiting for f. An error of f is logged with the name. The returned function removes f; it is
// never nil. The error matches ErrInvalid, or ErrShuttingDown if the phase has begun: then f is not
// called. If the membership of the node has ended, the error also matches the reason, see Err.
func (n *Node) OnShutdown(p Phase, name string, f func(ctx context.Context) error) (remove func(), err error) {
	nothing := func() {}
	switch {
	case p >= phases:
		return nothing, invalid("phase %v of the shutdown does not exist: cannot register function %q", p, name)
	case f == nil:
		return nothing, invalid("phase %v of the shutdown: function %q is nil", p, name)
	}
	added := &hook{name, f}
	n.phases.mu.Lock()
	defer n.phases.mu.Unlock()
	if p < n.phases.begun {
		return nothing, fmt.Errorf("%w: phase %v has begun: cannot register function %q", n.shuttingDown(), p, name)
	}
	n.phases.hooks[p] = append(n.phases.hooks[p], added)
	return func() {
		n.phases.mu.Lock()
		defer n.phases.mu.Unlock()
		n.phases.hooks[p] = slices.DeleteFunc(n.phases.hooks[p], func(other *hook) bool { return other == added })
	}, nil
}

// shuttingDown returns ErrShuttingDown. If the membership has ended, it also matches the reason.
func (n *Node) shuttingDown() error {
	if why := n.events.current().Err; why != nil {
		return fmt.Errorf("%w: %w", ErrShuttingDown, why)
	}
	return ErrShuttingDown
}

// of marks a phase as begun and returns its hooks.
func (h *shutdownHooks) of(p Phase) []*hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = p + 1
	return slices.Clone(h.hooks[p])
}
