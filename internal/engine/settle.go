// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
)

func (m *Machine) stored(n int, out *Effects) {
	for ; n > 0; n-- {
		s := m.acknowledge()
		if s == nil {
			return
		}
		if m.rare.failed != nil {
			continue // after a failure, only the journal shows whether it is stored
		}
		s.stored, s.op.stored = true, true
		if !s.async {
			m.holding--
			s.op.holding--
		}
		m.durable = s.lastNr()
		if m.rare.failures > 0 {
			m.rare.failures = 0
		}
		out.Durable = m.durable
	}
	if m.rare.failed != nil && m.outstanding == 0 {
		m.settle(out)
	}
}

// notStored records that the oldest unit was not stored, or that its outcome is unknown.
func (m *Machine) notStored(err error, out *Effects) {
	s := m.acknowledge()
	if s == nil {
		return
	}
	s.err = err
	if m.rare.failed == nil {
		m.needRare().failed = s
		m.phase = settling
	}
	if m.outstanding == 0 {
		m.settle(out)
	}
}

// acknowledge removes the oldest unit from the list of appended units.
func (m *Machine) acknowledge() *Step {
	if m.lastUnit == nil {
		return nil
	}
	s := m.lastUnit.nextUnit
	if s == m.lastUnit {
		m.lastUnit = nil
	} else {
		m.lastUnit.nextUnit = s.nextUnit
	}
	s.nextUnit = nil
	m.outstanding--
	return s
}

// settle determines the outcome of the units from the failed one on, once no unit is in flight.
func (m *Machine) settle(out *Effects) {
	if errors.Is(m.rare.failed.err, journal.ErrSkipped) {
		// A write of an earlier instance failed, and the journal skipped those that followed it.
		// None of these messages had an effect, so they are decided again.
		m.rare.failed = nil
		m.conclude(nil, out)
		return
	}
	if journal.NotStored(m.rare.failed.err) {
		m.conclude(m.rare.failed.err, out)
		return
	}
	m.fence(out)
}

// fence requests an empty record at the number of the first unit with an unknown outcome. If the
// fence is stored, the unit can never be stored. If the fence conflicts, the journal already holds
// a record with this number.
func (m *Machine) fence(out *Effects) {
	m.lastTime = max(m.lastTime, m.now)
	expect := m.rare.failed.Request.Write.Expect
	m.phase = fencing
	out.Fence = &journal.Write{
		ID: m.id, Writer: m.writer, Expect: expect,
		Events: []journal.Event{{SequenceNr: expect + 1, Time: m.lastTime.time()}},
	}
}

func (m *Machine) fenced(err error, out *Effects) {
	if m.phase != fencing {
		return
	}
	switch {
	case err == nil:
		m.conclude(m.rare.failed.err, out)
	case errors.Is(err, journal.ErrConflict):
		m.phase = probing
		out.Probe = m.rare.failed.Request.Write.Expect + 1
	default:
		// The fence itself may be stored late. A late fence is harmless, because the machine
		// requests the same record at the same number again.
		m.retry(err, out)
	}
}

// retry repeats the fence or the probe: at once for the first retry after a lost connection,
// otherwise after a back-off.
func (m *Machine) retry(err error, out *Effects) {
	again := m.rare.failures == 0 && errors.Is(err, journal.ErrUnavailable)
	out.Wake = m.backoff()
	if again {
		out.Wake = 0
		m.woken(out)
	}
}

func (m *Machine) woken(out *Effects) {
	switch m.phase {
	case backingOff:
		if m.writer == "" && m.stash.n == 0 {
			m.stopped(out) // the instance never started, and no message waits
			return
		}
		m.recover(out)
	case fencing, probing:
		m.fence(out) // a stored fence is reported as a conflict
	case absent, recovering, ready, refreshing, settling:
	}
}

// probed handles the records that a probe found from the failed unit on.
func (m *Machine) probed(in Input, out *Effects) {
	if m.phase != probing {
		return
	}
	if in.Err != nil {
		m.retry(in.Err, out)
		return
	}
	s := m.rare.failed
	if in.LastNr > s.Request.Write.Expect {
		s = m.markStored(in.LastNr, out)
	}
	if in.DeletedTo > in.LastNr {
		s = markUnknown(s, in.DeletedTo)
	}
	switch cause := m.rare.failed.err; {
	case s == nil || journal.NotStored(s.err):
		// No unit from s on is stored, or will be. Skipped units are decided again.
		m.rare.failed = nil
		m.conclude(nil, out)
	case in.Next == OwnFence: // from an earlier attempt that seemed to fail
		m.rare.failed = s
		m.conclude(cause, out)
	case in.Next == ForeignRecord, in.DeletedTo > s.Request.Write.Expect:
		// The journal has, or had, another record at the first number of s, and does not have the records of
		// s from DeletedTo+1 on. A unit is stored as a whole, so s is not stored, and its append conflicts.
		m.rare.failed = s
		m.conclude(&journal.ConflictError{ID: m.id, Expected: s.Request.Write.Expect}, out)
	case s == m.rare.failed:
		// The journal contradicts itself: it reported a conflict but holds no record with this
		// number.
		m.retry(cause, out)
	default:
		m.rare.failed = s
		m.fence(out)
	}
}

// markStored marks the units with events up to lastNr as stored, and returns the first unit after them,
// nil if there is none. A unit is stored as a whole, and only after all earlier ones. So this includes
// units whose records are partly deleted, and units that an earlier probe has marked as unknown.
func (m *Machine) markStored(lastNr uint64, out *Effects) *Step {
	s := m.head
	for ; s != nil && (s.kind != unitStep || s.Request.Write.Expect < lastNr); s = s.next {
		if s.kind == unitStep && !s.stored {
			s.stored, s.op.stored, s.op.unknown = true, true, false
			m.durable = s.lastNr()
			out.Durable = m.durable
		}
	}
	return s
}

// markUnknown marks the units from s on whose records are all deleted, and returns the first unit after
// them, nil if there is none. Such a unit may be stored, unless the journal has reported that it is not:
// the deleted records are its own or those of another incarnation.
func markUnknown(s *Step, deletedTo uint64) *Step {
	for ; s != nil && (s.kind != unitStep || s.lastNr() <= deletedTo && !journal.NotStored(s.err)); s = s.next {
		if s.kind == unitStep {
			s.op.unknown = true
		}
	}
	return s
}

// conclude ends a settlement. Stored messages are answered, the message whose unit is not stored
// receives the cause, and later messages return to the front of the stash. Messages whose units may be
// stored are answered ErrOutcomeUnknown, and all messages after them return to the stash. Then the
// instance is dropped.
func (m *Machine) conclude(cause error, out *Effects) {
	m.dropCalls = true // callbacks run at most once, and not after a failure
	m.advance(out)
	m.dropCalls = false

	var again Queue
	for s := m.head; s != nil; s = s.next {
		if s.op.unknown {
			m.rare.failed, cause = nil, errRecordsDeleted
			break
		}
	}
	lost := m.rare.failed
	switch {
	case m.rare.failed == nil:
	case m.mayRetry(m.rare.failed.op, cause):
		m.rare.failed.op.Env.conflicts++
		cause = nil
	default:
		m.giveUp(m.rare.failed.op, cause, out)
	}
	for s := m.head; s != nil; s = s.next {
		if s.state != nil {
			m.saving = false
		}
		op := s.op
		switch {
		case op.open == 0: // already handled
			continue
		case op.unknown:
			m.giveUp(op, cause, out)
		case op.touched, op.stored:
			m.giveUp(op, journal.ErrSkipped, out)
		default:
			op.open = 0
			if op.Env.Caller != nil {
				op.Env.Caller.Untake()
			}
			again.Push(op.Env)
		}
	}
	m.stash.Prepend(&again)
	m.dropPending()
	m.restart(cause, lost, out)
}

// maxConflicts limits how often a message is decided again because its write conflicts.
const maxConflicts = 100

// mayRetry reports whether the message of a failed op is decided again. Each recovery sends
// RecoveryCompleted itself.
func (m *Machine) mayRetry(op *Op, cause error) bool {
	_, recovery := op.Env.Message.(RecoveryCompleted)
	return m.cfg.Shared && errors.Is(cause, journal.ErrConflict) && op.open > 0 && !op.touched && !op.stored && !recovery &&
		op.Env.conflicts < maxConflicts
}

// giveUp answers an op with a unit that is not stored or may not be stored, and the messages that the op
// resolves.
func (m *Machine) giveUp(op *Op, cause error, out *Effects) {
	op.open, op.failed, op.err = 0, true, cause
	if !op.stored && !op.unknown && !errors.Is(cause, journal.ErrConflict) && !errors.Is(cause, journal.ErrRejected) {
		op.err = fmt.Errorf("%w: %w", ErrNotStored, cause)
	}
	for _, r := range op.Requests {
		if r, ok := r.(resolve); ok {
			m.resolve(r, op, out)
		}
	}
	switch {
	case op.ended:
		op.err = ErrNoReply
	case op.stored:
		op.err = fmt.Errorf("%w: %w", ErrPartlyStored, cause)
	}
	out.Answers = append(out.Answers, Answer{Env: op.Env, Err: op.err})
}

func (m *Machine) dropPending() {
	m.head, m.tail, m.lastUnit = nil, nil, nil
	if m.rare != &m.cfg.none {
		m.rare.failed, m.rare.broken = nil, nil
	}
	m.ops, m.finishes, m.calls, m.barriers, m.holding = 0, 0, 0, 0, 0
	m.blocked = false
}
