// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package groups keeps the table of the groups of a role: for each group, the nodes of its numbered
// instances.
//
// The oldest node with the role coordinates: it alone changes the table. It changes the table only
// if the membership has converged, and if every member with the role has reported that it has the
// current table. Each change is hence known to all nodes before the next one is made:
//
//	nodes --report--> coordinator --update--> nodes --report--> ...
//
// The table has no store. A new coordinator first receives a report, with the table, of every
// member with the role, and continues with the latest table.
//
// An instance of an ordinary group moves without a gap: the new instance is ready before the old
// one ends. An exclusive instance ends before it starts elsewhere; after the removal of its node it
// starts elsewhere when the removal margin has passed. A node that is suspended or removed ends its
// exclusive instances.
package groups

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Config configures a Machine. All fields are required.
type Config struct {
	Self identity.Node
	Role string
	// RetryInterval is the interval at which unacknowledged messages are repeated and loads are
	// reported.
	RetryInterval time.Duration
	// ScaleAfter is how long the load must be too high or too low before the number of instances
	// changes.
	ScaleAfter time.Duration
	// RemovalMargin returns how long instances of a removed node may still run, for a number of
	// members.
	RemovalMargin func(members int) time.Duration
}

// Input is an input of a step.
type Input interface{ input() }

type (
	// Members is the membership as the node sees it. Ended reports that the node is no member and
	// does not become one.
	Members struct {
		Members           []identity.Member
		Unreachable, Seen []identity.Node
		Suspended, Ended  bool
	}
	// Declare replaces the groups in which the node takes part, sorted by name.
	Declare struct{ Groups []Declaration }
	// Received is a message of another node.
	Received struct {
		From identity.Node
		Data []byte
	}
	// StartCoordinator starts the coordinator on this node.
	StartCoordinator struct{}
	// StopCoordinator stops it.
	StopCoordinator struct{}
	// Ready reports that an instance receives messages.
	Ready struct{ Instance Instance }
	// Ended reports that an instance has ended after a Stop.
	Ended struct{ Instance Instance }
	// Load reports the load of an instance in thousandths.
	Load struct {
		Instance Instance
		Load     int
	}
	// Leave moves the instances of this node to other nodes.
	Leave struct{}
	// Tick has no content.
	Tick struct{}
)

func (Members) input()          {}
func (Declare) input()          {}
func (Received) input()         {}
func (StartCoordinator) input() {}
func (StopCoordinator) input()  {}
func (Ready) input()            {}
func (Ended) input()            {}
func (Load) input()             {}
func (Leave) input()            {}
func (Tick) input()             {}

// Effects are the results of a step, in the order in which the driver applies them.
type Effects struct {
	// Table reports that Table returns another table.
	Table bool
	// Stop are instances to stop. Report the end of each with Ended.
	Stop []Instance
	// Start are instances to start.
	Start []Start
	// Send are messages for other nodes, sent at most once.
	Send []Message
	// Malformed is set if a received message cannot be decoded.
	Malformed error
}

// Start is an instance to start. Count is the number of instances of the group.
type Start struct {
	Instance

	Count int
}

// Message is a message for another node.
type Message struct {
	To   identity.Node
	Data []byte
}

// Machine is the state of a node. It is not safe for concurrent use.
type Machine struct {
	cfg       Config
	members   []identity.Member
	self      *identity.Member // nil before the node is a member
	converged bool
	suspended bool
	ended     bool
	preparing bool                            // the whole cluster is about to stop, and instances no longer move
	since     time.Duration                   // time of the first membership
	removed   map[identity.Node]time.Duration // when instances of removed nodes have certainly ended
	out       *Effects
	moved     bool // instances may have to start or stop

	table      Table
	groups     []Declaration
	running    map[Instance]*local
	leaving    bool
	seq        uint64 // last report
	acked      uint64 // last report that the coordinator has handled
	leaveSeq   uint64 // first report with leaving
	declareSeq uint64 // first report with the current groups
	latest     Version
	accepted   Version // term of the last coordinator
	reportAt   time.Duration
	loadAt     time.Duration

	leader *coordinator // nil unless this node coordinates
}

// local is an instance that runs on this node.
type local struct {
	ready, stopping bool
	load            int
}

// never is a time that does not come.
const never = time.Duration(1<<63 - 1)

// New returns the machine of a node.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, removed: map[identity.Node]time.Duration{}, running: map[Instance]*local{}, reportAt: never, loadAt: never}
}

// Table returns the table of the node.
func (m *Machine) Table() *Table { return &m.table }

// Coordinator returns the node that coordinates, as this node sees it. It is zero if there is none.
func (m *Machine) Coordinator() identity.Node {
	if m.leader != nil {
		return m.cfg.Self
	}
	if at := m.accepted.Node; m.isPresent(at) {
		return at
	}
	var oldest *identity.Member
	for i := range m.members {
		if o := &m.members[i]; m.canCoordinate(o) && o.Status != identity.Exiting && (oldest == nil || membership.CompareAge(o, oldest) < 0) {
			oldest = o
		}
	}
	if oldest == nil {
		return identity.Node{}
	}
	return oldest.Node
}

// canCoordinate reports whether a member has the role and was Up.
func (m *Machine) canCoordinate(o *identity.Member) bool {
	return o.HasRole(m.cfg.Role) && o.UpNumber != identity.NeverUp && o.Status != identity.Joining && o.Status != identity.WeaklyUp && o.Status != identity.Down
}

// isPresent reports whether a node is a member that is not Down. An Exiting node takes part: it leaves
// when its instances have moved.
func (m *Machine) isPresent(n identity.Node) bool {
	o := membership.Lookup(m.members, n)
	return o != nil && o.Status != identity.Down
}

// Next returns the time of the next Tick.
func (m *Machine) Next() time.Duration {
	at := min(m.reportAt, m.loadAt)
	if m.leader != nil {
		at = min(at, m.leader.next())
	}
	return at
}

// Drained reports whether a leaving node has no instances, and gets none.
func (m *Machine) Drained() bool {
	if m.ended || m.self == nil || m.preparing {
		return len(m.running) == 0
	}
	if len(m.running) > 0 || !m.leaving {
		return false
	}
	return !m.hosts() || m.acked >= m.leaveSeq && m.latest == m.table.Version && !m.table.names(m.cfg.Self)
}

// hosts reports whether the node can run instances.
func (m *Machine) hosts() bool {
	return slices.ContainsFunc(m.groups, func(g Declaration) bool { return g.Hosts })
}

// Step handles an input.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	var out Effects
	m.out = &out
	switch in := in.(type) {
	case Members:
		m.updateMembers(now, &in)
	case Declare:
		m.groups, m.moved = in.Groups, true
		m.changed(now)
		m.declareSeq = m.seq
	case Received:
		m.receive(now, &in)
	case StartCoordinator:
		m.leader = newCoordinator(m, now)
		m.changed(now)
	case StopCoordinator:
		m.leader = nil
		m.changed(now)
	case Ready:
		if at := m.running[in.Instance]; at != nil && !at.ready {
			at.ready = true
			m.changed(now)
		}
	case Ended:
		delete(m.running, in.Instance)
		m.moved = true
		m.changed(now)
	case Load:
		if at := m.running[in.Instance]; at != nil {
			at.load = min(max(in.Load, 0), maxLoad)
		}
	case Leave:
		if !m.leaving {
			m.leaving, m.leaveSeq, m.moved = true, m.seq+1, true
			m.changed(now)
		}
	case Tick:
	}
	if now >= m.loadAt {
		m.changed(now)
	}
	for again := true; again; {
		if m.moved {
			m.control(now)
		}
		if now >= m.reportAt {
			m.sendReport(now)
		}
		again = m.leader != nil && m.leader.step(now)
	}
	m.out = nil
	return out
}

func (m *Machine) updateMembers(now time.Duration, in *Members) {
	old, before := m.members, m.Coordinator()
	m.members, m.suspended, m.ended, m.moved = in.Members, in.Suspended, in.Ended, true
	joined := m.self == nil
	m.self = membership.Lookup(m.members, m.cfg.Self)
	if joined = joined && m.self != nil; joined {
		m.since = now
	}
	if m.self != nil && (m.self.Status == identity.PreparingForShutdown || m.self.Status == identity.ReadyForShutdown) {
		m.preparing = true // also when the node is Exiting later
	}
	margin := m.cfg.RemovalMargin(max(len(old), len(m.members)))
	for was, is := range membership.Pairs(old, m.members, membership.CompareNodes) {
		if is == nil {
			m.removed[was.Node] = now + margin
		}
	}
	maps.DeleteFunc(m.removed, func(n identity.Node, until time.Duration) bool { return now > until && !m.table.names(n) })
	m.converged = len(in.Unreachable) == 0
	for i := range m.members {
		o := &m.members[i]
		if _, seen := slices.BinarySearchFunc(in.Seen, o.Node, identity.Node.Compare); !seen && o.Status != identity.Exiting && o.Status != identity.Down {
			m.converged = false
		}
	}
	if m.leader != nil {
		m.leader.membersChanged(now)
	}
	if joined || m.Coordinator() != before {
		m.changed(now)
	}
}

// endsAt returns when the instances of a removed node have certainly ended.
func (m *Machine) endsAt(n identity.Node) time.Duration {
	if until, known := m.removed[n]; known {
		return until
	}
	return m.since + m.cfg.RemovalMargin(len(m.members)) // the node was removed before this node joined
}

// changed makes another report due.
func (m *Machine) changed(now time.Duration) {
	m.seq++
	m.reportAt = now
}

// control starts and stops instances according to the table.
func (m *Machine) control(now time.Duration) {
	m.moved = false
	inside := m.self != nil && m.self.Status != identity.Down && !m.ended && (!m.leaving || !m.preparing)
	wanted := map[Instance]bool{}
	for i := range m.groups {
		g := m.table.Find(m.groups[i].Name)
		if g == nil || !m.groups[i].Hosts || !inside || g.Exclusive && m.suspended {
			continue
		}
		for nr := range g.Slots {
			if !g.runs(&g.Slots[nr], m.cfg.Self) {
				continue
			}
			id := Instance{g.Name, nr}
			wanted[id] = true
			if m.running[id] == nil {
				m.running[id] = &local{}
				m.out.Start = append(m.out.Start, Start{id, g.Count})
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.running), compareInstances) {
		at := m.running[id]
		if wanted[id] || at.stopping {
			continue
		}
		if i := slices.IndexFunc(m.out.Start, func(s Start) bool { return s.Instance == id }); i >= 0 {
			// The table has changed in this step, before the driver has started the instance.
			m.out.Start = slices.Delete(m.out.Start, i, i+1)
			delete(m.running, id)
			m.changed(now)
			continue
		}
		at.stopping = true
		m.out.Stop = append(m.out.Stop, id)
	}
}

// sendReport reports the state of the node to the coordinator, and repeats the report until it is
// acknowledged.
func (m *Machine) sendReport(now time.Duration) {
	m.reportAt, m.loadAt = never, never
	if m.self == nil || m.ended || len(m.groups) == 0 {
		return
	}
	for _, g := range m.groups {
		if g.Max > g.Min && len(m.running) > 0 {
			m.loadAt = now + m.cfg.RetryInterval
		}
	}
	to := m.Coordinator()
	if to == m.cfg.Self {
		if m.leader != nil {
			m.acked = m.seq
			p := m.report(false)
			p.declared, p.groups = true, m.groups
			m.leader.receive(now, m.cfg.Self, p)
			return
		}
		to = identity.Node{}
	}
	m.reportAt = now + m.cfg.RetryInterval
	if !to.IsZero() {
		m.out.Send = append(m.out.Send, Message{to, encodeReport(m.report(to != m.table.Version.Node))})
	}
}

// report returns the report of the node, with the table if the coordinator may not have it.
func (m *Machine) report(full bool) *report {
	p := &report{role: m.cfg.Role, seq: m.seq, version: m.table.Version, leaving: m.leaving, declared: m.acked < m.declareSeq, full: full}
	if p.declared {
		p.groups = m.groups
	}
	if full {
		p.table = m.table.Groups
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.running), compareInstances) {
		at := m.running[id]
		p.running = append(p.running, running{id, at.ready && !at.stopping, at.load})
	}
	return p
}

func (m *Machine) receive(now time.Duration, in *Received) {
	from := membership.Lookup(m.members, in.From)
	message, err := decode(in.Data)
	if err != nil {
		m.out.Malformed = err
		return
	}
	if from == nil {
		return
	}
	switch message := message.(type) {
	case *report:
		if m.leader != nil {
			m.leader.receive(now, in.From, message)
		}
	case *update:
		m.receiveUpdate(now, from, message)
	}
}

// receiveUpdate accepts the table of a coordinator. A coordinator is the oldest member with the
// role that is not about to leave; an older coordinator than the last one is outdated.
func (m *Machine) receiveUpdate(now time.Duration, from *identity.Member, u *update) {
	term := termOf(from)
	// The number of a removed coordinator can be assigned again, but only if no other node with the role
	// remains. A node without the role then gets tables that seem to be older than its own.
	follows := m.self != nil && !m.self.HasRole(m.cfg.Role)
	outdated := term.Compare(m.accepted) < 0 && (!follows || membership.Lookup(m.members, m.accepted.Node) != nil)
	if !m.canCoordinate(from) || outdated || m.leader != nil {
		return
	}
	for i := range m.members {
		if o := &m.members[i]; m.canCoordinate(o) && o.Status != identity.Leaving && o.Status != identity.Exiting && membership.CompareAge(o, from) < 0 {
			return
		}
	}
	if term != m.accepted {
		m.accepted = term
		m.changed(now)
	}
	if !u.known && m.acked >= m.declareSeq {
		m.changed(now)
		m.declareSeq = m.seq
	}
	if u.ack >= m.acked && u.ack <= m.seq {
		m.acked = u.ack
	}
	if u.version.Compare(m.latest) >= 0 {
		m.latest = u.version
	}
	next := u.version.Compare(m.table.Version) > 0 || follows && u.version.Node == from.Node && m.table.Version.Node != from.Node
	switch {
	case next && (u.base == m.table.Version || u.base == Version{}):
		from := &m.table
		if u.base == (Version{}) {
			from = &Table{}
		}
		m.setTable(from.merge(u.version, u.rows))
		m.changed(now)
	case u.version != m.table.Version:
		m.changed(now) // the coordinator sends an update for this version
	}
	if m.acked != m.seq {
		return
	}
	if m.reportAt = never; m.self != nil && !m.self.HasRole(m.cfg.Role) {
		m.reportAt = now + refreshFactor*m.cfg.RetryInterval // a new coordinator does not know this node
	}
}

// refreshFactor is how many RetryIntervals pass between two reports of a node without the role.
const refreshFactor = 5

func (m *Machine) setTable(t Table) {
	m.table, m.moved, m.out.Table = t, true, true
	if t.Version.Compare(m.latest) > 0 {
		m.latest = t.Version
	}
}

func termOf(o *identity.Member) Version {
	return Version{UpNumber: uint64(max(o.UpNumber, 0)), Node: o.Node}
}

// ErrRescaling is returned while the instances of a group end because their number changes.
var ErrRescaling = errors.New("sharding: the group is changing its number of instances")

// ErrNotCoordinator reports that this node does not coordinate the groups of the role.
var ErrNotCoordinator = errors.New("sharding: node does not coordinate the group")

// Rescale requests a number of instances of a group from the coordinator on this node. 0 means the
// configured number. The table shows when the request has been carried out. The request is lost
// with the coordinator: repeat it until then.
func (m *Machine) Rescale(group string, count int) error {
	switch g := m.table.Find(group); {
	case m.leader == nil:
		return ErrNotCoordinator
	case g == nil:
		return fmt.Errorf("%w: group %q is not in the table yet", ErrNotCoordinator, group)
	case g.Override != count && m.leader.ending[group]:
		return fmt.Errorf("group %q: %w", group, ErrRescaling)
	}
	m.leader.rescale[group] = count
	return nil
}

// Missing returns the members whose reports the coordinator on this node waits for.
func (m *Machine) Missing() (nodes []identity.Node) {
	if m.leader == nil {
		return nil
	}
	for _, n := range m.leader.must {
		if m.leader.isLagging(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Converged reports whether the membership has converged, as far as this node sees it.
func (m *Machine) Converged() bool { return m.converged && m.self != nil && !m.suspended && !m.ended }
