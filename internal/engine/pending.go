// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "fmt"

// advance completes pending steps from the front, up to the first one that is not stored.
func (m *Machine) advance(out *Effects) {
	var kept *Step // the last step that stays; nil at the head
	s := m.head
	for s != nil {
		if !m.complete(s, kept, out) {
			if !m.seePast(s) {
				return
			}
			kept, s = s, s.next
			continue
		}
		if kept == nil {
			s = m.head
		} else {
			s = kept.next
		}
	}
}

// seePast reports whether steps after a waiting step may complete.
func (m *Machine) seePast(s *Step) bool {
	if m.dropCalls && s.kind == callStep {
		return true // the message of s is decided again; stored units after s are not
	}
	// An asynchronous unit and its callbacks hold back only their own op. Replies of later ops may
	// leave.
	return s.kind != finishStep && s.async && m.finishes > 0
}

// complete removes the step after kept from the list and carries it out, if all its conditions are
// met.
func (m *Machine) complete(s, kept *Step, out *Effects) bool {
	switch s.kind {
	case unitStep:
		if !s.stored {
			return false
		}
		m.unlink(s, kept)
		if s.state != nil {
			out.Save = append(out.Save, s.state)
		}
	case callStep:
		if !m.mayCall(s, kept == nil) {
			return false
		}
		m.unlink(s, kept)
		if !s.async {
			m.barriers--
		}
		if !m.dropCalls && !s.op.panicked {
			m.call(s.op, s.call, out)
			return true
		}
	case finishStep:
		if kept != nil && (s.op.barrier || s.op.pinned) {
			return false
		}
		m.unlink(s, kept)
	}
	m.completed(s.op, out)
	return true
}

func (m *Machine) completed(op *Op, out *Effects) {
	op.touched = true
	op.open--
	if op.open == 0 {
		m.finish(op, out)
		out.recycle(op)
	}
}

// mayCall reports whether a callback may run, or be dropped.
func (m *Machine) mayCall(s *Step, first bool) bool {
	if m.dropCalls {
		// A message without any effect is decided again instead.
		return s.op.touched || s.op.stored || s.async && first
	}
	// An earlier asynchronous callback may have persisted events whose unit is later in the list.
	// This callback must not see these events before they are durable.
	return first && (s.async || m.holding == s.op.holding)
}

func (m *Machine) call(op *Op, fn any, out *Effects) {
	op.nr, op.replied, op.Applied = m.applied, false, false
	defer func() { // also if user code calls runtime.Goexit
		if op.discarded {
			m.needRare().broken = &failure{}
		}
		if op.panicked {
			m.fail(op.err, !op.Applied, out)
		}
		if op.open == 1 && (op.replied && m.holding > 0 || op.pinned && m.applied != m.durable) {
			// Messages were decided before the callback ran, and the callback has seen their events.
			// The reply of its op therefore waits until these events are durable.
			op.ended = true
			op.add(op.step())
		}
		m.link(op, out)
		m.completed(op, out)
	}()
	m.b.Call(op, fn)
}

// unlink removes the step after prev from the pending list; prev is nil at the head.
func (m *Machine) unlink(s, prev *Step) {
	if prev == nil {
		m.head = s.next
	} else {
		prev.next = s.next
	}
	if m.tail == s {
		m.tail = prev
	}
	s.next = nil
	switch s.kind {
	case finishStep:
		m.finishes--
	case callStep:
		m.calls--
	case unitStep:
	}
}

// finish releases the results of an op whose steps are all complete.
func (m *Machine) finish(op *Op, out *Effects) {
	m.ops--
	if op.counted {
		m.barriers--
	}
	for _, r := range op.Requests {
		switch r := r.(type) {
		case *State:
			m.awaitSave(r)
			out.Save = append(out.Save, r)
		case resolve:
			m.resolve(r, op, out)
		default:
			out.Requests = append(out.Requests, r)
		}
	}
	m.reply(op, out)
	if op.control&UnstashAll != 0 {
		m.stash.Prepend(&m.rare.user)
	}
	if op.control&Stash != 0 {
		m.stashByUser(op.Env, out)
	}
	if op.control&End != 0 {
		m.stopping = true
	}
}

// resolve answers a message that waits for a later reply, with the error of the op if it has failed.
func (m *Machine) resolve(r resolve, op *Op, out *Effects) {
	if _, waits := m.rare.later[r.Env]; !waits {
		return
	}
	delete(m.rare.later, r.Env)
	if op.failed {
		r.Value, r.Err = nil, fmt.Errorf("%w: the command that resolves it failed: %w", ErrNoReply, op.err)
	}
	out.Answers = append(out.Answers, Answer(r))
}

func (m *Machine) reply(op *Op, out *Effects) {
	if op.control&Stash != 0 {
		return // the message is handled again
	}
	a := Answer{Env: op.Env, Value: op.value, Err: op.err}
	switch op.reply {
	case answered, refused:
		if op.failed && op.stored {
			a.Err = fmt.Errorf("%w: %w", ErrPartlyStored, op.err)
		}
	case undecided:
		a.Err = ErrNoReply
		if op.control&Unhandled != 0 && !op.stored {
			a.Err = ErrUnhandled
		}
	case none:
		return
	case later:
		if op.Env.Caller != nil {
			x := m.needRare()
			if x.later == nil {
				x.later = make(map[*Envelope]uint32)
			}
			x.laters++
			x.later[op.Env] = x.laters
		}
		return
	}
	out.Answers = append(out.Answers, a)
}

func (m *Machine) stashByUser(e *Envelope, out *Effects) {
	if e.Caller != nil {
		e.Caller.Untake()
	}
	if m.cfg.StashCapacity >= 0 && m.rare.user.n >= m.cfg.StashCapacity {
		m.overflow(e, out)
		return
	}
	m.needRare().user.Push(e)
}

// Caller waits for the reply to a message.
type Caller interface {
	// Take claims the caller before its command is decided. If the caller has stopped waiting, Take
	// returns false, and the command is not decided.
	Take() bool
	// Untake reverts Take: the command will be decided again.
	Untake()
}

// Envelope is a message to an entity.
type Envelope struct {
	// Message is the command or the signal.
	Message any
	// Signal reports whether the message is a signal of the runtime.
	Signal bool
	// Caller waits for the reply; nil if none is expected.
	Caller Caller

	conflicts uint8 // how often its write has conflicted, with Config.Shared
	next      *Envelope
}

// Queue is a first-in, first-out list of envelopes. An envelope is in at most one queue. The zero
// value is empty.
type Queue struct {
	last *Envelope // its next is the first envelope; nil if the queue is empty
	n    int
}

// Len returns the number of envelopes.
func (q *Queue) Len() int { return q.n }

// Push appends an envelope.
func (q *Queue) Push(e *Envelope) {
	e.next = e
	if q.last != nil {
		e.next, q.last.next = q.last.next, e
	}
	q.last = e
	q.n++
}

// Pop removes and returns the first envelope; nil if the queue is empty.
func (q *Queue) Pop() *Envelope {
	e := q.first()
	switch e {
	case nil:
		return nil
	case q.last:
		q.last = nil
	default:
		q.last.next = e.next
	}
	e.next = nil
	q.n--
	return e
}

func (q *Queue) first() *Envelope {
	if q.last == nil {
		return nil
	}
	return q.last.next
}

// Prepend moves all envelopes of front to the front of q, in order.
func (q *Queue) Prepend(front *Queue) {
	switch {
	case front.n == 0:
		return
	case q.n == 0:
		*q = *front
	default:
		q.last.next, front.last.next = front.last.next, q.last.next
		q.n += front.n
	}
	*front = Queue{}
}
