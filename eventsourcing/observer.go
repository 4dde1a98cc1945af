// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// Observer is told what happens in a runtime: a struct of functions, each of which may be nil and
// then costs nothing. They are called on the goroutine on which it happens, must not block, and may
// be called from several goroutines at once.
type Observer struct {
	// Begin: a command was handed over to its entity. It returns the context of the command: that
	// of the info or one derived from it, never nil. It is what Context.Context returns and what
	// Inject and Command get. One Command follows.
	Begin func(CommandInfo) context.Context
	// Command: a command was answered, or handled if there is no answer, or its asker left before
	// it was handled.
	Command func(CommandInfo)
	// Stashed: a command waits inside its entity, which could not handle it at once or put it
	// aside.
	Stashed func(StashInfo)
	// Commit: the writer sent a group of writes to the journal.
	Commit func(CommitInfo)
	// RecoveryStarted and Recovery: an entity begins and ends a recovery.
	RecoveryStarted func(persistenceID string)
	Recovery        func(RecoveryInfo)
	// Snapshot: a snapshot was saved, or could not be.
	Snapshot func(SnapshotInfo)
	// Failure: an entity dropped its instance because of an error: a write that failed or was
	// rejected, a conflict, a panic, a failed recovery.
	Failure func(persistenceID string, cause error)
	// Fence: a write had an unknown outcome and is being settled.
	Fence func(persistenceID string, seqNr uint64)
	// Dropped: a message reached nobody: the stash was full, the entity or the runtime had stopped.
	Dropped func(DroppedInfo)
	// Unreturned: a handler or callback made effects and did not return them, so that nothing came
	// of them. It may be told again when a command is handled again.
	Unreturned func(UnreturnedInfo)
	// Stopped: an entity left memory.
	Stopped func(persistenceID string)
	// Durable: the events of an entity are durable up to this number.
	Durable func(persistenceID string, seqNr uint64)

	// Inject returns what is stored as metadata with the events of a command that has this context,
	// nil for nothing. It must not change later.
	Inject func(ctx context.Context) []byte
	// Extract is the reverse: it returns a context derived from ctx. A part sends commands with the
	// context that it extracts from the metadata of the event that asked for them.
	Extract func(ctx context.Context, metadata []byte) context.Context
}

// CommandInfo describes a command.
type CommandInfo struct {
	PersistenceID string
	Command       any
	// Context is that of the asker, for its values, and that of Begin once it was called. It may
	// have ended. It is the background if nobody gave one: for the command of a timer for example.
	Context context.Context //nolint:containedctx // the info is about it
	// Attempt counts the transmissions of a command that a part sent, from 1 at each start of the
	// part's entity. It is 0 for other commands.
	Attempt int
	// Began is when the command was handed over, and Duration how long it took from there to its
	// answer, 0 in Begin.
	Began    time.Time
	Duration time.Duration
	// Events is how many events the command decided on, and SequenceNr the number of the last of
	// them, 0 if there are none. They are stored unless Err says otherwise.
	Events     int
	SequenceNr uint64
	// Err is what it was answered with.
	Err error
}

// StashInfo describes a command that waits inside its entity.
type StashInfo struct {
	PersistenceID string
	Command       any
	// Aside is true if the handler stashed it, with Context.Stash. Otherwise it waits for a
	// recovery, for the end of a back-off, or for something that no command may overtake.
	Aside bool
}

// CommitInfo describes a group of writes.
type CommitInfo = journal.CommitInfo

// RecoveryInfo describes a recovery that ended.
type RecoveryInfo struct {
	PersistenceID string
	// Context is that of the first command that waits for the recovery, for its values; the
	// background if there is none.
	Context context.Context //nolint:containedctx // see CommandInfo
	// SequenceNr is where the entity stands, SnapshotNr where its snapshot did, 0 for none, and
	// Events how many were replayed.
	SequenceNr, SnapshotNr, Events uint64
	// Duration includes the wait for a permit.
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

// DroppedInfo describes a message that reached nobody.
type DroppedInfo struct {
	PersistenceID string
	Message       any
	Err           error
}

// UnreturnedInfo describes effects that were made and not returned.
type UnreturnedInfo struct {
	PersistenceID string
	// Message is the command, or the signal, that was handled.
	Message any
	// Effects is how many were not returned. Those that only reply or refuse, Unhandled, and empty
	// ones do not count.
	Effects int
}

// observed is what the observer is told about a command.
type observed struct {
	by    *Observer
	base  context.Context //nolint:containedctx // that of the command before Begin
	info  CommandInfo
	ended bool
}

// hidden is implemented by messages that are no commands to the observer.
type hidden interface{ hidden() }

// begin tells the observer that a command is handed over to an entity.
func (r *Runtime) begin(pid string, env *engine.Envelope) {
	if _, ok := env.Message.(hidden); ok {
		return
	}
	if env.Caller == nil {
		env.Caller = &told{origin: origin{ctx: context.Background()}}
	}
	s, ok := env.Caller.(sender)
	if !ok || s.from().observed != nil {
		return
	}
	from := s.from()
	o := &observed{by: r.obs, base: from.ctx, info: CommandInfo{
		PersistenceID: pid, Command: env.Message, Context: from.ctx, Attempt: from.attempt, Began: time.Now(),
	}}
	if r.obs.Begin != nil {
		o.info.Context = r.obs.Begin(o.info)
	}
	from.ctx, from.observed = o.info.Context, o
}

// observing returns what is observed of a message, nil for nothing.
func observing(env *engine.Envelope) *observed {
	s, ok := env.Caller.(sender)
	if !ok {
		return nil
	}
	return s.from().observed
}

// decide notes that the command is decided, the first time or again.
func (o *observed) decide() {
	if o != nil {
		o.info.Events, o.info.SequenceNr = 0, 0
	}
}

// persist notes that n more events were decided on, the last with this number.
func (o *observed) persist(n int, last uint64) {
	if o != nil {
		o.info.Events += n
		o.info.SequenceNr = last
	}
}

// end tells the observer what the command was answered with.
func (o *observed) end(err error) {
	if o == nil || o.ended || o.by.Command == nil {
		return
	}
	o.ended = true
	o.info.Duration, o.info.Err = time.Since(o.info.Began), err
	o.by.Command(o.info)
}

// Tee returns an observer that tells several, in order. Each Begin gets the context that the one
// before it returned. There is one Inject and one Extract: those of the first observer that has
// either.
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
