// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"time"
)

// Overflow is the reaction to a command that arrives while the stash is full.
type Overflow uint8

const (
	// OverflowDrop answers ErrStashFull.
	OverflowDrop Overflow = iota
	// OverflowFail answers ErrStashFull and restarts the entity.
	OverflowFail
)

// Directive is the decision of a supervisor.
type Directive uint8

const (
	// Restart drops the instance and recovers another one, after a back-off if the failure is likely to
	// repeat.
	Restart Directive = iota
	// Resume keeps the instance if the failure has left its state intact, and otherwise restarts it.
	Resume
	// Stop ends the instance. The next message starts another one.
	Stop
	// Escalate is Stop, and ends the host.
	Escalate
)

// Config is the configuration of all machines of one type. All fields are required; the shell fills
// in the defaults.
type Config struct {
	// StashCapacity limits each of the two stashes; negative means no limit.
	StashCapacity int
	Overflow      Overflow
	// MaxPending limits the commands that are decided and wait for the journal.
	MaxPending int
	// Sequential switches pipelining off.
	Sequential bool
	// Shared reports that other machines write to the same entity. The machine then decides a message
	// only after a Refresh that began after the message had arrived, and decides a message whose write
	// conflicts again.
	Shared bool
	// MinBackoff and MaxBackoff limit the exponential back-off. Jitter extends it by up to this
	// fraction.
	MinBackoff, MaxBackoff time.Duration
	Jitter                 float64
	// BackoffStash is the number of additional messages accepted during a back-off.
	BackoffStash int
	// PanicLimit is the number of panics within PanicWindow that leads to a back-off.
	PanicLimit  int
	PanicWindow time.Duration
	// SnapshotEvery is the distance of snapshots in events, 0 for none. KeepSnapshots is the number
	// of snapshots that retention keeps, 0 for all.
	SnapshotEvery, KeepSnapshots uint64
	// Signals reports whether the aggregate handles signals.
	Signals bool
	// Supervise decides after a failure. nil restarts.
	Supervise func(cause error) Directive
	// Seed feeds the jitter.
	Seed uint64

	none rare // the rare fields of all machines that have not called needRare; stays zero
}

type phase uint8

const (
	absent phase = iota
	recovering
	ready
	refreshing
	settling
	fencing
	probing
	backingOff
)

// instant is a time of whole microseconds in a third of the memory of a time.Time, so that an idle entity
// stays small. The zero value is the zero Time.
type instant int64

// zeroTime is the Unix time of the zero Time in microseconds.
const zeroTime = -62_135_596_800_000_000

func instantOf(t time.Time) instant { return instant(t.UnixMicro() - zeroTime) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i) + zeroTime).UTC() }

// failure is the reason why an instance ends, with the decision of its supervisor.
type failure struct {
	cause   error // nil if the state includes events that Op.Discard has dropped
	verdict Directive
}

// Machine is the protocol of one entity. It is not safe for concurrent use.
type Machine struct {
	cfg *Config
	b   Behavior
	id  string

	writer   string
	now      instant
	lastTime instant // of the last assigned sequence number
	applied  uint64  // the last assigned sequence number
	durable  uint64  // the last sequence number that is stored

	head, tail *Step // the pending list
	lastUnit   *Step // the last unit of the pending list that waits for the journal; its nextUnit is the first one
	stash      Queue // messages that could not be decided yet
	rare       *rare // read only; see needRare

	ops         int32 // in the pending list
	finishes    int32 // steps that wait only for earlier steps
	calls       int32 // callbacks
	barriers    int32 // callbacks and ops that block later decisions
	holding     int32 // units that hold back replies
	outstanding int32 // units that the shell holds
	fresh       int32 // with Config.Shared: the first messages of the stash that may be decided
	phase       phase
	blocked     bool
	saving      bool
	stopping    bool
	draining    bool
	dropCalls   bool
	failing     bool // a signal about a failed recovery is handled
}

// rare holds the fields that few machines need at a time.
type rare struct {
	failed      *Step                // the first unit that was not stored
	broken      *failure             // the reason why this instance decides no more messages
	killed      error                // the error of Kill for waiting messages; nil if the entity was not killed
	parting     *parting             // nil unless the instance stops with a farewell
	user        Queue                // messages stashed by the user
	after       Queue                // messages for the next incarnation
	first       Queue                // signals for the first turn after a recovery
	later       map[*Envelope]uint32 // messages with a later reply, by order of arrival
	laters      uint32
	limit       int32 // of the stash during a back-off
	failures    uint16
	panics      uint16
	panicsSince instant
}

// needRare returns the rare fields for a change of them.
func (m *Machine) needRare() *rare {
	if m.rare == &m.cfg.none {
		m.rare = new(rare)
	}
	return m.rare
}

// Init prepares a zero Machine for the entity with this persistence ID.
func (m *Machine) Init(cfg *Config, b Behavior, id string) {
	m.cfg, m.b, m.id, m.rare = cfg, b, id, &cfg.none
}

// Step handles an input at time now and appends the resulting actions to out. Times never decrease
// and are whole microseconds.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	m.now = instantOf(now)
	out.More = true // if user code calls runtime.Goexit, Step does not end
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
	case Refreshed:
		m.refreshed(in, out)
	case Woken:
		m.woken(out)
	case Saved:
		m.saved(in.Saved)
	case Continue:
	case Idle:
		m.idle(in.Env, out)
	case Drain:
		m.drain(in.Env, out)
	case Kill:
		m.kill(in.Err, out)
	}
	out.More = m.pump(out)
}

// Block reports whether the writer accepts units. While blocked, the machine decides no message;
// after Block(false) the shell calls Step.
func (m *Machine) Block(blocked bool) { m.blocked = blocked }

// Resting reports whether the machine has no pending op, no stashed message and no deferred reply.
func (m *Machine) Resting() bool {
	return m.phase == ready && m.head == nil && m.stash.n == 0 && m.rare.user.n == 0 && m.rare.after.n == 0 &&
		len(m.rare.later) == 0 && !m.saving && m.rare.broken == nil
}

// Vacant reports whether the machine rests and has no history: no event and no recent failure. The next
// instance would be equal to this one.
func (m *Machine) Vacant() bool {
	return m.applied == 0 && m.rare.failures == 0 && m.rare.panics == 0 && m.Resting()
}

// ID returns the persistence ID of the entity.
func (m *Machine) ID() string { return m.id }

// Now returns the time of the last Step or SetNow.
func (m *Machine) Now() time.Time { return m.now.time() }

// SetNow sets the result of Now until the next Step.
func (m *Machine) SetNow(now time.Time) { m.now = instantOf(now) }

// SequenceNr returns the sequence number of the last applied event.
func (m *Machine) SequenceNr() uint64 { return m.applied }

// Plain reports whether a Stored input can only lead to replies: no callback waits, no message can
// be decided, and the entity does not stop.
func (m *Machine) Plain() bool {
	return m.phase == ready && m.rare.broken == nil && m.calls == 0 && m.barriers == 0 && m.stash.n == 0 && !m.stopping
}

// Open reports whether a Deliver would be decided at once, after all messages that were delivered
// before it, and whether it can't lead to the decision of another message.
func (m *Machine) Open() bool {
	return m.stash.n == 0 && m.rare.user.n == 0 && !m.stopping && m.canDecide()
}

// DurableNr returns the sequence number of the last event that is stored.
func (m *Machine) DurableNr() uint64 { return m.durable }

// Writer returns the writer ID of this incarnation.
func (m *Machine) Writer() string { return m.writer }

// Draining reports whether the machine has received Drain or Kill and rejects further messages.
func (m *Machine) Draining() bool { return m.draining }

// Recovering reports whether the instance is not yet recovered.
func (m *Machine) Recovering() bool { return m.phase == recovering }

// Running reports whether an instance decides messages, or will without another recovery.
func (m *Machine) Running() bool { return m.phase == ready || m.phase == refreshing }

func (m *Machine) deliver(e *Envelope, out *Effects) {
	switch {
	case m.draining && !e.Signal:
		m.answer(out, e, cmp.Or(m.rare.killed, ErrStopped))
	case m.phase == absent && e.Signal:
		// The signal was meant for an instance that has ended. It does not start a new instance.
	case m.stopping && (e.Signal || m.cfg.StashCapacity < 0 || m.rare.after.n < m.cfg.StashCapacity):
		m.needRare().after.Push(e) // it arrived after the decision to stop
	case m.stopping:
		m.overflow(e, out)
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

// room reports whether the stash takes one more command.
func (m *Machine) room() bool {
	if m.phase == backingOff {
		return m.stash.n < int(m.rare.limit)
	}
	return m.cfg.StashCapacity < 0 || m.stash.n < m.cfg.StashCapacity
}

func (m *Machine) overflow(e *Envelope, out *Effects) {
	if m.cfg.Overflow == OverflowFail && m.phase == ready && m.rare.broken == nil {
		m.fail(errStashOverflow, true, out)
	}
	m.answer(out, e, ErrStashFull)
}

// answer answers a message that was not decided.
func (m *Machine) answer(out *Effects, e *Envelope, err error) {
	if e.Caller != nil && !e.Caller.Take() {
		return
	}
	out.Answers = append(out.Answers, Answer{Env: e, Err: err})
}

func (m *Machine) canDecide() bool {
	return m.phase == ready && m.rare.broken == nil && m.barriers == 0 && !m.blocked &&
		int(m.ops) < m.cfg.MaxPending && (!m.cfg.Sequential || m.holding == 0) && (!m.cfg.Shared || m.fresh > 0)
}

// decide calls the aggregate with a message and appends the result to the pending list.
func (m *Machine) decide(e *Envelope, out *Effects) {
	if e.Caller != nil && !e.Caller.Take() {
		return // the caller stopped waiting before the command was decided
	}
	op := out.newOp()
	op.Env, op.machine, op.nr = e, m, m.applied
	defer func() { // also if user code calls runtime.Goexit
		if op.open == 0 {
			op.add(op.step())
		}
		m.ops++
		if op.discarded {
			m.needRare().broken = &failure{}
		}
		if op.panicked {
			if _, ok := e.Message.(RecoveryCompleted); ok {
				m.fail(&RecoveryFailed{Err: op.err}, false, out)
			} else {
				m.fail(op.err, !op.Applied, out)
			}
		}
		m.link(op, out)
	}()
	m.b.Decide(op)
}

// link moves the new steps of an op to the end of the pending list and numbers its units.
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
			s.Time = m.lastTime.time()
			if s.SequenceNr == before {
				s.Time = beforeTime.time()
			}
		}
	}
}

func (m *Machine) number(s *Step, out *Effects) {
	m.lastTime = max(m.lastTime, m.now)
	w := &s.Request.Write
	w.ID, w.Writer, w.Expect = m.id, m.writer, m.applied
	at := m.lastTime.time()
	for i := range w.Events {
		m.applied++
		w.Events[i].SequenceNr = m.applied
		w.Events[i].Time = at
	}
	if s.state != nil {
		s.state.SequenceNr, s.state.Time, s.state.Awaited = m.applied, at, true
		m.saving = true
	}
	s.nextUnit = s
	if m.lastUnit != nil {
		s.nextUnit, m.lastUnit.nextUnit = m.lastUnit.nextUnit, s
	}
	m.lastUnit = s
	m.outstanding++
	if !s.async {
		m.holding++
		s.op.holding++
	}
	out.Append = append(out.Append, s)
}

// due returns an empty State if a snapshot is due with the unit of these events, otherwise nil.
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

// stepsPerPump limits the stashed messages per Step, so that a long stash does not occupy a worker.
const stepsPerPump = 64

// pump completes finished steps and decides waiting messages, unless it must be called again.
func (m *Machine) pump(out *Effects) (more bool) {
	for n := 0; ; n++ {
		m.advance(out)
		if m.phase == ready && m.head == nil && m.outstanding == 0 && m.settled(out) {
			return false
		}
		if m.sayFarewell(out) {
			continue
		}
		if m.stash.n == 0 {
			return false
		}
		if !m.canDecide() {
			m.refresh(out)
			return false
		}
		if n == stepsPerPump {
			return true
		}
		m.fresh--
		m.decide(m.stash.Pop(), out)
	}
}

// settled handles a broken instance or a stop once the pending list is empty. It reports whether
// the instance has ended.
func (m *Machine) settled(out *Effects) bool {
	switch {
	case m.rare.broken != nil:
		m.refoldBroken(out)
	case m.stopping && m.stash.n == 0 && m.parted():
		m.stopped(out)
	default:
		return false
	}
	return true
}

// Waiting returns the number of messages in both stashes.
func (m *Machine) Waiting() int32 { return int32(m.stash.n + m.rare.user.n) } //nolint:gosec // a count of envelopes in memory

// First returns the message that is decided next, nil if none waits.
func (m *Machine) First() *Envelope { return m.stash.first() }

// Last returns the message that is decided last, nil if none waits.
func (m *Machine) Last() *Envelope { return m.stash.last }
