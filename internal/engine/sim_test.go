// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// simulation drives machines over one disk. It delays and loses their writes, or stores them late,
// in an order drawn from a seed. After every step it checks that every answer of a machine is
// correct.
type simulation struct {
	rng      *rand.Rand
	seed     uint64
	cfg      engine.Config
	now      time.Time
	disk     disk
	nodes    []*node // machines that live
	commands []message
	next     int
	calls    map[string]*caller
	fates    map[string]fate
	signals  map[string][]act
	plain    map[string]bool // commands of one unit or none, without callbacks
	late     []lateWrites
	writers  int

	deletions int

	// The profile of the run permits these faults.
	chaos      bool // crashes, two machines at once, callers that leave
	async      bool // some units are asynchronous
	staleReads bool // two machines at once: reads may be stale

	ops      opPool
	answers  map[string]string
	ran      []string // labels of the callbacks that ran
	asked    []string // requests
	acked    int      // acknowledged events
	ackedAt  map[string]int
	trace    strings.Builder
	failures []string
	hits     map[string]int
}

// opPool returns the op that was put back last, so that a use of a finished op is detected early.
type opPool []any

func (p *opPool) Put(op any) { *p = append(*p, op) }

func (p *opPool) Get() any {
	n := len(*p)
	if n == 0 {
		return nil
	}
	op := (*p)[n-1]
	*p = (*p)[:n-1]
	return op
}

// lateWrites are writes of one call that may land.
type lateWrites struct {
	writes []journal.Write
	fenced bool // the writes must be refused, so they wait until another record has their sequence number
}

// node is one machine with its shell.
type node struct {
	sim     *simulation
	name    int
	machine engine.Machine
	agg     aggregate
	out     engine.Effects
	queue   []*engine.Step // accepted by the writer
	broken  bool           // the stream skips all units
	killed  bool
	acks    []error        // outcomes that the machine has not received yet
	owed    []*engine.Step // the units of acks
	inputs  []func()       // other pending inputs
	writer  string
	fence   *journal.Write
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{
		rng: rand.New(rand.NewPCG(seed, 2026)), seed: seed, now: time.Unix(1_000_000, 0).UTC(),
		calls: make(map[string]*caller), fates: make(map[string]fate), signals: make(map[string][]act),
		plain: make(map[string]bool), answers: make(map[string]string), ackedAt: make(map[string]int),
		hits: make(map[string]int),
	}
	s.cfg = engine.Config{
		StashCapacity: -1, MaxPending: 1 + s.rng.IntN(20), Sequential: s.rng.IntN(4) == 0,
		MinBackoff: 3 * time.Second, MaxBackoff: 30 * time.Second, Jitter: 0.2, BackoffStash: 1 << 20,
		PanicLimit: 5, PanicWindow: 10 * time.Second, Signals: s.rng.IntN(2) == 0, Seed: seed,
	}
	if s.rng.IntN(2) == 0 {
		s.cfg.SnapshotEvery, s.cfg.KeepSnapshots = uint64(1+s.rng.IntN(4)), uint64(s.rng.IntN(3))
	}
	if s.rng.IntN(2) == 0 {
		s.signals["PersistFailed"] = parse("persist(failed)")
		s.signals["PersistRejected"] = parse("persist(rejected)")
	}
	return s
}

func (s *simulation) printf(format string, args ...any) {
	fmt.Fprintf(&s.trace, format+"\n", args...)
}

func (s *simulation) errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.printf("WRONG: %s", text)
	s.failures = append(s.failures, text)
}

func (s *simulation) chance(percent int) bool { return s.rng.IntN(100) < percent }

func (s *simulation) start() {
	n := &node{sim: s, name: len(s.nodes)}
	n.out.Ops = &s.ops
	n.agg = aggregate{calls: s.calls, signals: s.signals, trace: func(format string, args ...any) {
		s.printf(fmt.Sprint(n.name, ": ", format), args...)
		if label, ok := strings.CutPrefix(fmt.Sprintf(format, args...), "call "); ok {
			s.ran = append(s.ran, label)
		}
	}}
	n.machine.Init(&s.cfg, &n.agg, "sim|1")
	s.nodes = append(s.nodes, n)
}

// run takes random steps until no step is possible.
func (s *simulation) run() {
	s.start()
	if s.cfg.Shared {
		s.start()
	}
	for steps := 0; ; steps++ {
		if steps > 100_000 {
			s.errorf("the simulation does not end")
			return
		}
		s.now = s.now.Add(time.Duration(s.rng.IntN(1000)) * time.Microsecond)
		if !s.act() {
			break
		}
	}
	for _, n := range s.nodes {
		n.finish()
	}
	for len(s.mayLand()) > 0 {
		s.land()
	}
	for range s.late {
		s.errorf("a lost write has no other record at its sequence number")
	}
}

// act takes one random step. It returns false if no further step is possible.
func (s *simulation) act() bool {
	var can []func()
	for _, n := range s.nodes {
		can = n.possible(can)
	}
	if s.next < len(s.commands) {
		can = append(can, s.deliver, s.deliver)
	}
	busy := len(can) > 0
	if len(s.mayLand()) > 0 {
		can = append(can, s.land)
	}
	if s.chaos && busy {
		can = s.addFaults(can)
	}
	if len(can) == 0 {
		return false
	}
	can[s.rng.IntN(len(can))]()
	return busy
}

// deliver passes the next command to a machine: usually to the newest one, with Shared to any.
func (s *simulation) deliver() {
	m := s.commands[s.next]
	s.next++
	n := s.nodes[len(s.nodes)-1]
	if s.cfg.Shared || s.chance(30) {
		n = s.nodes[s.rng.IntN(len(s.nodes))]
	}
	c := newCaller(m)
	s.calls[m.name] = c
	s.ackedAt[m.name] = s.acked
	s.printf("%d: deliver %s: %s", n.name, m.name, format(m.acts))
	n.step(engine.Input{Kind: engine.Deliver, Env: &c.env})
}

// mayLand lists the late calls that may arrive now.
func (s *simulation) mayLand() []int {
	var all []int
	for i, l := range s.late {
		if !l.fenced || int(l.writes[0].Expect) < len(s.disk) {
			all = append(all, i)
		}
	}
	return all
}

// land lets one call of late writes arrive.
func (s *simulation) land() {
	may := s.mayLand()
	i := may[s.rng.IntN(len(may))]
	l := s.late[i]
	s.late = slices.Delete(s.late, i, i+1)
	for _, w := range l.writes {
		if err := s.disk.append(w); err != nil {
			s.hits["late write refused"]++
			return // the later ones are skipped
		}
		s.printf("landed %d %s", w.Expect+1, w.Events[0].Payload)
		s.hits["late write landed"]++
		if l.fenced {
			s.errorf("a write landed late although it was fenced: %d", w.Expect+1)
		}
	}
}

// addFaults adds crashes, further machines, kills, deletions, and callers that stop waiting.
func (s *simulation) addFaults(can []func()) []func() {
	if s.chance(3) {
		can = append(can, s.crash)
	}
	if s.chance(2) && len(s.nodes) < 3 {
		s.staleReads = !s.cfg.Shared
		can = append(can, func() { s.start() })
	}
	if s.next > 0 && s.chance(10) {
		can = append(can, func() { s.leave(s.commands[s.rng.IntN(s.next)].name) })
	}
	if s.chance(5) {
		n := s.nodes[s.rng.IntN(len(s.nodes))]
		can = append(can, func() { n.killed = true; n.step(engine.Input{Kind: engine.Kill}); s.remove(n) })
	}
	if s.seed%2 == 0 && len(s.disk) > 0 && s.chance(20) {
		can = append(can, s.deleteRecords)
	}
	return can
}

// deleteRecords deletes records, as another process does that has saved a snapshot.
func (s *simulation) deleteRecords() {
	to := 1 + s.rng.IntN(len(s.disk))
	if s.chance(50) {
		to = len(s.disk)
	}
	s.printf("deleted to %d", to)
	s.deletions++
	s.disk.deleteTo(to)
}

// leave makes a caller stop waiting.
func (s *simulation) leave(name string) {
	c := s.calls[name]
	if _, answered := s.answers[name]; answered || c.state == left {
		return
	}
	s.hits["caller left"]++
	if c.state == waiting {
		s.answers[name] = "error not done"
	} else {
		s.answers[name] = "error unknown"
	}
	s.printf("%s leaves: %s", name, s.answers[name])
	c.leave()
}

// crash drops a machine without a further step, and starts another one.
func (s *simulation) crash() {
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	s.printf("%d: crash", n.name)
	s.hits["crash"]++
	for name, c := range s.calls {
		if _, answered := s.answers[name]; !answered {
			s.answers[name] = "error unknown"
			c.leave()
		}
	}
	s.remove(n)
}

// remove removes a machine. Its writes in flight may still be stored.
func (s *simulation) remove(n *node) {
	var writes []journal.Write
	for _, u := range n.queue {
		writes = append(writes, keep(u))
	}
	if k := s.rng.IntN(len(writes) + 1); k > 0 {
		s.late = append(s.late, lateWrites{writes: writes[:k]})
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(o *node) bool { return o == n })
	if len(s.nodes) == 0 {
		s.start()
	}
}

// possible adds the next possible steps of the machine.
func (n *node) possible(can []func()) []func() {
	if len(n.queue) > 0 {
		can = append(can, n.commit)
	}
	if n.fence != nil {
		can = append(can, n.commitFence)
	}
	if len(n.acks) > 0 {
		can = append(can, n.acknowledge)
	}
	for i := range n.inputs {
		can = append(can, func() {
			f := n.inputs[i]
			n.inputs = slices.Delete(n.inputs, i, i+1)
			f()
		})
	}
	if len(can) > 0 && n.sim.chance(3) {
		can = append(can, func() { n.step(engine.Input{Kind: engine.Idle, Env: n.farewell()}) })
	}
	return can
}

// commit performs one Append of the writer's queue.
func (n *node) commit() {
	s := n.sim
	batch := n.queue[:1+s.rng.IntN(len(n.queue))]
	n.queue = n.queue[len(batch):]
	whole := s.chance(50) // whether a failure affects the whole call
	var failed error
	var lost []journal.Write
	landed, fenced := false, !s.chaos
	for i, u := range batch {
		if failed != nil {
			switch {
			case journal.NotStored(failed) || !whole:
				n.ack(u, journal.ErrSkipped)
			case landed:
				if landed = n.store(u) == nil; !landed {
					lost = append(lost, keep(u))
				}
				n.ack(u, failed)
			default:
				lost = append(lost, keep(u))
				n.ack(u, failed)
			}
			continue
		}
		f := s.fate(u, batch[i+1:], n.queue)
		if f != fateStored {
			s.printf("%d: fate of %d is %s", n.name, u.Request.Write.Expect+1, f.error())
		}
		switch f {
		case fateRejected:
			failed = &journal.RejectedError{}
		case fateConflict:
			s.disk = append(s.disk, record{name: "foreign", writer: "other"})
			failed = &journal.ConflictError{}
		case fateNotSent:
			failed = journal.ErrNotSent
		case fateLost, fateLate:
			failed = errLost
			lost = append(lost, keep(u))
			fenced = fenced && f == fateLost
		case fateUnavailable:
			failed = errUnavailable
			lost = append(lost, keep(u))
		case fateLanded:
			failed = errLost
			if landed = n.store(u) == nil; !landed {
				lost = append(lost, keep(u))
			}
			whole = whole && s.wholeMayLand(batch[i+1:])
		case fateStored:
			failed = n.store(u)
		}
		n.ack(u, failed)
	}
	if len(lost) > 0 {
		s.late = append(s.late, lateWrites{writes: lost, fenced: fenced})
	}
	if failed != nil {
		n.broken = true
		for _, u := range n.queue {
			n.ack(u, journal.ErrSkipped)
		}
		n.queue = nil
	}
}

// store appends a unit to the disk.
func (n *node) store(u *engine.Step) error {
	err := n.sim.disk.append(u.Request.Write)
	n.sim.printf("%d: stored %d %s: %v", n.name, u.Request.Write.Expect+1, first(u), err)
	if err != nil && !n.sim.chaos {
		n.sim.errorf("%v", err)
	}
	return err
}

// fate draws the outcome of a unit. followers are the units after it.
func (s *simulation) fate(u *engine.Step, followers ...[]*engine.Step) fate {
	name := first(u)
	f := s.fates[name]
	delete(s.fates, name)
	if f == fateLanded {
		// Whether the later units of the same command are stored would depend on chance.
		for _, units := range followers {
			if slices.ContainsFunc(units, func(o *engine.Step) bool { return commandOf(first(o)) == commandOf(name) }) {
				return fateLost
			}
		}
	}
	return f
}

// wholeMayLand reports whether units may be stored together with the preceding unit without a
// change of the answers.
func (s *simulation) wholeMayLand(units []*engine.Step) bool {
	return !slices.ContainsFunc(units, func(u *engine.Step) bool {
		return s.fates[first(u)] != fateStored || !s.plain[commandOf(first(u))]
	})
}

// keep copies a write that may land later: the machine reuses its slices.
func keep(u *engine.Step) journal.Write {
	w := u.Request.Write
	w.Events = slices.Clone(w.Events)
	return w
}

func first(u *engine.Step) string { return string(u.Request.Write.Events[0].Payload) }

// commandOf is the command that an event belongs to.
func commandOf(event string) string {
	name, _, _ := strings.Cut(event, ".")
	return name
}

func (n *node) ack(u *engine.Step, err error) {
	n.acks = append(n.acks, err)
	n.owed = append(n.owed, u)
}

// acknowledge passes some of the outcomes to the machine.
func (n *node) acknowledge() {
	k := 1 + n.sim.rng.IntN(len(n.acks))
	for k > 0 {
		stored := 0
		for stored < k && n.acks[stored] == nil {
			stored++
		}
		if stored > 0 {
			n.acks, n.owed, k = n.acks[stored:], n.owed[stored:], k-stored
			n.step(engine.Input{Kind: engine.Stored, N: stored})
			continue
		}
		err := n.acks[0]
		n.acks, n.owed, k = n.acks[1:], n.owed[1:], k-1
		n.step(engine.Input{Kind: engine.NotStored, Err: err})
	}
}

// commitFence answers the fence.
func (n *node) commitFence() {
	s := n.sim
	w := *n.fence
	n.fence = nil
	var err error
	switch s.rng.IntN(8) {
	case 0:
		err = errLost
		s.hits["fence lost"]++
	case 1:
		_ = s.disk.append(w)
		err = errLost
		s.hits["fence landed, unknown"]++
	case 2:
		err = errLost
		s.late = append(s.late, lateWrites{writes: []journal.Write{w}})
		s.hits["fence late"]++
	case 3:
		err = errUnavailable
	case 4:
		err = journal.ErrNotSent
	default:
		err = s.disk.append(w)
		if err == nil {
			s.hits["fence stored"]++
		}
	}
	s.printf("%d: fence %d: %v", n.name, w.Expect+1, err)
	n.inputs = append(n.inputs, func() { n.step(engine.Input{Kind: engine.Fenced, Err: err}) })
}

func (n *node) step(in engine.Input) {
	for {
		n.out.Reset()
		n.machine.Step(n.sim.now, in, &n.out)
		n.perform()
		if !n.out.More {
			return
		}
		in = engine.Input{Kind: engine.Continue}
	}
}

// perform carries out effects and checks them.
func (n *node) perform() {
	s, o := n.sim, &n.out
	for _, u := range o.Append {
		s.printf("%d: append %d %s", n.name, u.Request.Write.Expect+1, first(u))
		if n.broken {
			n.ack(u, journal.ErrSkipped)
			continue
		}
		n.queue = append(n.queue, u)
	}
	if o.Fence != nil {
		if len(n.queue)+len(n.acks) > 0 {
			s.errorf("the machine requested a fence while writes are in flight")
		}
		n.fence, n.broken = o.Fence, false
	}
	if o.Probe != 0 {
		from, writer := int(o.Probe), n.machine.Writer()
		n.inputs = append(n.inputs, func() { n.probe(writer, from) })
	}
	if o.Durable != 0 {
		s.printf("%d: durable %d", n.name, o.Durable)
		if int(o.Durable) > len(s.disk) || s.disk[o.Durable-1].writer != n.writer {
			s.errorf("%d is reported as durable, but is not stored", o.Durable)
		}
	}
	for _, a := range o.Answers {
		n.answer(a)
	}
	for _, r := range o.Requests {
		s.asked = append(s.asked, fmt.Sprint(r))
	}
	for _, st := range o.Save {
		n.save(st)
	}
	if o.Cause != nil {
		s.printf("%d: cause %s", n.name, describe(o.Cause))
	}
	if o.Stopped {
		s.printf("%d: stopped", n.name)
		s.hits["stopped"]++
	}
	if o.Recover {
		s.printf("%d: recover", n.name)
		n.broken = false
		n.inputs = append(n.inputs, n.recover)
	}
	if o.Refresh {
		if len(n.queue)+len(n.acks) > 0 {
			s.errorf("the machine requested a refresh while writes are in flight")
		}
		n.inputs = append(n.inputs, n.refresh)
	}
	if o.Wake > 0 {
		s.hits["back-off"]++
		pause := o.Wake
		n.inputs = append(n.inputs, func() {
			s.now = s.now.Add(pause)
			n.step(engine.Input{Kind: engine.Woken})
		})
	}
}

// save checks that a snapshot equals the events in the journal.
func (n *node) save(st *engine.State) {
	s := n.sim
	s.printf("%d: save %d", n.name, st.SequenceNr)
	s.hits["snapshot"]++
	if int(st.SequenceNr) > len(s.disk) {
		s.errorf("the machine saved a snapshot at %d, above the last stored event", st.SequenceNr)
	} else if want := strings.Join(s.disk[:st.SequenceNr].events(), " "); string(st.Payload) != want {
		s.errorf("a snapshot at %d of %q, want %q", st.SequenceNr, st.Payload, want)
	}
	if st.Awaited {
		n.inputs = append(n.inputs, func() { n.step(engine.Input{Kind: engine.Saved, Saved: st}) })
	}
}

func (n *node) probe(writer string, from int) {
	s := n.sim
	in := s.disk.probe(uint64(from), writer)
	if s.chance(20) {
		in = engine.Input{Kind: engine.Probed, Err: errUnavailable}
	} else {
		s.hits[fmt.Sprintf("probe finds %d", in.Next)]++
		if int(in.LastNr) >= from {
			s.hits["probe finds own"]++
		}
		if in.DeletedTo > 0 {
			s.hits["probe finds a deletion"]++
		}
	}
	s.printf("%d: probed from %d: %d, deleted to %d, %d, %v", n.name, from, in.LastNr, in.DeletedTo, in.Next, in.Err)
	n.step(in)
}

func (n *node) recover() {
	s := n.sim
	if s.chaos && s.chance(10) {
		n.step(engine.Input{Kind: engine.Recovered, Err: errLost})
		return
	}
	s.writers++
	n.agg.state = s.disk.events()
	n.writer = fmt.Sprintf("w%d", s.writers)
	n.step(engine.Input{Kind: engine.Recovered, Recovery: engine.Recovery{
		SequenceNr: uint64(len(s.disk)), Time: s.now, Replayed: uint64(s.rng.IntN(3)), Writer: n.writer,
	}})
}

// refresh reads the disk, and delivers the result in a later step.
func (n *node) refresh() {
	s := n.sim
	if s.chaos && s.chance(10) {
		s.printf("%d: refresh lost", n.name)
		n.step(engine.Input{Kind: engine.Refreshed, Err: errLost})
		return
	}
	events, highest := s.disk.events(), uint64(len(s.disk))
	s.printf("%d: refresh to %d", n.name, highest)
	n.inputs = append(n.inputs, func() {
		in := engine.Input{Kind: engine.Refreshed, Recovery: engine.Recovery{SequenceNr: highest, Time: s.now}}
		if highest > n.machine.SequenceNr() {
			s.hits["refresh finds events"]++
			s.writers++
			n.agg.state, n.writer = events, fmt.Sprintf("w%d", s.writers)
			in.Recovery.Writer = n.writer
		}
		n.step(in)
	})
}

// answer records an answer, and checks that it may leave now.
func (n *node) answer(a engine.Answer) {
	s := n.sim
	m, ok := a.Env.Message.(message)
	if !ok {
		return
	}
	c := s.calls[m.name]
	if c.state == left {
		return
	}
	got := fmt.Sprint(a.Value)
	if a.Err != nil {
		got = "error " + describe(a.Err)
	}
	s.printf("%d: answer %s: %s", n.name, m.name, got)
	if strings.Contains(got, "unknown") && !n.killed {
		s.hits["answer unknown"]++
		if s.deletions == 0 {
			s.errorf("the outcome of %s is unknown, and no record is deleted", m.name)
		}
	}
	if before, twice := s.answers[m.name]; twice {
		s.errorf("%s is answered twice: %q and %q", m.name, before, got)
	}
	s.answers[m.name] = got
	if a.Err == nil && !s.async {
		n.released(m.name, got)
	}
}

// released checks the value of a reply: all events in it are stored, and it contains all events
// that were acknowledged when the command was sent.
func (n *node) released(name, value string) {
	s := n.sim
	stored := s.disk.events()
	seen := strings.Fields(value)
	if len(seen) > len(stored) || !slices.Equal(seen, stored[:len(seen)]) {
		s.errorf("the answer to %s is %q, but the stored events are %q", name, value, strings.Join(stored, " "))
	}
	if !s.staleReads && len(seen) < s.ackedAt[name] {
		s.errorf("the answer to %s is %q, want at least the %d events that were acknowledged before", name, value, s.ackedAt[name])
	}
	s.acked = max(s.acked, len(seen))
}

// farewell returns the Stopping signal of every second instance.
func (n *node) farewell() *engine.Envelope {
	if n.sim.chance(50) {
		return nil
	}
	n.sim.hits["farewell"]++
	return &engine.Envelope{Message: farewell{}, Signal: true}
}

// finish drains a machine at the end.
func (n *node) finish() {
	n.step(engine.Input{Kind: engine.Drain, Env: n.farewell()})
	for range 1000 {
		can := n.possible(nil)
		if len(can) == 0 {
			break
		}
		can[n.sim.rng.IntN(len(can))]()
	}
	if n.machine.Resting() {
		n.sim.errorf("%d: not stopped after a drain", n.name)
	}
}

// generate draws the commands of a run.
func (s *simulation) generate(count int, kinds []string) {
	for i := range count {
		name := fmt.Sprintf("c%d", i)
		text := kinds[s.rng.IntN(len(kinds))]
		text = strings.ReplaceAll(text, "@", name+".")
		text = strings.ReplaceAll(text, "#", fmt.Sprintf("c%d", s.rng.IntN(count)))
		s.commands = append(s.commands, message{name, parse(text)})
		s.plain[name] = strings.Count(text, "persist")+strings.Count(text, "async(") <= 1 && !strings.Contains(text, "then")
	}
}
