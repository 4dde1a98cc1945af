// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// Observer receives the events of a runtime. A function may be nil and then costs nothing. The
// functions are called synchronously, must not block, and must be safe for concurrent use. A panic is
// logged and has no further effect.
type Observer struct {
	// Begin is called when a command is passed to its entity. It returns the context of the command:
	// CommandInfo.Context or one derived from it. Context.Context returns this context, and Inject
	// and Command receive it. One call of Command follows.
	Begin func(CommandInfo) context.Context
	// Command is called when a command was answered, when a command without a reply was handled, or
	// when its caller stopped waiting before the command was handled.
	Command func(CommandInfo)
	// Stashed is called when a command must wait in its entity, or was stashed by a handler.
	Stashed func(StashInfo)
	// Commit is called when a group of writes was sent to the journal.
	Commit func(CommitInfo)
	// RecoveryStarted and Recovery are called at the begin and the end of a recovery.
	RecoveryStarted func(persistenceID string)
	Recovery        func(RecoveryInfo)
	// Snapshot is called when a snapshot was saved, or when a save failed.
	Snapshot func(SnapshotInfo)
	// Failure is called when an entity dropped its instance because of an error: a failed or rejected
	// write, a conflict, a panic, or a failed recovery. It is also called when HostOptions.Supervise has
	// resumed the entity instead.
	Failure func(persistenceID string, cause error)
	// Fence is called when a write has an unknown outcome that has to be settled.
	Fence func(persistenceID string, seqNr uint64)
	// Dropped is called when a message without a waiting caller could not be delivered: the stash was
	// full, or the entity or the runtime had stopped.
	Dropped func(DroppedInfo)
	// Unreturned is called when a handler or callback made effects and did not return them. Such
	// effects are not performed, and the first ones of each type of message are logged. Unreturned may
	// be called again if the command is handled again.
	Unreturned func(UnreturnedInfo)
	// Stopped is called when an entity has left memory.
	Stopped func(persistenceID string)
	// Durable is called when the events of an entity are durable up to a sequence number.
	Durable func(persistenceID string, seqNr uint64)

	// Inject returns the metadata that is stored with the events of a command with this context, nil
	// for none. The metadata must not be changed later.
	Inject func(ctx context.Context) []byte
	// Extract is the inverse of Inject: it returns a context derived from ctx. When an event makes a
	// part send a command, the part passes the metadata of this event and uses the returned context.
	Extract func(ctx context.Context, metadata []byte) context.Context
}

// CommandInfo describes a command.
type CommandInfo struct {
	PersistenceID string
	Command       any
	// Context is the context of the caller, used for its values. After Begin it is the context that
	// Begin returned. The context may have ended. Commands without a caller, such as those of
	// timers, have context.Background.
	Context context.Context //nolint:containedctx // the info is about it
	// Attempt counts the transmissions of a command that a part sends. The count begins with 1 at
	// each start of the part's entity. It is 0 for other commands.
	Attempt int
	// Began is the time at which the command was passed to its entity. Duration is the time until the
	// reply, and 0 in Begin.
	Began    time.Time
	Duration time.Duration
	// Events is the number of events that the handler has returned, and SequenceNr the sequence
	// number of the last one, 0 for none. The events are stored unless Err reports otherwise.
	Events     int
	SequenceNr uint64
	// Err is the error with which the command was answered.
	Err error
}

// StashInfo describes a command that waits in its entity.
type StashInfo struct {
	PersistenceID string
	Command       any
	// Aside is true if the handler stashed the command, with Context.Stash. Otherwise the command
	// waits for a recovery, for the end of a back-off, or for a barrier such as a callback.
	Aside bool
}

// CommitInfo describes a group of writes.
type CommitInfo = journal.CommitInfo

// RecoveryInfo describes a recovery that ended.
type RecoveryInfo struct {
	PersistenceID string
	// Context is the context of the first command that waits for the recovery, used for its values.
	// Without such a command it is context.Background.
	Context context.Context //nolint:containedctx // see CommandInfo
	// SequenceNr is the sequence number of the last event, and SnapshotNr that of the snapshot, 0
	// for none. Events is the number of replayed events.
	SequenceNr, SnapshotNr, Events uint64
	// Prepared reports that the recovery began with the state that this node had kept as a standby, see
	// sharding.Options.Standbys.
	Prepared bool
	// Duration includes the wait for one of Config.MaxRecoveries.
	Duration time.Duration
	Err      error
}

// SnapshotInfo describes a save.
type SnapshotInfo struct {
	PersistenceID string
	SequenceNr    uint64
	Bytes         int
	Duration      time.Duration
	Err           error
}

// DroppedInfo describes a message that was not delivered.
type DroppedInfo struct {
	PersistenceID string
	Message       any
	Err           error
}

// UnreturnedInfo describes effects that were made and not returned.
type UnreturnedInfo struct {
	PersistenceID string
	// Message is the command or the signal that was handled.
	Message any
	// Effects is the number of effects. Empty effects and effects that consist of a reply only do
	// not count.
	Effects int
}

// observed collects the CommandInfo of one command.
type observed struct {
	by    *Runtime
	base  context.Context //nolint:containedctx // the context of the command before Begin
	info  CommandInfo
	ended atomic.Bool
}

// isHidden reports whether a message is internal: observers do not receive it.
func isHidden(message any) bool {
	switch message.(type) {
	case hosting.Start, interface{ hidden() }:
		return true
	}
	return false
}

// begin calls Observer.Begin for a command.
func (r *Runtime) begin(pid string, env *engine.Envelope) {
	if isHidden(env.Message) {
		return
	}
	if env.Caller == nil {
		env.Caller = &origin{ctx: context.Background()}
	}
	s, ok := env.Caller.(sender)
	if !ok || s.from().observed.Load() != nil {
		return
	}
	from := s.from()
	o := &observed{by: r, base: from.ctx, info: CommandInfo{
		PersistenceID: pid, Command: env.Message, Context: from.ctx, Attempt: from.attempt, Began: time.Now(),
	}}
	if r.obs.Begin != nil {
		r.observe(func() {
			if ctx := r.obs.Begin(o.info); ctx != nil {
				o.info.Context = ctx
			}
		})
	}
	from.ctx = o.info.Context
	from.observed.Store(o)
	// A region may hold a command until the sender has given up. Then the sender found no observation.
	if c, ok := env.Caller.(*call); ok && c.state.Load() == callGone {
		o.end(notHandled(o.base))
	}
}

// observing returns the observation of a message, nil for none.
func observing(env *engine.Envelope) *observed {
	s, ok := env.Caller.(sender)
	if !ok {
		return nil
	}
	return s.from().observed.Load()
}

// decide resets the number of events before a handler runs, because a command may be handled more
// than once.
func (o *observed) decide() {
	if o != nil {
		o.info.Events, o.info.SequenceNr = 0, 0
	}
}

// persist adds n events, the last one with this sequence number.
func (o *observed) persist(n int, last uint64) {
	if o != nil {
		o.info.Events += n
		o.info.SequenceNr = last
	}
}

// end calls Observer.Command, once. The entity and a sender that gives up may call end concurrently.
func (o *observed) end(err error) {
	if o == nil || o.by.obs.Command == nil || !o.ended.CompareAndSwap(false, true) {
		return
	}
	o.info.Duration, o.info.Err = time.Since(o.info.Began), err
	o.by.observe(func() { o.by.obs.Command(o.info) })
}

// observe calls a function of the Observer. A panic is logged and has no further effect.
func (r *Runtime) observe(f func()) {
	if p := panics.Call(f); p != nil {
		r.log.Error("observer panicked", slog.Any("error", p), slog.String("stack", string(p.Stack)))
	}
}

// observeEach returns a function that calls f with observe, nil for nil.
func observeEach[T any](r *Runtime, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(v T) { r.observe(func() { f(v) }) }
}

// inject is Observer.Inject. After a panic, it returns nil.
func (r *Runtime) inject(ctx context.Context) (metadata []byte) {
	if f := r.obs.Inject; f != nil {
		r.observe(func() { metadata = f(ctx) })
	}
	return metadata
}

// extract is Observer.Extract. Without metadata, and after a panic, it returns ctx.
func (r *Runtime) extract(ctx context.Context, metadata []byte) context.Context {
	derived := ctx
	if f := r.obs.Extract; f != nil && len(metadata) > 0 {
		r.observe(func() { derived = f(ctx, metadata) })
	}
	if derived == nil {
		return ctx
	}
	return derived
}

// Tee returns an observer that calls several observers in order. Each Begin receives the context that
// the previous one returned. Inject and Extract are those of the first observer that has either.
func Tee(observers ...Observer) Observer {
	var all Observer
	for _, o := range observers {
		all = all.and(o)
	}
	return all
}

func (o Observer) and(p Observer) Observer {
	inject, extract := o.Inject, o.Extract
	if inject == nil && extract == nil {
		inject, extract = p.Inject, p.Extract
	}
	return Observer{
		Begin:           bothBegin(o.Begin, p.Begin),
		Command:         both(o.Command, p.Command),
		Stashed:         both(o.Stashed, p.Stashed),
		Commit:          both(o.Commit, p.Commit),
		RecoveryStarted: both(o.RecoveryStarted, p.RecoveryStarted),
		Recovery:        both(o.Recovery, p.Recovery),
		Snapshot:        both(o.Snapshot, p.Snapshot),
		Failure:         bothOf(o.Failure, p.Failure),
		Fence:           bothOf(o.Fence, p.Fence),
		Dropped:         both(o.Dropped, p.Dropped),
		Unreturned:      both(o.Unreturned, p.Unreturned),
		Stopped:         both(o.Stopped, p.Stopped),
		Durable:         bothOf(o.Durable, p.Durable),
		Inject:          inject,
		Extract:         extract,
	}
}

func bothBegin(f, g func(CommandInfo) context.Context) func(CommandInfo) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(i CommandInfo) context.Context {
		i.Context = f(i)
		return g(i)
	}
}

func both[T any](f, g func(T)) func(T) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T) {
		f(v)
		g(v)
	}
}

func bothOf[T, U any](f, g func(T, U)) func(T, U) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T, w U) {
		f(v, w)
		g(v, w)
	}
}
