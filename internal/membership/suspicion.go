// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// livenessCheck is the state of a node that was suspended and is connected again. Other members may
// have downed the node in this time, and may run its singletons and shards. The node repeatedly
// sends a LivenessQuery to all members that may be alive, and resumes when
//
//   - all reachable members have replied with a LivenessReply, and this node has the whole state of
//     each of them, so that it has also sent requests to the members in these states; and
//   - one of them, a full member, was not disconnected itself. This member belongs to the part of the
//     cluster that has continued, so this node is a member there. Alternatively, all members that are
//     neither Down nor Exiting have replied.
//
// Replies of members that were disconnected themselves are not sufficient while any member is
// silent: they may have been disconnected together with this node and downed by the silent members.
// The replies are sufficient once the silent members are down. Connectivity defines whether the
// present members may decide to down the silent members. Thus all members resume after an outage of
// the broker for all of them. If one of them crashed during the outage, the others resume after it
// was downed. A node that reaches no member with evidence stays suspended and finally ends.
type livenessCheck struct {
	open bool
	// nr distinguishes the replies to this check from replies to earlier checks.
	nr uint64
	// by are the members that have replied, sorted.
	by []confirmation
	// missing is how many reachable members have not replied.
	missing int
	// rounds counts the rounds of requests.
	rounds int
}

type confirmation struct {
	node    identity.Node
	absence Absence
	// known: this node has received the whole state of the confirming member.
	known bool
}

const maxProbes = 128

// probe asks the members that have not replied, and resumes when the membership is proven.
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
	if len(ask) == 0 { // a member is silent, and the others may have new evidence since their replies
		ask = away
	}
	msg := AppendMessage(nil, LivenessQuery{m.doubts.nr, m.digest()})
	for _, n := range ask[:min(maxProbes, len(ask))] {
		m.sendData(n, KindLivenessQuery, msg)
	}
	m.doubts.rounds++
	if m.doubts.rounds%20 == 0 {
		m.log(Warn, "membership is not confirmed yet", Attr{"rounds", m.doubts.rounds},
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

func (m *Machine) livenessQuery(from identity.Node, msg LivenessQuery) {
	if isGone(m.gossip.Member(from).Status) || isGone(m.me().Status) {
		m.sendState(from)
		return
	}
	m.send(from, LivenessReply{msg.Nr, m.absence()})
	if msg.Version == m.digest() {
		m.sendDigests(from)
	} else {
		m.sendVersions(from)
	}
}

func (m *Machine) livenessReply(from identity.Node, msg LivenessReply) {
	if !m.doubts.open || msg.Nr != m.doubts.nr {
		m.drop(DropUnexpected)
		return
	}
	i, found := m.doubts.find(from)
	if !found {
		m.doubts.by = slices.Insert(m.doubts.by, i, confirmation{node: from})
	}
	m.doubts.by[i].absence = msg.Absence
	if m.doubts.by[i].known && msg.Absence == Present {
		m.resume()
	}
}

// confirmedBy records that this node has the whole state of another member, and that this node is a
// member in that state.
func (m *Machine) confirmedBy(by identity.Node) {
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

func (d *livenessCheck) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(d.by, n, func(v confirmation, n identity.Node) int { return v.node.Compare(n) })
}

// resume resumes hosting if the membership is proven. It returns true if no more requests are
// needed.
func (m *Machine) resume() bool {
	me := m.me()
	if me.Status == identity.Down { // this node is about to stop
		m.doubts.open = false
		return true
	}
	if m.overdue() {
		return false
	}
	// Members that are unreachable now may have been disconnected and downed since they confirmed.
	m.doubts.by = slices.DeleteFunc(m.doubts.by, func(v confirmation) bool {
		i, found := findMember(m.gossip.Members(), v.node)
		return !found || m.cache.unreachable.has(i)
	})
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
	m.link.suspended, m.link.gone = false, false
	m.timers[timerGiveUp] = Never
	m.log(Info, "membership is confirmed: hosting resumes")
	m.live(Resumed)
	if !m.undecided.open {
		m.undecided.since = Never
	}
	m.updateUndecided()
	return true
}

// undecided measures how long a downing decision has been pending. Members that cannot reach this
// node down it after a time that they measure themselves. A pause, a lost connection or another
// missing member may restart the timer of this node, but not the timers of these members. Therefore
// this node measures from the last moment at which all members agreed that all are reachable. Only
// such an agreement, or a decision about all unreachable members, resets the timer.
type undecided struct {
	// since is the time when a member first was unreachable, or of the last heartbeat before this
	// node was disconnected. It is Never while all members agree that all are reachable.
	since time.Duration
	// shown is the time at which a partition that began while this node was disconnected has become
	// visible. Earlier observations are not evidence.
	shown time.Duration
	open  bool
}

// updateUndecided updates whether a decision is pending. It is called when members, reachability,
// the seen set or this node's connection change.
func (m *Machine) updateUndecided() {
	u := &m.undecided
	if m.phase != member {
		return
	}
	m.updateLimits()
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
	m.timers[timerUndecided] = Never
	switch {
	case u.since == Never, m.link.suspended, m.s.UndecidedAfter == 0:
	case u.open:
		m.timers[timerUndecided] = u.since + m.undecidedAfter()
	case m.now < u.shown:
		m.timers[timerUndecided] = u.shown
	}
	if was && !u.open && m.link.suspended && m.s.UndecidedAfter > 0 {
		// The other side may have decided to down this node, or may be about to decide it. The next
		// round of requests checks this.
		m.doubts = livenessCheck{open: true, nr: m.doubts.nr + 1}
	}
}

// updateLimits computes the limits for the number of members that may host. Joining members do not
// count, because the side that continues may not have received them. The other side counts all
// members, so its times are not shorter than those of this node.
func (m *Machine) updateLimits() {
	if m.cfg.Limits == nil {
		return
	}
	n := 0
	for _, o := range m.gossip.Members() {
		if maySurvive(o) {
			n++
		}
	}
	if n == m.hosting {
		return
	}
	m.hosting = n
	m.s.limit(m.cfg.Limits(n))
	if m.link.state == linkDown && !m.link.suspended {
		m.soon(timerLink, max(m.now, m.link.heard+m.s.SuspendAfter))
	}
}

func (m *Machine) checkUndecided() {
	if m.phase == member && !m.link.suspended && m.overdue() {
		m.count.TimedOut[TimeoutUndecided]++
		m.suspend("no downing decision about unreachable members in time, suspending this node", m.now-m.undecided.since)
	}
	m.updateUndecided()
}

// overdue reports whether other members may have decided by now and may start this node's
// singletons and shards.
func (m *Machine) overdue() bool {
	u := &m.undecided
	return m.s.UndecidedAfter > 0 && u.open && u.since != Never && m.now-u.since >= m.undecidedAfter()
}

// undecidedAfter returns how long a decision may be pending. A leaving node becomes Exiting as soon
// as all members have seen that it leaves. From then on the other members wait only for the removal
// margin.
func (m *Machine) undecidedAfter() time.Duration {
	if me := m.me(); me != nil && (me.Status == identity.Leaving || me.Status == identity.Exiting) {
		return m.s.LeavingUndecidedAfter
	}
	return m.s.UndecidedAfter
}

func (m *Machine) allHaveSeen() bool {
	for i, o := range m.gossip.Members() {
		if maySurvive(o) && !m.gossip.seen.has(i) {
			return false
		}
	}
	return true
}

// maySurvive reports whether a member may be on the side of a partition that continues without this
// node. A side without a member that was Up does not continue: see package splitbrain. If the other
// side has made a member Up that is not Up here, its leader is missing as well.
func maySurvive(o *identity.Member) bool { return !isGone(o.Status) && o.UpNumber != identity.NeverUp }
