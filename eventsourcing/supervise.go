// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"log/slog"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/panics"
)

// Directive is the decision of HostOptions.Supervise about an entity that has failed. With each
// directive, the caller of the failed command gets the error.
type Directive uint8

const (
	// Restart drops the instance and recovers another one. The commands that wait are handled by the new
	// instance. After a write or a recovery that failed, or after PanicLimit panics, the entity pauses
	// first, see HostOptions.MinBackoff.
	Restart = Directive(engine.Restart)
	// Resume keeps the instance with its state, its timers and its stashed commands. It applies where
	// the state is intact: after a panic of a handler or a callback that has applied no event, and after
	// a full stash. In all other cases it is the same as Restart.
	Resume = Directive(engine.Resume)
	// Stop ends the entity. The commands that wait fail with ErrStopped, or with the error of the
	// recovery. The next command starts the entity, without a pause. With package sharding, a
	// remembered entity is forgotten until then, and an entity with unconfirmed deliveries or a deadline
	// continues them then, or when its shard starts the next time.
	Stop = Directive(engine.Stop)
	// Escalate is Stop, and withdraws the type from the runtime, as Local.Close or sharding.Region.Close
	// does. Local.Err or sharding.Region.Err returns the error of the entity.
	Escalate = Directive(engine.Escalate)
)

func (h *host) supervise(cause error) engine.Directive {
	verdict := engine.Restart
	if p := panics.Call(func() { verdict = engine.Directive(h.opts.Supervise(cause)) }); p != nil {
		h.rt.log.Error("HostOptions.Supervise panicked", slog.String("type", h.model.name), slog.Any("error", p), slog.String("stack", string(p.Stack)))
	}
	if verdict > engine.Escalate {
		h.rt.log.Error("HostOptions.Supervise returned an unknown directive", slog.String("type", h.model.name), slog.Int("directive", int(verdict)))
		return engine.Restart
	}
	return verdict
}

// escalate closes the host because of the error of an entity.
func (h *host) escalate(cause error) {
	if !h.reason.CompareAndSwap(nil, &cause) {
		return
	}
	h.rt.log.Error("type withdrawn because an entity has failed", slog.String("type", h.model.name), slog.Any("error", cause))
	if f := h.hooks.Escalated; f != nil {
		f(cause)
		return
	}
	h.close()
}

// Close withdraws the type from the runtime. Entities handle the commands that they have received, and
// stop. Other commands fail with ErrClosed; those that entities send fail with ErrUnknownType. If ctx
// ends first, the remaining entities are aborted as in Runtime.Close, and the error is the cause of ctx.
// When Done is closed, the type can be hosted again. A second Close waits for the same end.
func (h *Local[S, E]) Close(ctx context.Context) error { return h.host.withdraw(ctx) }

func (h *host) withdraw(ctx context.Context) error {
	h.close()
	err := h.drained(ctx)
	if err != nil {
		h.each(func(e *entity) { e.stop(stopKill) })
	}
	return err
}

// Done is closed when the type is no longer hosted: after Close, Escalate, or the end of the runtime,
// when all entities have stopped.
func (h *Local[S, E]) Done() <-chan struct{} { return h.host.empty }

// Err returns the error of the entity for which HostOptions.Supervise returned Escalate, nil if there is
// none.
func (h *Local[S, E]) Err() error {
	if reason := h.host.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}
