// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

type watch struct {
	monitors []*monitor // sorted by node
	nr       uint64     // of the last heartbeat
	floor    uint64     // replies to heartbeats with lower numbers are ignored
	last     time.Duration
}

type monitor struct {
	node     identity.Node
	detector *Detector
	expect   time.Duration // when the first reply is due
	heard    bool          // the node has replied
	former   bool          // no longer selected, but monitored until it replies
}

func (w *watch) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(w.monitors, n, func(o *monitor, n identity.Node) int { return o.node.Compare(n) })
}

// remonitor recomputes the monitored members. A member that is no longer selected but does not
// reply stays monitored until it replies or is removed from the cluster.
func (m *Machine) remonitor() {
	wanted := monitored(m.gossip.Members(), m.cache.unreachable, m.self, m.breadth())
	next := make([]*monitor, 0, len(wanted))
	for _, n := range wanted {
		if i, found := m.watch.find(n); found {
			m.watch.monitors[i].former = false
			next = append(next, m.watch.monitors[i])
		} else {
			next = append(next, &monitor{node: n, detector: NewDetector(&m.s), expect: Never})
		}
	}
	for _, o := range m.watch.monitors {
		if _, found := slices.BinarySearchFunc(wanted, o.node, identity.Node.Compare); found || m.gossip.Member(o.node) == nil || o.detector.Available(m.now) {
			continue
		}
		o.former = true
		next = append(next, o)
	}
	slices.SortFunc(next, func(a, b *monitor) int { return a.node.Compare(b.node) })
	m.watch.monitors = next
}

// breadth returns how many members this node monitors. If this node finds MonitoredBy or more
// members unreachable, it is on the small side of a partition, and monitors all members. If the
// node found the other members unreachable only a few at a time, the view would not become stable
// in time for downing. Then this side would be downed even if it should survive.
func (m *Machine) breadth() int {
	silent := 0
	m.gossip.Reachability().of(m.self, func(rec Record) {
		if rec.Reach == Unreachable {
			silent++
		}
	})
	if silent >= m.s.MonitoredBy {
		return len(m.gossip.Members())
	}
	return m.s.MonitoredBy
}

func (m *Machine) heartbeat() {
	interval := m.s.HeartbeatInterval
	if m.watch.last > 0 && m.now-m.watch.last >= 2*interval {
		m.log(Warn, "failure detector: heartbeats are sent late, the process was paused or lacks CPU time", Attr{"late", m.now - m.watch.last - interval})
	}
	m.watch.last = m.now
	m.again(timerHeartbeat, interval)
	if m.lone {
		m.claim()
	}
	m.watch.nr++
	data := AppendMessage(nil, Heartbeat{m.watch.nr, m.now})
	for _, o := range m.watch.monitors {
		if !o.detector.Monitored() && o.expect == Never {
			o.expect = m.now + m.s.ExpectedResponseAfter
			m.soon(timerExpect, o.expect)
		}
		m.sendData(o.node, KindHeartbeat, data)
	}
}

func (m *Machine) expect() {
	for _, o := range m.watch.monitors {
		switch {
		case o.detector.Monitored():
		case o.expect > m.now:
			m.soon(timerExpect, o.expect)
		case m.link.state == linkUp:
			m.count.TimedOut[TimeoutFirstResponse]++
			o.detector.Beat(m.now)
		default:
			o.expect = Never // restarts with the next heartbeat
		}
	}
}

func (m *Machine) heartbeatReply(from identity.Node, msg HeartbeatReply) {
	i, found := m.watch.find(from)
	if !found || m.link.state != linkUp || msg.Nr < m.watch.floor || msg.Nr > m.watch.nr {
		m.drop(DropUnexpected)
		return
	}
	o := m.watch.monitors[i]
	if gap := o.detector.Gap(m.now); gap >= m.s.AcceptablePause*2/3 && o.detector.Available(m.now) {
		m.log(Warn, "failure detector: long interval between heartbeats", Attr{"member", from}, Attr{"gap", gap})
	}
	o.detector.Beat(m.now)
	o.heard = true
	if o.former {
		m.watch.monitors = slices.Delete(slices.Clone(m.watch.monitors), i, i+1)
	}
}

func (m *Machine) reap() {
	m.again(timerReaper, m.s.ReaperInterval)
	if m.link.state != linkUp || len(m.gossip.Members()) < 2 {
		return
	}
	var changed []Observation
	reach := m.gossip.Reachability()
	for _, o := range m.watch.monitors {
		if reach.By(m.self, o.node) == Reachable && !o.detector.Available(m.now) {
			m.count.TimedOut[TimeoutHeartbeat]++
			m.log(Warn, "member is unreachable", Attr{"member", o.node}, Attr{"phi", o.detector.Phi(m.now)})
			changed = append(changed, Observation{o.node, Unreachable})
		}
	}
	reach.of(m.self, func(rec Record) {
		if rec.Reach != Unreachable {
			return
		}
		if i, found := m.watch.find(rec.Subject); found {
			if o := m.watch.monitors[i]; !o.heard || !o.detector.Available(m.now) {
				return
			}
		}
		m.log(Info, "member is reachable again", Attr{"member", rec.Subject})
		changed = append(changed, Observation{rec.Subject, Reachable})
	})
	if len(changed) > 0 {
		m.change(Change{Observed: changed})
	}
	m.pingUnreachable()
}

// pingUnreachable sends a Ping to one of the members that this node finds unreachable. This node
// sends no gossip to such a member, and a member that has quarantined this node does not reply to
// the heartbeats of this node. Without the Ping, that member would never report the quarantine.
func (m *Machine) pingUnreachable() {
	var silent []identity.Node
	m.gossip.Reachability().of(m.self, func(rec Record) {
		if rec.Reach == Unreachable {
			silent = append(silent, rec.Subject)
		}
	})
	if len(silent) > 0 {
		n := silent[m.rand.IntN(len(silent))]
		m.send(identity.Node{Name: n.Name}, Ping{n})
	}
}

// Detector computes a suspicion level for a node that sends heartbeats. It is the phi accrual
// failure detector of Hayashibara, Défago, Yared and Katayama (2004), with the logistic
// approximation of the normal distribution. Intervals are in whole milliseconds.
//
// A Detector belongs to one monitored node. It is not safe for concurrent use. Times are on the
// monotonic clock of the observer.
type Detector struct {
	cfg     *Settings
	beaten  bool
	last    time.Duration
	gaps    []float64 // in milliseconds, a ring buffer once it is full
	oldest  int
	sum     float64
	squares float64
}

// NewDetector returns a detector without samples. It suspects no failure before the first
// heartbeat. The detector uses five settings, which must not change: Threshold, MaxSamples,
// MinStdDeviation, AcceptablePause and HeartbeatInterval. Without MinStdDeviation, very regular
// heartbeats would make the detector too sensitive. AcceptablePause is added to the mean interval.
// HeartbeatInterval is the assumed interval before the first sample.
func NewDetector(cfg *Settings) *Detector { return &Detector{cfg: cfg} }

// Beat records a heartbeat. An interval during which the node was suspected is not kept, so that
// one long pause does not make later long pauses look normal.
func (d *Detector) Beat(now time.Duration) {
	if !d.beaten {
		first := d.cfg.HeartbeatInterval.Milliseconds()
		deviation := first / 4
		d.add(float64(first - deviation))
		d.add(float64(first + deviation))
	} else if d.Available(now) {
		d.add(float64((now - d.last).Milliseconds()))
	}
	d.beaten, d.last = true, now
}

// Monitored reports whether there was a heartbeat.
func (d *Detector) Monitored() bool { return d.beaten }

// Gap returns the time since the last heartbeat, 0 before the first.
func (d *Detector) Gap(now time.Duration) time.Duration {
	if !d.beaten {
		return 0
	}
	return now - d.last
}

// Available reports whether phi is below the threshold.
func (d *Detector) Available(now time.Duration) bool { return d.Phi(now) < d.cfg.Threshold }

// Phi returns -log10 of the probability that an interval is longer than the current one. It is 0
// before the first heartbeat; it may be +Inf.
func (d *Detector) Phi(now time.Duration) float64 {
	if !d.beaten {
		return 0
	}
	n := float64(len(d.gaps))
	mean := d.sum / n
	variance := max(0, d.squares/n-mean*mean)
	deviation := max(math.Sqrt(variance), millis(d.cfg.MinStdDeviation))
	return phi(float64((now - d.last).Milliseconds()), mean+millis(d.cfg.AcceptablePause), deviation)
}

// phi returns the suspicion level after an interval, given the mean and the standard deviation of
// intervals.
func phi(gap, mean, deviation float64) float64 {
	y := (gap - mean) / deviation
	e := math.Exp(-y * (1.5976 + 0.070566*y*y))
	if gap > mean {
		return -math.Log10(e / (1 + e))
	}
	return -math.Log10(1 - 1/(1+e))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (d *Detector) add(gap float64) {
	if len(d.gaps) < d.cfg.MaxSamples {
		d.gaps = append(d.gaps, gap)
	} else {
		old := d.gaps[d.oldest]
		d.sum -= old
		d.squares -= old * old
		d.gaps[d.oldest] = gap
		d.oldest = (d.oldest + 1) % len(d.gaps)
	}
	d.sum += gap
	d.squares += gap * gap
}

// position returns the position of a node on the ring. UIDs are random, so neighbours on the ring
// are rarely close to each other in the network.
func position(n identity.Node) int32 { return int32(uint32(n.UID ^ n.UID>>32)) } //nolint:gosec // all 32 bits are meant

// around orders nodes by their clockwise distance from self.
func around(self identity.Node) func(a, b *identity.Member) int {
	ring := func(a, b identity.Node) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), a.Compare(b))
	}
	return func(a, b *identity.Member) int {
		wrappedA, wrappedB := ring(a.Node, self) < 0, ring(b.Node, self) < 0
		switch {
		case wrappedA == wrappedB:
			return ring(a.Node, b.Node)
		case wrappedA:
			return 1
		}
		return -1
	}
}

// monitored returns the nodes that self monitors, sorted. If there are at most count other members,
// it returns all of them. Otherwise it returns the next count reachable members on the ring.
// Unreachable members that the search passes are added while the result has fewer than count
// members.
func monitored(members []*identity.Member, unreachable bitmap, self identity.Node, count int) []identity.Node {
	if _, member := findMember(members, self); !member || count <= 0 {
		return nil
	}
	if count >= len(members)-1 {
		all := make([]identity.Node, 0, len(members)-1)
		for _, m := range members {
			if m.Node != self {
				all = append(all, m.Node)
			}
		}
		return all
	}
	// Selecting the nearest of both kinds avoids sorting all members.
	order := around(self)
	good, bad := make([]*identity.Member, 0, count+1), make([]*identity.Member, 0, count+1)
	for i, m := range members {
		if m.Node == self {
			continue
		}
		kind := &good
		if unreachable.has(i) {
			kind = &bad
		}
		if len(*kind) == count && order(m, (*kind)[count-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(*kind, m, order)
		*kind = slices.Insert(*kind, at, m)
		*kind = (*kind)[:min(count, len(*kind))]
	}
	chosen, reachable := make([]identity.Node, 0, 2*count), 0
	for reachable < count && len(good)+len(bad) > 0 {
		if len(good) == 0 || len(bad) > 0 && order(bad[0], good[0]) < 0 {
			if len(chosen) < count {
				chosen = append(chosen, bad[0].Node)
			}
			bad = bad[1:]
		} else {
			chosen = append(chosen, good[0].Node)
			good = good[1:]
			reachable++
		}
	}
	slices.SortFunc(chosen, identity.Node.Compare)
	return chosen
}
