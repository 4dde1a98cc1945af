// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// maxSecondaries is the number of further nodes that get a request when some nodes do not answer.
const maxSecondaries = 10

type roundsState struct {
	open map[uint64]*round
	due  roundHeap
	last uint64
	free []*round // completed rounds for reuse
}

// maxFree is the maximum number of rounds kept for reuse.
const maxFree = 256

func (s *roundsState) newRound() *round {
	n := len(s.free)
	if n == 0 {
		return &round{}
	}
	r := s.free[n-1]
	s.free[n-1] = nil
	s.free = s.free[:n-1]
	*r = round{targets: r.targets[:0]}
	return r
}

// release ends a round. Its fields stay valid until the next round starts.
func (s *roundsState) release(r *round) {
	delete(s.open, r.nr)
	heap.Remove(&s.due, r.index)
	if len(s.free) < maxFree {
		r.value, r.delta = crdt.Value{}, nil
		for i := range r.targets {
			r.targets[i].answer = nil
		}
		s.free = append(s.free, r)
	}
}

func (s *roundsState) next() time.Duration {
	if len(s.due) == 0 {
		return Never
	}
	return s.due[0].due
}

type phase uint8

const (
	writing phase = iota
	reading
	repairing // the result of a read is written to replicas that do not have it
)

// round is a request that waits for other nodes.
type round struct {
	nr         uint64
	id         uint64 // ID of the request
	key        string
	phase      phase
	repair     bool // a read that is followed by repairing
	targets    []target
	needed     int // number of targets in the first wave
	required   int // number of replicas
	total      int
	answered   int // number of replicas
	ownCount   int // 1 if this node counts
	refusals   int // targets that have refused
	verdict    Verdict
	tooFew     bool
	deadline   time.Duration
	due        time.Duration // time of the second wave or the deadline
	secondWave bool
	index      int // index in the heap
	storing    bool
	durable    bool
	value      crdt.Value
	found      Outcome // the outcome of a read, whose result is value, or of a successful write
	delta      []byte  // an encoded Delta, nil if whole values are sent
}

type target struct {
	node   identity.Node
	asked  bool
	done   bool // the node has answered
	answer *Entry
}

// openRound starts a round with the given peers, in the order in which the request is sent to them.
func (m *Machine) openRound(in Request, p phase, peers []identity.Node) *round {
	m.lastAwaited = m.now
	r := m.rounds.newRound()
	r.id, r.key, r.phase, r.deadline = in.ID, in.Key, p, m.now+min(maxDuration, cmp.Or(in.Timeout, m.cfg.Timeout))
	if m.countsIn(in.Level) {
		r.ownCount = 1
	}
	r.total, r.answered = len(peers)+r.ownCount, r.ownCount
	m.rounds.last++
	r.nr = m.rounds.last
	r.required = max(1, in.Level.Required(r.total))
	r.tooFew = r.required > r.total
	r.needed = min(r.required-r.ownCount, len(peers))
	for _, n := range peers[:min(len(peers), r.needed+maxSecondaries)] {
		r.targets = append(r.targets, target{node: n})
	}
	r.due = m.now + (r.deadline-m.now)/5
	m.rounds.open[r.nr] = r
	heap.Push(&m.rounds.due, r)
	return r
}

// ask sends the request to the targets among the first n that have not received it yet.
func (m *Machine) ask(r *round, n int) {
	for i := range r.targets[:min(n, len(r.targets))] {
		if t := &r.targets[i]; !t.asked && !t.done {
			t.asked = true
			m.askOne(r, t.node)
		}
	}
}

// restartWave schedules the second wave after a fifth of the remaining time.
func (m *Machine) restartWave(r *round) {
	r.secondWave, r.due = false, m.now+(r.deadline-m.now)/5
	heap.Fix(&m.rounds.due, r.index)
}

func (m *Machine) askOne(r *round, to identity.Node) {
	switch {
	case r.phase == reading:
		m.send(to, false, Read{r.nr, r.key})
	case r.delta != nil && !r.secondWave:
		m.sendEncoded(to, false, KindDelta, r.delta)
	default:
		m.sendWhole(r, to)
	}
}

func (m *Machine) sendWhole(r *round, to identity.Node) {
	e := m.keys[r.key]
	if e == nil {
		return // the key has expired
	}
	w, err := m.encodeEntry(e)
	if err != nil {
		m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
		return
	}
	m.send(to, false, Write{r.nr, w})
}

func (m *Machine) roundDue(r *round) {
	if r.secondWave || r.due >= r.deadline {
		m.timeOut(r)
		return
	}
	m.count.SecondWaves++
	r.secondWave, r.due = true, r.deadline
	heap.Fix(&m.rounds.due, r.index)
	if r.delta != nil {
		for _, t := range r.targets {
			if t.asked && !t.done {
				m.sendWhole(r, t.node)
			}
		}
	}
	m.ask(r, len(r.targets))
}

// timeOut ends a round at its deadline. If the disk has not answered, this node does not count as a
// participant.
func (m *Machine) timeOut(r *round) {
	reply := Reply{Outcome: TimedOut, Err: r.refusal(), Silent: r.silent()}
	if r.storing {
		if r.answered >= r.required {
			reply = Reply{Outcome: StoreFailed, Err: fmt.Errorf("store %q: the disk has not answered in time", r.key)}
		}
		r.answered -= r.ownCount
	}
	m.endRound(r, reply)
}

// target returns the round with a number and its target that sent a message. It returns nil if no
// round waits for the sender.
func (m *Machine) target(nr uint64, from identity.Node) (*round, *target) {
	r := m.rounds.open[nr]
	if r == nil {
		m.count.Dropped[DropLate]++
		return nil, nil
	}
	for i := range r.targets {
		if t := &r.targets[i]; t.node == from && t.asked && !t.done {
			return r, t
		}
	}
	m.count.Dropped[DropLate]++
	return nil, nil
}

func (m *Machine) receiveAck(from identity.Node, a Ack) {
	r, t := m.target(a.Nr, from)
	switch {
	case r == nil:
		return
	case r.phase == reading:
		m.count.Dropped[DropLate]++
		return
	case a.Verdict == Gap:
		m.sendWhole(r, from)
		return
	case a.Verdict == Merged:
		t.done = true
		r.answered++
	default:
		t.done = true
		r.refusals++
		r.verdict = a.Verdict
		m.ask(r, r.needed+r.refusals) // ask another target for each refusal
	}
	m.check(r)
}

func (m *Machine) check(r *round) {
	switch {
	case r.storing:
	case r.tooFew:
		m.finish(r, TooFew, nil)
	case r.answered < r.required:
		m.checkRefusals(r)
	case r.phase == reading:
		m.readDone(r)
	case r.phase == repairing:
		m.repaired(r)
	case r.phase == writing:
		m.finish(r, r.found, nil)
	}
}

func (m *Machine) checkRefusals(r *round) {
	switch {
	case len(r.targets)-r.refusals >= r.required-r.ownCount:
	case r.verdict == StoreFault:
		m.finish(r, StoreFailed, r.refusal())
	default:
		m.finish(r, TimedOut, r.refusal())
	}
}

// refusal returns the error for the refusals of targets, nil if there are none.
func (r *round) refusal() error {
	switch {
	case r.refusals == 0:
		return nil
	case r.verdict == StoreFault:
		return fmt.Errorf("store %q: failed on %d other replicas", r.key, r.refusals)
	case r.verdict == Full:
		return Errorf(ErrFull, "too many keys: no room for %q on %d other replicas", r.key, r.refusals)
	}
	return Errorf(ErrType, "%d other replicas have refused %q", r.refusals, r.key)
}

func (r *round) silent() []identity.Node {
	var nodes []identity.Node
	for i := range r.targets {
		if t := &r.targets[i]; t.asked && !t.done {
			nodes = append(nodes, t.node)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes
}

func (m *Machine) finish(r *round, o Outcome, err error) { m.endRound(r, Reply{Outcome: o, Err: err}) }

func (m *Machine) endRound(r *round, reply Reply) {
	reply.ID, reply.Answered, reply.Required, reply.Total = r.id, r.answered, r.required, r.total
	if reply.Outcome == Done {
		reply.Value = r.value
	}
	m.rounds.release(r)
	m.count.Outcomes[reply.Outcome]++
	m.reply(reply)
}

// admit checks a request. It refuses an invalid request, and any request if too many are open.
func (m *Machine) admit(in Request) bool {
	err := CheckKey(in.Key)
	if err == nil {
		err = in.Level.validate()
	}
	if err != nil {
		m.fail(in, err)
	} else if len(m.rounds.open)+len(m.stores.waiting)-m.stores.peers >= m.cfg.MaxRequests {
		m.count.Outcomes[Busy]++
		m.reply(Reply{ID: in.ID, Outcome: Busy})
		return false
	}
	return err == nil
}

func (m *Machine) fail(in Request, err error) {
	m.count.Outcomes[Failed]++
	m.reply(Reply{ID: in.ID, Outcome: Failed, Err: err})
}

// replyLocal answers a request that needs no other node.
func (m *Machine) replyLocal(in Request, o Outcome, v crdt.Value) {
	m.count.Outcomes[o]++
	m.reply(Reply{ID: in.ID, Outcome: o, Value: v, Answered: 1, Required: 1, Total: m.total(in.Level)})
}

type roundHeap []*round

func (h roundHeap) Len() int { return len(h) }
func (h roundHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].nr < h[j].nr
}

func (h roundHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *roundHeap) Push(x any) {
	r := x.(*round) //nolint:errcheck,forcetypeassert // only rounds are pushed
	r.index = len(*h)
	*h = append(*h, r)
}

// Pop is part of heap.Interface.
func (h *roundHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

var _ heap.Interface = (*roundHeap)(nil)
