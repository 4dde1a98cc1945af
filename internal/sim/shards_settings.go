// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

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
		s.violate("other-settings-are-refused", "it has other %s, is registered %t, and hosts %v", s.wrongSetting, s.m.Registered(), hosted)
	}
	by, theirs := s.m.Refused()
	if theirs == nil {
		return
	}
	s.d.hit("sharding", "settings differ")
	if fields := s.cfg.Region.Settings.Differences(*theirs); !slices.Equal(fields, []string{s.wrongSetting}) {
		s.violate("other-settings-are-refused", "it has other %s, and %v reports the settings %+v", s.wrongSetting, by, *theirs)
	}
}

// onlyMisfitsAreRefused checks that no node with the same settings is rejected.
func onlyMisfitsAreRefused(s *shardNode, n *coordinator.Note) {
	if n.Kind != coordinator.RegionRefused {
		return
	}
	if other := s.d.byNode[n.Node]; other == nil || !slices.Equal(n.Fields, []string{other.wrongSetting}) {
		s.violate("other-settings-are-refused", "%v is refused for its %q", n.Node, n.Fields)
	}
}
