// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/journal"
)

func (m *Machine) recover(out *Effects) {
	m.phase = recovering
	m.fresh = 0
	out.Recover = true
}

// refresh requests a Refresh, unless the machine decides no message for another reason. A recovery is
// also followed by a refresh: a long replay would otherwise lose each race against the writes of other
// machines. The refresh covers the messages that wait now. Older messages may return to the front of the stash later. The count then
// covers fewer of the others, which are decided after the next refresh.
func (m *Machine) refresh(out *Effects) {
	if !m.cfg.Shared || m.fresh > 0 || m.phase != ready || m.head != nil || m.outstanding > 0 || m.rare.broken != nil {
		return
	}
	m.phase = refreshing
	m.fresh = int32(m.stash.n) //nolint:gosec // a count of envelopes in memory
	out.Refresh = true
}

// refreshed continues on the refreshed instance. If other machines have written, this one takes a
// new writer ID: a writer never appends after a later writer.
func (m *Machine) refreshed(in Input, out *Effects) {
	switch {
	case m.phase != refreshing:
	case in.Err != nil:
		m.recover(out)
	default:
		m.phase = ready
		if in.Recovery.SequenceNr > m.applied {
			m.applied, m.durable = in.Recovery.SequenceNr, in.Recovery.SequenceNr
			m.lastTime, m.writer = instantOf(in.Recovery.Time), in.Recovery.Writer
		}
	}
}

func (m *Machine) recovered(in Input, out *Effects) {
	if m.phase != recovering {
		return
	}
	if in.Err != nil {
		verdict := Restart
		if !errors.Is(in.Err, ErrStopped) {
			verdict = m.supervise(&RecoveryFailed{Err: in.Err})
		}
		if m.handleFailure(in.Env, out) {
			verdict = max(verdict, Stop)
		}
		m.recoveryFailed(in.Err, verdict, out)
		return
	}
	m.phase = ready
	m.applied, m.durable = in.Recovery.SequenceNr, in.Recovery.SequenceNr
	m.lastTime, m.writer = instantOf(in.Recovery.Time), in.Recovery.Writer
	if m.cfg.SnapshotEvery > 0 && in.Recovery.Replayed >= m.cfg.SnapshotEvery && !m.saving {
		if s := m.b.State(); s != nil {
			s.SequenceNr, s.Time = m.applied, m.lastTime.time()
			m.saving, s.Awaited = true, true
			out.Save = append(out.Save, s)
		}
	}
	if !m.cfg.Signals {
		m.dropFirst()
		return
	}
	m.stash.Prepend(&m.rare.first)
	m.decide(&Envelope{Message: RecoveryCompleted{in.Recovery}, Signal: true}, out)
}

// recoveryFailed answers all waiting messages and backs off, unless the supervisor decides otherwise. A
// recovery that the end of the runtime
// has stopped is answered with that reason.
func (m *Machine) recoveryFailed(reason error, verdict Directive, out *Effects) {
	failed := &RecoveryFailed{Err: reason}
	err := error(failed)
	if errors.Is(reason, ErrStopped) {
		err = reason
	}
	var signals Queue
	for e := m.stash.Pop(); e != nil; e = m.stash.Pop() {
		if e.Signal {
			signals.Push(e)
			continue
		}
		m.answer(out, e, err)
	}
	m.stash = signals
	out.Cause, out.Resumed = failed, false
	if !m.ended(verdict, out) {
		m.backOff(failed, out)
	}
}

// restart drops the instance after its writes were settled. lost is the unit that was not stored, nil for
// none.
func (m *Machine) restart(cause error, lost *Step, out *Effects) {
	out.Cause, out.Resumed = cause, false
	switch {
	case m.ends() && m.stash.n == 0:
		m.stopped(out)
	case cause != nil && m.ended(m.supervise(cause), out):
	case cause == nil:
		m.recover(out)
	case errors.Is(cause, journal.ErrConflict), errors.Is(cause, ErrOutcomeUnknown):
		// Another incarnation is active: it has appended or deleted records. Recover only if messages wait.
		if m.stash.n == 0 && m.rare.user.n == 0 && len(m.rare.later) == 0 {
			m.stopped(out)
			return
		}
		m.recover(out)
	case errors.Is(cause, journal.ErrRejected):
		m.signal(PersistRejected{Err: cause, Event: lost.event(cause)})
		if lost != nil && lost.op.Env.Signal && m.tooMany() {
			m.backOff(cause, out) // the next instance would receive the same signal
			return
		}
		m.recover(out)
	default:
		m.signal(PersistFailed{Err: cause, Event: lost.event(cause)})
		m.backOff(cause, out)
	}
}

// signal queues a signal for the next incarnation.
func (m *Machine) signal(s any) {
	if m.cfg.Signals {
		m.needRare().first.Push(&Envelope{Message: s, Signal: true})
	}
}

// refoldBroken drops an instance whose code panicked, whose stash overflowed, or whose state includes
// the events of a refused command. It is called when
// all events that the instance has persisted are durable.
func (m *Machine) refoldBroken(out *Effects) {
	broken := m.rare.broken
	m.dropPending()
	if broken.cause == nil {
		m.restart(nil, nil, out)
		return
	}
	cause, verdict := broken.cause, broken.verdict
	again := m.tooMany()
	out.Cause, out.Resumed = cause, false
	var recovery *RecoveryFailed
	switch {
	case errors.As(cause, &recovery):
		m.recoveryFailed(recovery.Err, verdict, out)
	case m.ended(verdict, out):
	case m.ends() && m.stash.n == 0:
		m.stopped(out)
	case again:
		m.backOff(cause, out)
	default:
		m.recover(out)
	}
}

// tooMany counts panics. It reports whether the limit within PanicWindow is reached.
func (m *Machine) tooMany() bool {
	x := m.needRare()
	if m.now-x.panicsSince > instant(m.cfg.PanicWindow.Microseconds()) {
		x.panicsSince, x.panics = m.now, 0
	}
	x.panics++
	if int(x.panics) < m.cfg.PanicLimit {
		return false
	}
	x.panics = 0
	return true
}

// backOff delays the next recovery. The first recovery after a lost connection is immediate,
// because the connection may already be restored.
func (m *Machine) backOff(cause error, out *Effects) {
	out.Cause = cause
	if m.draining {
		m.stopped(out)
		return
	}
	first := m.rare.failures == 0
	m.phase = backingOff
	m.needRare().limit = int32(m.stash.n + m.cfg.BackoffStash) //nolint:gosec // a count of envelopes in memory
	d := m.backoff()
	var failed *RecoveryFailed
	if first && errors.Is(cause, journal.ErrUnavailable) && !errors.As(cause, &failed) {
		m.recover(out)
		return
	}
	out.Wake = d
}

// maxFailures limits the count of consecutive failures.
const maxFailures = 1<<16 - 1

// backoff returns the wait after the next consecutive failure: an exponential back-off with jitter,
// derived from the seed and the ID.
func (m *Machine) backoff() time.Duration {
	d, x := m.cfg.MinBackoff, m.needRare()
	for range min(x.failures, 32) {
		if d >= m.cfg.MaxBackoff/2 {
			d = m.cfg.MaxBackoff
			break
		}
		d *= 2
	}
	if x.failures < maxFailures {
		x.failures++
	}
	h := m.cfg.Seed ^ uint64(x.failures)
	for i := range len(m.id) {
		h = (h ^ uint64(m.id[i])) * 1099511628211 // FNV-1a
	}
	h ^= h >> 29
	return d + time.Duration(float64(d)*m.cfg.Jitter*float64(h%1024)/1024)
}

func (m *Machine) drain(farewell *Envelope, out *Effects) {
	m.draining, m.stopping = true, true
	m.part(farewell)
	if m.phase == absent || m.phase == backingOff {
		m.stopped(out)
	}
}

// stopped ends the instance and answers the messages that wait in it. If messages wait for the next
// instance, stopped requests the recovery of that instance at once.
func (m *Machine) stopped(out *Effects) {
	why := cmp.Or(m.rare.killed, ErrStopped)
	m.stopping = m.draining
	if m.rare.parting != nil {
		m.rare.parting = nil
	}
	m.phase = absent
	m.writer = ""
	out.Stopped = true
	for _, q := range []*Queue{&m.rare.user, &m.stash} {
		for e := q.Pop(); e != nil; e = q.Pop() {
			m.answer(out, e, why)
		}
	}
	m.dropLater(out)
	m.dropFirst()
	for e := m.rare.after.Pop(); e != nil; e = m.rare.after.Pop() {
		switch {
		case e.Signal: // the signal was meant for this instance
		case m.rare.killed != nil:
			m.answer(out, e, why)
		default:
			m.stash.Push(e)
		}
	}
	if m.stash.n > 0 {
		m.recover(out)
	}
}

func (m *Machine) kill(why error, out *Effects) {
	m.draining, m.needRare().killed = true, cmp.Or(why, ErrStopped)
	for s := m.head; s != nil; s = s.next {
		if s.op.open > 0 {
			s.op.open = 0
			out.Answers = append(out.Answers, Answer{Env: s.op.Env, Err: ErrOutcomeUnknown})
		}
	}
	m.dropPending()
	m.outstanding = 0
	m.stopped(out)
}

// dropLater answers messages that wait for a later reply, in the order of their arrival.
func (m *Machine) dropLater(out *Effects) {
	waiting := slices.SortedFunc(maps.Keys(m.rare.later), func(a, b *Envelope) int {
		return cmp.Compare(m.rare.later[a], m.rare.later[b])
	})
	for _, e := range waiting {
		out.Answers = append(out.Answers, Answer{Env: e, Err: errAnswerLost})
	}
	if m.rare.later != nil {
		m.rare.later = nil
	}
}

// dropFirst drops the signals for the first turn after a recovery.
func (m *Machine) dropFirst() {
	if m.rare.first.n > 0 {
		m.rare.first = Queue{}
	}
}

// parting is the end of an instance that handles a farewell before it stops.
type parting struct {
	farewell *Envelope // nil after it was decided
	saves    []*State  // snapshots that the end of the instance waits for
}

// idle stops the entity if it has no work. An instance with a farewell stops after it has handled the
// farewell; messages that arrive in the meantime go to the next instance.
func (m *Machine) idle(farewell *Envelope, out *Effects) {
	switch {
	case m.rare.parting != nil || !m.Resting():
	case farewell == nil:
		m.stopped(out)
	default:
		m.stopping = true
		m.part(farewell)
	}
}

// part records the farewell of the instance, unless the instance has one already.
func (m *Machine) part(farewell *Envelope) {
	if farewell != nil && m.rare.parting == nil {
		m.needRare().parting = &parting{farewell: farewell}
	}
}

// sayFarewell decides the farewell when nothing else is left to do.
func (m *Machine) sayFarewell(out *Effects) bool {
	p := m.rare.parting
	if p == nil || p.farewell == nil || m.phase != ready || m.head != nil || m.outstanding > 0 || m.stash.n > 0 || m.rare.broken != nil {
		return false
	}
	farewell := p.farewell
	p.farewell = nil
	m.decide(farewell, out)
	return true
}

// parted reports whether the instance may stop: it has handled its farewell, and the snapshots that
// were requested since then are saved.
func (m *Machine) parted() bool {
	return m.rare.parting == nil || m.rare.parting.farewell == nil && len(m.rare.parting.saves) == 0 && !m.saving
}

// ends reports whether an instance that was lost stays away, unless messages wait.
func (m *Machine) ends() bool {
	return m.draining || m.rare.parting != nil && m.rare.parting.farewell == nil
}

// awaitSave lets the end of a parting instance wait for a snapshot.
func (m *Machine) awaitSave(s *State) {
	if p := m.rare.parting; p != nil && p.farewell == nil {
		s.Awaited = true
		p.saves = append(p.saves, s)
	}
}

// saved ends the wait for a snapshot.
func (m *Machine) saved(s *State) {
	if s.Request == nil {
		m.saving = false
	}
	if p := m.rare.parting; p != nil {
		p.saves = slices.DeleteFunc(p.saves, func(o *State) bool { return o == s })
	}
}

// Parting reports whether the instance stops after its farewell.
func (m *Machine) Parting() bool { return m.rare.parting != nil }

func (m *Machine) supervise(cause error) Directive {
	if m.cfg.Supervise == nil {
		return Restart
	}
	return m.cfg.Supervise(cause)
}

// fail ends the instance when its events are durable, unless the supervisor resumes it. intact reports
// whether the state is that of the events.
func (m *Machine) fail(cause error, intact bool, out *Effects) {
	if m.failing {
		return // there is no instance
	}
	verdict := m.supervise(cause)
	if verdict == Resume && intact {
		out.Cause, out.Resumed = cause, true
		return
	}
	m.needRare().broken = &failure{cause, verdict}
}

// ended stops an instance if its supervisor has decided so. Messages that wait fail.
func (m *Machine) ended(verdict Directive, out *Effects) bool {
	if verdict < Stop {
		return false
	}
	out.Verdict = verdict
	m.stopped(out)
	return true
}

// handleFailure lets the Behavior handle the signal about a failed recovery on an empty state. It reports
// whether the Behavior stops the entity. The Behavior persists nothing.
func (m *Machine) handleFailure(signal *Envelope, out *Effects) (stops bool) {
	if signal == nil {
		return false
	}
	stopping := m.stopping
	m.failing, m.stopping = true, false
	defer func() { // also if user code calls runtime.Goexit
		stops, m.failing, m.stopping = m.stopping, false, stopping
		m.dropPending()
	}()
	m.decide(signal, out)
	m.advance(out)
	return stops
}
