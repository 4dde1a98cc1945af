// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// doubts are what a node that was suspended and is connected again knows of
// whether it is still a member. Others may have given it up meanwhile, and host what it
// did. It asks all members that may live, again and again, and goes on when
//
//   - all that can be reached have vouched for it, at a version of the gossip that it
//     knows: so that whoever these know of was asked, too; and
//   - one of them, who is a full member, was not away itself: it is part of the
//     cluster that has gone on, and that has this node as a member. Or else
//     nobody is left out: all members that are neither Down nor Exiting have vouched.
//
// The word of those who were away themselves is not enough as long as anybody is
// silent: they may have been cut off as this node was, and given up by the
// silent ones. It is enough once the silent ones are down, and whether those who are here may
// decide that is what Standing says. So all go on after the broker was away for all; those who are
// left do so after one of them has crashed meanwhile and was downed; and a node
// that hears of nobody who could know stays suspended, and ends in the end.
type doubts struct {
	open bool
	// nr tells the answers to this doubt from those to another.
	nr uint64
	// by are those who have answered. Sorted.
	by []voucher
	// missing is how many of those that can be reached have not vouched.
	missing int
	// rounds counts how often it was asked.
	rounds int
}

// voucher is a member that takes this node for one.
type voucher struct {
	node    identity.Node
	absence Absence
	// known: this node knows all that the voucher knew.
	known bool
}

// maxProbes bounds how many members are asked at a time.
const maxProbes = 128

// doubt begins to ask whether this node is still a member.
func (m *Machine) doubt() {
	m.doubts = doubts{open: true, nr: m.doubts.nr + 1}
	m.probe()
}

// probe asks those that have not vouched for this node, and lets it go on if that
// is proven.
func (m *Machine) probe() {
	if !m.doubts.open || m.overdue() && !m.link.gone || m.resume() {
		return
	}
	var unknown, away []identity.Node
	for i, o := range m.gossip.Members() {
		at, found := m.doubts.find(o.Node)
		switch {
		case o.Node == m.self || isGone(o.Status) || m.cache.unreachable.has(i):
		case !found || !m.doubts.by[at].known:
			unknown = append(unknown, o.Node)
		case countsForConvergence(o.Status):
			away = append(away, o.Node)
		}
	}
	m.doubts.missing = len(unknown)
	ask := unknown
	if len(ask) == 0 { // somebody is silent, and these may know by now whether they are members
		ask = away
	}
	msg := AppendMessage(nil, Doubt{m.doubts.nr, m.digest()})
	for _, n := range ask[:min(maxProbes, len(ask))] {
		m.sendData(n, KindDoubt, msg)
	}
	m.doubts.rounds++
	if m.doubts.rounds%20 == 0 {
		m.log(Warn, "this node does not know yet whether it is still a member", Attr{"rounds", m.doubts.rounds},
			Attr{"have_not_vouched", firstOf(unknown, 10)}, Attr{"unreachable", firstOf(m.cache.others, 10)})
	}
}

func firstOf(nodes []identity.Node, most int) string {
	var s []string
	for _, n := range nodes[:min(most, len(nodes))] {
		s = append(s, n.String())
	}
	return strings.Join(s, ", ")
}

// doubtful answers another member that does not know whether it is one.
func (m *Machine) doubtful(from identity.Node, msg Doubt) {
	if isGone(m.gossip.Member(from).Status) || isGone(m.me().Status) {
		m.sendState(from)
		return
	}
	m.send(from, Vouch{msg.Nr, m.absence()})
	if msg.Version == m.digest() {
		m.sendDigests(from)
	} else {
		m.sendVersions(from)
	}
}

// vouch notes that a member takes this node for one. What that member knows is on
// its way.
func (m *Machine) vouch(from identity.Node, msg Vouch) {
	if !m.doubts.open || msg.Nr != m.doubts.nr {
		m.drop(DropUnexpected)
		return
	}
	i, found := m.doubts.find(from)
	if !found {
		m.doubts.by = slices.Insert(m.doubts.by, i, voucher{node: from})
	}
	m.doubts.by[i].absence = msg.Absence
	if m.doubts.by[i].known && msg.Absence == Present {
		m.resume()
	}
}

// proved notes that this node knows all that a member does, which has this node as
// a member.
func (m *Machine) proved(by identity.Node) {
	if !m.doubts.open {
		return
	}
	if i, found := m.doubts.find(by); found && !m.doubts.by[i].known {
		m.doubts.by[i].known = true
		if m.doubts.missing--; m.doubts.missing <= 0 {
			m.resume()
		}
	}
}

func (d *doubts) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(d.by, n, func(v voucher, n identity.Node) int { return v.node.Compare(n) })
}

// resume lets this node go on if it is proven to be a member, and reports whether
// there is nothing to ask any more.
func (m *Machine) resume() bool {
	me := m.me()
	if me.Status == Down { // it is going to stop
		m.doubts.open = false
		return true
	}
	if m.overdue() {
		return false
	}
	m.forgetVouchers()
	certain, all := false, true
	for i, o := range m.gossip.Members() {
		if o.Node == m.self || isGone(o.Status) {
			continue
		}
		at, found := m.doubts.find(o.Node)
		switch {
		case found && m.doubts.by[at].known:
			certain = certain || m.doubts.by[at].absence == Present && countsForConvergence(o.Status)
		case !m.cache.unreachable.has(i):
			return false
		default:
			all = false
		}
	}
	if !certain && !all {
		return false
	}
	m.doubts.open, m.doubts.by = false, nil
	m.link.suspended = false
	m.isSure()
	m.log(Info, "this node is still a member: it may host again")
	m.live(Resumed)
	if !m.undecided.open {
		m.undecided.since = Never
	}
	m.weigh()
	return true
}

// forgetVouchers forgets what those said who can't be reached any more: they may
// have been cut off, and given up, since.
func (m *Machine) forgetVouchers() {
	m.doubts.by = slices.DeleteFunc(m.doubts.by, func(v voucher) bool {
		i, found := findMember(m.gossip.Members(), v.node)
		return !found || m.cache.unreachable.has(i)
	})
}

// undecided is for how long it may have been open who goes on and who is given up. Others who can't
// reach this node give it up by a time of theirs, which this node can't see, and which does not begin anew
// when its own does: after a pause, a lost link, or because somebody else is missing
// too. So it counts from when all members agreed last that all of them can be reached, and nothing
// but that agreement, or a decision about everybody who can't be reached, lets it begin anew.
type undecided struct {
	// since is when not all could be reached first, or when this node heard itself last before it was disconnected. Never, if
	// all agree that all is well.
	since time.Duration
	// shown is when a cut that began while this node was disconnected has surely shown itself: what others
	// have seen before tells nothing.
	shown time.Duration
	open  bool
}

// weigh looks whether it is open who goes on. It is called when the members, who reaches them or who
// has seen that have changed, and this node's own link.
func (m *Machine) weigh() {
	u := &m.undecided
	if m.phase != member {
		return
	}
	was, cut := u.open, m.link.state == linkDown
	u.open = cut || m.cache.open
	switch {
	case cut:
		u.since = min(u.since, m.link.heard)
	case u.open:
		u.since = min(u.since, m.now)
	case u.since != Never && m.now >= u.shown && m.allHaveSeen():
		u.since = Never
	}
	switch {
	case u.since == Never, m.link.suspended, m.s.UndecidedAfter == 0:
		m.timers[timerUndecided] = Never
	case u.open:
		m.timers[timerUndecided] = u.since + m.undecidedAfter()
	case m.now < u.shown:
		m.timers[timerUndecided] = u.shown
	default:
		m.timers[timerUndecided] = Never
	}
	if was && !u.open && m.link.suspended && m.s.UndecidedAfter > 0 {
		// It may have been decided against this node, and it may be in the middle of a decision that downs it
		// last: it begins to ask in the next round.
		m.doubts = doubts{open: true, nr: m.doubts.nr + 1}
	}
}

// checkUndecided suspends this node if it has been open for too long who goes on.
func (m *Machine) checkUndecided() {
	if m.phase == member && !m.link.suspended && m.overdue() {
		m.count.TimedOut[TimeoutUndecided]++
		m.suspend("nobody has decided in time about members that can't be reached: this node stops hosting", m.now-m.undecided.since)
	}
	m.weigh()
}

// overdue reports whether others may have decided by now, and start what this node hosts.
func (m *Machine) overdue() bool {
	u := &m.undecided
	return m.s.UndecidedAfter > 0 && u.open && u.since != Never && m.now-u.since >= m.undecidedAfter()
}

// undecidedAfter is for how long it may be open who goes on. Whoever leaves is Exiting as soon as all have seen that, and then
// others wait for nothing but the margin.
func (m *Machine) undecidedAfter() time.Duration {
	if me := m.me(); me != nil && (me.Status == Leaving || me.Status == Exiting) {
		return m.s.LeavingUndecidedAfter
	}
	return m.s.UndecidedAfter
}

// reconnected gives a cut that this node could not see time to show itself: twice as long as it takes to
// find a member unreachable and to say so.
func (m *Machine) reconnected() {
	m.undecided.shown = m.now + 2*(m.s.ExpectedResponseAfter+m.s.HeartbeatInterval+m.s.AcceptablePause+m.s.ReaperInterval+m.s.GossipInterval)
	m.weigh()
}

// findOpen finds out whether somebody can't be reached, this node included, who is neither Down
// nor Exiting.
func (m *Machine) findOpen() {
	m.cache.open = false
	m.cache.unreachable.each(func(i int) {
		m.cache.open = m.cache.open || !isGone(m.gossip.members[i].Status)
	})
}

// allHaveSeen reports whether all who may live have seen what this node knows.
func (m *Machine) allHaveSeen() bool {
	for i, o := range m.gossip.Members() {
		if !isGone(o.Status) && !m.gossip.seen.has(i) {
			return false
		}
	}
	return true
}
