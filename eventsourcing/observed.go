// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"time"

	"github.com/refold-io/refold/internal/engine"
)

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
