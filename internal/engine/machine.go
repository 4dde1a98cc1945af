// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "time"

// Overflow is what happens to a command that finds the stash full.
type Overflow uint8

const (
	// OverflowDrop answers ErrStashFull.
	OverflowDrop Overflow = iota
	// OverflowFail answers ErrStashFull and restarts the entity.
	OverflowFail
	// OverflowReply answers a fixed value.
	OverflowReply
)

// Config is what the machines of one type have in common. All fields are
// required; the shell fills in the defaults.
type Config struct {
	// StashCapacity bounds each of the two stashes; negative means no bound.
	StashCapacity int
	Overflow      Overflow
	OverflowReply any
	// MaxPending bounds the commands that are decided and wait for the journal.
	MaxPending int
	// Sequential switches pipelining off.
	Sequential bool
	// MinBackoff and MaxBackoff bound the exponential back-off, which is drawn
	// out by up to Jitter times its length.
	MinBackoff, MaxBackoff time.Duration
	Jitter                 float64
	// BackoffStash is how many more messages are taken while backing off.
	BackoffStash int
	// PanicLimit is how many panics within PanicWindow lead to a back-off.
	PanicLimit  int
	PanicWindow time.Duration
	// SnapshotEvery is the distance of snapshots in events, 0 for none, and
	// KeepSnapshots how many of them retention keeps, 0 for all.
	SnapshotEvery, KeepSnapshots uint64
	// Signals says that the aggregate handles signals.
	Signals bool
	// Seed feeds the jitter.
	Seed uint64
}

type phase uint8

const (
	absent phase = iota
	recovering
	ready
	settling
	fencing
	probing
	backingOff
)

// Machine is the protocol of one entity. It is not safe for concurrent use.
type Machine struct {
	cfg *Config
	b   Behavior
	id  string

	writer   string
	now      time.Time
	lastTime time.Time
	applied  uint64 // the last number given out
	durable  uint64 // the last number known to be stored

	head, tail         *Step // what is pending, in order
	unitHead, unitTail *Step // the units of it that wait for the journal
	failed             *Step // the first unit that was not stored
	broken             error // why nothing more is decided on this instance

	stash  Queue                // messages that could not be decided yet
	user   Queue                // what the user stashed
	after  Queue                // messages for the next incarnation
	first  Queue                // signals that come right after recovery
	later  map[*Envelope]uint64 // in what order they came
	laters uint64

	ops         int32 // in the pending list
	finishes    int32 // steps that only wait for those ahead
	calls       int32 // callbacks
	barriers    int32 // callbacks and ops behind which nothing is decided
	holding     int32 // units that hold back answers
	outstanding int32 // units that the shell holds
	limit       int   // of the stash while backing off
	failures    uint16
	panics      uint16
	phase       phase
	blocked     bool
	saving      bool
	stopping    bool
	draining    bool
	killed      bool
	dropCalls   bool
	panicsSince time.Time
}

// Init makes a zero Machine ready for the entity with this persistence ID.
func (m *Machine) Init(cfg *Config, b Behavior, id string) {
	m.cfg, m.b, m.id = cfg, b, id
}

// Step takes in what happened at a time and adds to out what is to be done.
// Times never decrease and are whole microseconds.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	m.now = now
	switch in.Kind {
	case Deliver:
		m.deliver(in.Env, out)
	case Stored:
		m.stored(in.N, out)
	case NotStored:
		m.notStored(in.Err, out)
	case Fenced:
		m.fenced(in.Err, out)
	case Probed:
		m.probed(in, out)
	case Recovered:
		m.recovered(in, out)
	case Woken:
		m.woken(out)
	case Saved:
		m.saving = false
	case Continue:
	case Idle:
		m.idle(out)
	case Drain:
		m.drain(out)
	case Kill:
		m.kill(in.Err, out)
	}
	m.pump(out)
}

// Block says that the writer takes no more units for now, so nothing is decided
// until Block(false) and a Step.
func (m *Machine) Block(blocked bool) { m.blocked = blocked }

// Resting reports whether the machine has nothing pending, stashed or promised.
func (m *Machine) Resting() bool {
	return m.phase == ready && m.head == nil && m.stash.n == 0 && m.user.n == 0 && m.after.n == 0 &&
		len(m.later) == 0 && !m.saving && m.broken == nil
}

// SequenceNr is the number of the last event that was applied.
func (m *Machine) SequenceNr() uint64 { return m.applied }

// Plain reports whether all that a Stored can lead to is answers that leave: no
// callback waits, nothing is to be decided, nothing ends.
func (m *Machine) Plain() bool {
	return m.phase == ready && m.broken == nil && m.calls == 0 && m.barriers == 0 && m.stash.n == 0 && !m.stopping
}

// DurableNr is the number of the last event that is known to be stored.
func (m *Machine) DurableNr() uint64 { return m.durable }

// Pending reports whether something decided is not durable yet.
func (m *Machine) Pending() bool { return m.applied != m.durable }

// Writer is the writer ID of this incarnation.
func (m *Machine) Writer() string { return m.writer }

// Recovering reports whether the instance is not yet recovered.
func (m *Machine) Recovering() bool { return m.phase == recovering }

// waits reports whether the message still waits for a later answer.
func (m *Machine) waits(e *Envelope) bool {
	_, ok := m.later[e]
	return ok
}

// deliver takes a message in.
func (m *Machine) deliver(e *Envelope, out *Effects) {
	switch {
	case m.draining && !e.Signal:
		m.answer(out, e, nil, ErrStopped)
	case m.phase == absent && e.Signal:
		// It was meant for an instance that is gone, and starts no other.
	case m.stopping:
		m.deliverAfter(e, out)
	case m.stash.n == 0 && m.canDecide():
		m.decide(e, out)
	case e.Signal || m.room():
		m.stash.Push(e)
		if m.phase == absent {
			m.recover(out)
		}
	default:
		m.overflow(e, out)
	}
}

// deliverAfter keeps a message that came when the stop was decided.
func (m *Machine) deliverAfter(e *Envelope, out *Effects) {
	if e.Signal || m.cfg.StashCapacity < 0 || m.after.n < m.cfg.StashCapacity {
		m.after.Push(e)
		return
	}
	m.overflow(e, out)
}

// room reports whether the stash takes one more command.
func (m *Machine) room() bool {
	if m.phase == backingOff {
		return m.stash.n < m.limit
	}
	return m.cfg.StashCapacity < 0 || m.stash.n < m.cfg.StashCapacity
}

func (m *Machine) overflow(e *Envelope, out *Effects) {
	switch m.cfg.Overflow {
	case OverflowReply:
		m.answer(out, e, m.cfg.OverflowReply, nil)
		return
	case OverflowFail:
		if m.phase == ready && m.broken == nil {
			m.broken = errStashOverflow
		}
	case OverflowDrop:
	}
	m.answer(out, e, nil, ErrStashFull)
}

// answer answers a message that was not decided.
func (m *Machine) answer(out *Effects, e *Envelope, value any, err error) {
	if e.Caller != nil && !e.Caller.Take() {
		return
	}
	out.Answers = append(out.Answers, Answer{Env: e, Value: value, Err: err})
}

// canDecide reports whether a message may be decided now.
func (m *Machine) canDecide() bool {
	return m.phase == ready && m.broken == nil && m.barriers == 0 && !m.blocked &&
		int(m.ops) < m.cfg.MaxPending && (!m.cfg.Sequential || m.holding == 0)
}

// decide has the aggregate handle a message and puts the result at the end of
// the pending list.
func (m *Machine) decide(e *Envelope, out *Effects) {
	if e.Caller != nil && !e.Caller.Take() {
		return // the caller gave up before anything was done
	}
	op := out.newOp()
	op.Env, op.machine, op.nr = e, m, m.applied
	m.b.Decide(op)
	if op.open == 0 {
		op.add(op.step())
	}
	m.ops++
	if op.panicked {
		m.broken = op.err
		if _, ok := e.Message.(RecoveryCompleted); ok {
			m.broken = &RecoveryFailed{Err: op.err}
		}
	}
	m.link(op, out)
}

// link moves what was added to an op to the end of the pending list, and
// numbers its units.
func (m *Machine) link(op *Op, out *Effects) {
	first, last := op.chain, op.last
	op.chain, op.last, op.saves = nil, nil, false
	before, beforeTime := m.applied, m.lastTime
	if op.barrier && !op.counted {
		op.counted = true
		m.barriers++
	}
	for s := first; s != nil; s = s.next {
		switch s.kind {
		case unitStep:
			m.number(s, out)
		case finishStep:
			m.finishes++
		case callStep:
			m.calls++
			if !s.async {
				m.barriers++
			}
		}
	}
	if first != nil {
		if m.tail == nil {
			m.head = first
		} else {
			m.tail.next = first
		}
		m.tail = last
	}
	for _, r := range op.Requests {
		if s, ok := r.(*State); ok && s.Time.IsZero() {
			s.Time = m.lastTime
			if s.SequenceNr == before {
				s.Time = beforeTime
			}
		}
	}
}

func (m *Machine) number(s *Step, out *Effects) {
	if m.now.After(m.lastTime) {
		m.lastTime = m.now
	}
	w := &s.Request.Write
	w.ID, w.Writer, w.Expect = m.id, m.writer, m.applied
	for i := range w.Events {
		m.applied++
		w.Events[i].SequenceNr = m.applied
		w.Events[i].Time = m.lastTime
	}
	if s.state != nil {
		s.state.SequenceNr, s.state.Time = m.applied, m.lastTime
		m.saving = true
	}
	if m.unitTail == nil {
		m.unitHead = s
	} else {
		m.unitTail.nextUnit = s
	}
	m.unitTail = s
	m.outstanding++
	if !s.async {
		m.holding++
		s.op.holding++
	}
	out.Append = append(out.Append, s)
}

// due returns an empty State if the unit with these events calls for one.
func (m *Machine) due(first, last uint64, matched bool) *State {
	hit := m.cfg.SnapshotEvery > 0 && last/m.cfg.SnapshotEvery > (first-1)/m.cfg.SnapshotEvery
	if m.saving || !hit && !matched {
		return nil
	}
	s := &State{}
	if kept := m.cfg.KeepSnapshots * m.cfg.SnapshotEvery; hit && kept > 0 && last > kept {
		s.Retain = last - kept
	}
	return s
}

// stepsPerPump bounds how many stashed messages one Step decides, so that a
// long stash does not keep a worker.
const stepsPerPump = 64

// pump completes what can be completed and decides what can be decided.
func (m *Machine) pump(out *Effects) {
	for n := 0; ; n++ {
		m.advance(out)
		if m.phase == ready && m.head == nil && m.outstanding == 0 && m.settled(out) {
			return
		}
		if m.stash.n == 0 || !m.canDecide() {
			return
		}
		if n == stepsPerPump {
			out.More = true
			return
		}
		m.decide(m.stash.Pop(), out)
	}
}

// settled handles what waits until nothing is pending: a broken instance, and a
// stop. It reports whether the instance is gone.
func (m *Machine) settled(out *Effects) bool {
	switch {
	case m.broken != nil:
		m.refoldBroken(out)
	case m.stopping && m.stash.n == 0:
		m.stopped(out)
	default:
		return false
	}
	return true
}
