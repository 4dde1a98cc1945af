// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// drain drains a node, and some time later restarts the node or cancels the drain, possibly before
// its end. One node is drained at a time, and others can take its shards.
func (d *sharding) drain(s *shardNode) {
	hosts := 0
	for _, other := range d.living() {
		if other.m.Drained() {
			return
		}
		if other != s && other.hosts() {
			hosts++
		}
	}
	if !s.hosts() || hosts < 2 || d.c.restarts {
		return
	}
	d.w.Logf("%v is drained", s.h.p.Node())
	s.drains++
	nr := s.drains
	d.delayWaysTo(s)
	s.schedule(shardcore.Leave{KeepRouting: true})
	s.after(maxLeaving, func() {
		if !s.m.Drained() || s.drains != nr {
			return
		}
		leavesInTime(s)
		if len(s.m.Hosted()) == 0 {
			d.hit("sharding", "drained")
		}
	})
	if d.rand.IntN(2) == 0 {
		s.after(d.between(time.Millisecond, maxLeaving+5*time.Second), s.undrain)
		return
	}
	s.after(maxLeaving+d.between(time.Second, 20*time.Second), s.restart)
}

// undrain cancels the drain of a node.
func (s *shardNode) undrain() {
	if s.m.Ending() || s.d.c.leaving[s.h.p.Node()] {
		return
	}
	s.d.hit("sharding", "undrained")
	s.d.w.Logf("%v accepts shards again, and has %d", s.h.p.Node(), len(s.m.Hosted()))
	s.step(shardcore.Undrain{})
}

// undrainedHosts checks that a node gets shards again after a canceled drain if there are enough.
// It returns a node that does not.
func (d *sharding) undrainedHosts() string {
	hosts := 0
	for _, s := range d.living() {
		if s.hosts() {
			hosts++
		}
	}
	for _, s := range d.living() {
		if s.drains > 0 && s.hosts() && len(s.m.Hosted()) == 0 && d.plan.Shards > hosts {
			return s.h.p.Node().String() + " was drained before, and has no shards"
		}
	}
	return ""
}

// hosts reports whether a node accepts shards, by its own state.
func (s *shardNode) hosts() bool {
	return !s.proxy && s.wrongSetting == "" && !s.m.Drained() && s.active() && s.h.up()
}

// restart ends the process of the node, which is then restarted.
func (s *shardNode) restart() {
	switch {
	case !s.h.alive():
	case s.d.c.undisturbedNow, s.wrongSetting != "" && !s.h.m.Member():
		s.after(5*time.Second, s.restart)
	case !s.h.m.Member():
		s.h.kill()
	default:
		s.d.c.leaving[s.h.p.Node()] = true
		s.h.submit(node.Membership{Input: membership.Leave{Node: s.h.p.Node()}})
	}
}

// delayWaysTo delays the links to a node that is about to leave, except from its coordinator, and
// returns the time before it leaves: messages in flight arrive late then.
func (d *sharding) delayWaysTo(s *shardNode) time.Duration {
	coord, known := s.m.Coordinator()
	if !d.plan.Calm || !known || s.m.LocalCoordinator() != nil || d.rand.IntN(3) == 0 { // its own coordinator would wait for the store
		return 0
	}
	name, by := s.h.p.Node().Name, d.between(100*time.Millisecond, 700*time.Millisecond)
	var from []string
	for _, other := range d.living() {
		if n := other.h.p.Node(); n.Name != name && n != coord && d.rand.IntN(4) > 0 {
			from = append(from, n.Name)
			d.w.Network.Late(n.Name, name, by)
		}
	}
	d.w.Logf("messages of %v to %s take %v longer", from, name, by)
	d.hit("sharding", "links to a leaving node are slow")
	d.w.After(maxLeaving, func() {
		for _, n := range from {
			d.w.Network.Late(n, name, 0)
		}
	})
	return d.between(0, time.Second)
}

// asks records a request to a coordinator.
func (s *shardNode) asks(k coordinator.Kind) {
	switch k {
	case coordinator.Register, coordinator.RegisterProxy, coordinator.GetHomes, coordinator.GracefulShutdown:
		if s.askedAt == shardcore.Never {
			s.askedAt = s.h.p.Now()
		}
	default:
	}
}

// gaveUp reports whether a command may be refused in a calm plan: its node leaves, has not learned
// the home of the shard, and could not learn it for giveUpAfter because no coordinator was active
// long enough.
func (s *shardNode) gaveUp(r *shardcore.Refusal) bool {
	d := s.d
	_, known := s.m.Home(r.Shard)
	if r.Reason != shardcore.Stopped || !s.m.Ending() || s.m.Halted() || known || s.askedAt == shardcore.Never || s.h.p.Now() < s.askedAt+giveUpAfter {
		return false
	}
	return d.activeAt == 0 || d.w.Now() < d.activeAt+retryInterval+enoughToAnswer
}

// enoughToAnswer is the maximum time of a request and its reply in a calm plan.
const enoughToAnswer = 2 * time.Second

// answeredSoon checks that the caller of a refused command gets an error.
func (d *sharding) answeredSoon(nr uint64) {
	d.hit("sharding", "refused as no coordinator answers")
	d.w.After(enoughToAnswer, func() {
		if l := d.command(nr); l.outcome == waits && !l.from.gone {
			l.from.h.violate("planned-moves-lose-nothing", "command %d for %s was refused, and is not answered", nr, l.account.id)
		}
	})
}

// storeKind is the kind of a store in settings.
func storeKind(used, replicated bool) string {
	switch {
	case !used:
		return "none"
	case replicated:
		return "replicated"
	}
	return "journal"
}

// misconfigure restarts a node with other settings than the other nodes, and later with the same.
// There is one such node at a time, and it does not run the coordinator.
func (d *sharding) misconfigure(s *shardNode) {
	hosts := 0
	for _, other := range d.living() {
		if other.m.Drained() || other.wrongSetting != "" {
			return
		}
		if other != s && other.hosts() {
			hosts++
		}
	}
	if !s.hosts() && !s.proxy || hosts < 2 || d.misconfigured != "" || d.c.restarts {
		return
	}
	d.misconfigured = s.h.p.Node().Name
	d.w.Logf("%v is about to restart with other settings", s.h.p.Node())
	s.restart()
}

// configure sets the settings of a node.
func (s *shardNode) configure() {
	d, region := s.d, &s.cfg.Region
	if s.proxy {
		region.Settings.State, region.Settings.Remember = "", ""
	}
	if d.misconfigured != s.h.p.Node().Name {
		return
	}
	d.misconfigured = ""
	fields := []string{"Shards", "ShardOf", "Role", "State", "Remember"}
	if s.proxy {
		fields = fields[:3]
	}
	s.wrongSetting = fields[d.rand.IntN(len(fields))]
	switch settings := &region.Settings; s.wrongSetting {
	case "Shards":
		settings.Shards += 1 - 2*d.rand.IntN(2)
		s.cfg.Coordinator.Shards = settings.Shards
	case "ShardOf":
		settings.Routing++
	case "Role":
		settings.Role, region.Role = "", ""
	case "State":
		settings.State = storeKind(true, !d.plan.Replicated)
	case "Remember":
		region.Remember = !region.Remember
		settings.Remember = storeKind(region.Remember, false)
	}
	d.w.Logf("%v has other %s", s.h.p.Node(), s.wrongSetting)
	s.after(d.between(6*time.Second, 30*time.Second), s.restart)
}

// otherSettingsAreRefused checks that a node with other settings hosts nothing, is not registered, and
// learns the reason.
func otherSettingsAreRefused(s *shardNode) {
	if s.wrongSetting == "" {
		return
	}
	if hosted := s.m.Hosted(); s.m.Registered() || len(hosted) > 0 {
		s.h.violate("other-settings-are-refused", "it has other %s, is registered %t, and hosts %v", s.wrongSetting, s.m.Registered(), hosted)
	}
	by, theirs := s.m.Refused()
	if theirs == nil {
		return
	}
	s.d.hit("sharding", "settings differ")
	if fields := s.cfg.Region.Settings.Differences(*theirs); !slices.Equal(fields, []string{s.wrongSetting}) {
		s.h.violate("other-settings-are-refused", "it has other %s, and %v reports the settings %+v", s.wrongSetting, by, *theirs)
	}
}

// onlyMisfitsAreRefused checks that no node with the same settings is rejected.
func onlyMisfitsAreRefused(s *shardNode, n *coordinator.Note) {
	if n.Kind != coordinator.RegionRefused {
		return
	}
	if other := s.d.byNode[n.Node]; other == nil || !slices.Equal(n.Fields, []string{other.wrongSetting}) {
		s.h.violate("other-settings-are-refused", "%v is refused for its %q", n.Node, n.Fields)
	}
}
