// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
)

// perform performs effects in the order of the fields of engine.Effects. It does not block.
func (e *entity) perform(out *engine.Effects) {
	for _, s := range out.Append {
		e.submit(s)
	}
	if out.Fence != nil {
		e.fence(*out.Fence)
	}
	if out.Probe != 0 {
		from, writer := out.Probe, e.machine.Writer()
		e.host.rt.probes.do(func() { e.probe(from, writer) })
	}
	if out.Durable != 0 {
		e.durable(out.Durable)
	}
	for i := range out.Answers {
		e.answer(&out.Answers[i])
	}
	for _, r := range out.Requests {
		e.request(r)
	}
	for _, s := range out.Save {
		e.host.rt.stores.do(func() { e.save(s) })
	}
	if out.Cause != nil {
		e.failed(out.Cause, out.Resumed)
	}
	if out.Stopped || out.Recover || out.Cause != nil && !out.Resumed {
		e.running.Store(false)
	}
	if out.Stopped {
		if e.host.indexes && !e.absent {
			e.leaveIndex(out)
		}
		e.stopTimers()
		if e.abandon != nil {
			e.abandon(ErrStopped)
		}
	}
	if out.Verdict != engine.Restart {
		e.passivates = true
		if out.Verdict == engine.Escalate {
			e.host.escalate(out.Cause)
		}
	}
	if out.Recover {
		if out.Stopped && e.passivates {
			e.busy() // a message arrived while the entity handled its Stopping signal
		}
		e.absent, e.passivates = false, false
		e.recover()
	}
	if out.Refresh {
		e.refresh()
	}
	if out.Wake > 0 {
		e.needExtra().backoff = time.AfterFunc(out.Wake, func() { e.post(engine.Input{Kind: engine.Woken}) })
	}
	if out.Stopped && !out.Recover && !e.absent {
		e.absent, e.commanded = true, false
		e.instance = instance{}
		if e.host.rt.obs.Stopped != nil {
			e.host.rt.observe(func() { e.host.rt.obs.Stopped(e.pid()) })
		}
	}
}

// submit passes a unit to the writer. If the writer is full, the machine decides no command until
// the writer calls Room. If the entity waits for its entry in the index, the machine decides no command
// until indexGranted.
func (e *entity) submit(s *engine.Step) {
	s.Request.Stream, s.Request.Owner = &e.stream, e
	if e.extra == nil || len(e.extra.unsent) == 0 {
		if e.mayAppend() && e.pass(&s.Request) {
			return
		}
		e.machine.Block(true)
	}
	x := e.needExtra()
	x.unsent = append(x.unsent, s)
}

// pass passes a request to the writer. A caller commits after its turn, see takeCallersTurn.
func (e *entity) pass(r *groupcommit.Request) bool {
	if e.onCaller {
		return e.host.writer.Leave(r)
	}
	return e.host.writer.Submit(r)
}

// submitUnsent passes the remaining units to the writer, which has room again.
func (e *entity) submitUnsent(out *engine.Effects) {
	x := e.needExtra()
	for len(x.unsent) > 0 {
		if !e.mayAppend() || !e.host.writer.Submit(&x.unsent[0].Request) {
			return
		}
		x.unsent = x.unsent[1:]
	}
	x.unsent = nil
	e.machine.Block(false)
	e.step(engine.Input{Kind: engine.Continue}, out)
}

func (e *entity) answer(a *engine.Answer) {
	rt := e.host.rt
	r, waits := a.Env.Caller.(replier)
	if rt.watched {
		err := a.Err
		if !waits && err == engine.ErrNoReply { //nolint:errorlint // the machine's own value, unwrapped
			err = nil
		}
		observing(a.Env).end(err)
	}
	if waits {
		r.Reply(a.Value, e.described(a))
		return
	}
	switch {
	case a.Err == nil, a.Err == engine.ErrNoReply: //nolint:errorlint // the machine's own value, unwrapped
	case a.Env.Signal && a.Err == engine.ErrUnhandled: //nolint:errorlint // see above
		e.unhandledSignal(a.Env.Message)
	default:
		rt.dropped(e.pid(), a.Env.Message, e.described(a))
	}
}

// described returns the error of an answer. It names the entity, the message and a remedy in an error
// that the machine has made.
func (e *entity) described(a *engine.Answer) error {
	if a.Err == engine.ErrUnhandled || a.Err == engine.ErrNoReply { //nolint:errorlint // the machine's own values, unwrapped
		return fmt.Errorf("%w: %s, %T%s", a.Err, e.pid(), a.Env.Message, e.host.model.remedy(a.Env.Message))
	}
	return a.Err
}

func (e *entity) unhandledSignal(s any) {
	log := e.host.rt.log.With(slog.String("persistence_id", e.pid()))
	switch s := s.(type) {
	case SnapshotFailed:
		log.Error("snapshot failed", slog.Any("error", s.Err))
	case SnapshotsNotDeleted:
		log.Warn("snapshots not deleted", slog.Any("error", s.Err))
	case EventsNotDeleted:
		log.Warn("events not deleted", slog.Any("error", s.Err))
	default:
		log.Debug("signal not handled", slog.String("signal", fmt.Sprintf("%T", s)))
	}
}

// durable is called when all events up to a sequence number are stored.
func (e *entity) durable(seqNr uint64) {
	if f := e.host.rt.obs.Durable; f != nil {
		e.host.rt.observe(func() { f(e.pid(), seqNr) })
	}
	for _, p := range e.instance.parts() {
		e.callPart(func() hosting.Outgoing { return p.Durable(seqNr, e.host.rt.steady()) })
	}
	e.tickParts()
	e.updateDeadline()
	if e.index == indexed {
		e.watchWork()
	}
}

func (e *entity) failed(cause error, resumed bool) {
	rt := e.host.rt
	attrs := []any{slog.String("persistence_id", e.pid()), slog.Any("error", cause)}
	other := errors.Is(cause, ErrConflict) || errors.Is(cause, ErrOutcomeUnknown)
	if other && e.host.hooks.Route == nil && !e.host.opts.SharedJournal {
		attrs = append(attrs, slog.String("hint", "another runtime writes to this entity: use package sharding or HostOptions.SharedJournal"))
	}
	if p, ok := errors.AsType[*PanicError](cause); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	if resumed {
		rt.log.Error("entity resumed after a failure", attrs...)
	} else {
		rt.log.Error("entity dropped its instance", attrs...)
	}
	if rt.obs.Failure != nil {
		rt.observe(func() { rt.obs.Failure(e.pid(), cause) })
	}
}

// fenceWrite is the groupcommit.Owner of the write of a fence.
type fenceWrite struct {
	entity  *entity
	request groupcommit.Request
}

func (e *entity) fence(w journal.Write) {
	rt := e.host.rt
	if rt.obs.Fence != nil {
		rt.observe(func() { rt.obs.Fence(e.pid(), w.Expect+1) })
	}
	rt.log.Warn("outcome of a write unknown, appending a fence", slog.String("persistence_id", e.pid()), slog.Uint64("sequence_nr", w.Expect+1))
	e.host.writer.Reset(&e.stream)
	f := &fenceWrite{entity: e}
	f.request = groupcommit.Request{Write: w, Stream: &e.stream, Owner: f}
	e.host.writer.Submit(&f.request) // a full writer calls Room later
}

// Written implements groupcommit.Owner.
func (f *fenceWrite) Written(_ *groupcommit.Request, err error) {
	f.entity.post(engine.Input{Kind: engine.Fenced, Err: err})
}

// Room implements groupcommit.Owner.
func (f *fenceWrite) Room() { f.entity.host.writer.Submit(&f.request) }

// probe determines the writer of the records from a sequence number on.
func (e *entity) probe(from uint64, writer string) {
	rt := e.host.rt
	var progress atomic.Uint64
	ctx, cancel := context.WithCancelCause(rt.ctx)
	defer cancel(nil)
	defer watchProgress(&progress, rt.cfg.RecoveryTimeout, cancel)()
	in := engine.Input{Kind: engine.Probed, LastNr: from - 1}
	in.Err = catchPanic(e.pid(), func() error {
		if err := e.findOwn(ctx, writer, &in, &progress); err != nil || in.LastNr >= from || in.Next != engine.NoRecord {
			return err
		}
		highest, err := e.host.journal.HighestSequenceNr(ctx, e.pid())
		if err != nil || highest < from {
			return err // without an error, the journal contradicts the conflict of the fence
		}
		progress.Add(1)
		// The record from the start of the probe on is deleted, or it was stored after the first replay. Only a
		// replay that begins now shows which.
		if err = e.findOwn(ctx, writer, &in, &progress); err == nil && in.LastNr < from && in.Next == engine.NoRecord {
			in.DeletedTo = highest
		}
		return err
	})
	e.post(in)
}

// findOwn continues a probe after in.LastNr, up to the first record that is not an event of the writer. The
// journal has stored the records in order, so a record that is missing before another one is deleted.
func (e *entity) findOwn(ctx context.Context, writer string, in *engine.Input, progress *atomic.Uint64) error {
	for ev, err := range e.host.journal.Replay(ctx, e.pid(), in.LastNr+1, journal.MaxSequenceNr) {
		switch {
		case err != nil:
			return err
		case ev.Writer != writer:
			in.Next = engine.ForeignRecord
		case ev.IsFence():
			in.Next = engine.OwnFence
		default:
			in.LastNr = ev.SequenceNr
			progress.Add(1)
			continue
		}
		if ev.SequenceNr > in.LastNr+1 {
			in.DeletedTo = ev.SequenceNr - 1
		}
		return nil
	}
	return nil
}
