// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// said is something that is said again only if there is no answer in time.
type said struct {
	to    identity.Node
	kind  coordinator.Kind
	flush bool
	round uint64
	shard shards.Shard // the first one
}

// repeats counts what is said again.
func (s *site) repeats(what said, row string) {
	if s.said[what] {
		s.d.hit("sharding time-out", row)
	}
	s.said[what] = true
}

// saysAgain counts messages that are repeated.
func (s *site) saysAgain(to identity.Node, m *coordinator.Message) {
	row := ""
	switch m.Kind {
	case coordinator.Host, coordinator.BeginHandOff, coordinator.HandOff, coordinator.GetHomes, coordinator.Register, coordinator.RegisterProxy, coordinator.GracefulShutdown:
		row = m.Kind.String() + " again"
	default:
		return
	}
	what := said{to: to, kind: m.Kind, round: m.Term<<32 | m.Round}
	if len(m.Shards) > 0 {
		what.shard = m.Shards[0]
	}
	s.repeats(what, row)
}

// mustHappen are the rows of what is counted when it happens.
func (d *sharding) mustHappen() {
	for k := coordinator.Register; k <= coordinator.Refused; k++ {
		d.c.coverage.hit("shard message", k.String(), 0)
	}
	for k := region.Forward; k <= region.Flushed; k++ {
		d.c.coverage.hit("region frame", k.String(), 0)
	}
	for k := coordinator.Became; k <= coordinator.HandOffFailed; k++ {
		d.c.coverage.hit("coordinator", k.String(), 0)
	}
	for p := coordinator.Loading; p <= coordinator.Ended; p++ {
		d.c.coverage.hit("coordinator became", p.String(), 0)
	}
	for r := coordinator.Terminated; r <= coordinator.Diverged; r++ {
		d.c.coverage.hit("coordinator ended", r.String(), 0)
	}
	for k := coordinator.Started; k <= coordinator.HomesDeallocated; k++ {
		d.c.coverage.hit("stored", k.String(), 0)
	}
	for r := shards.BufferFull; r <= shards.NoShard; r++ {
		d.c.coverage.hit("refused", r.String(), 0)
	}
	for k := shard.Start; k <= shard.Kill; k++ {
		d.c.coverage.hit("entity", k.String(), 0)
	}
	for table, rows := range map[string][]string{
		"entity":            {"can't be loaded", "fenced", "store failed", "store timed out", "does not stop", "goes on"},
		"answer":            {"done", "failed", "refused", "unknown"},
		"journal":           {"lands", "no answer", "fails", "vanishes", "lands late", "conflict"},
		"replicated":        {"done", "not found", "timed out", "failed", "stopped"},
		"register":          {"loaded", "load failed", "saved", "save failed", "conflict", "fenced", "state lost with its nodes"},
		"memory":            {"loaded", "load failed", "updated", "update failed", "fenced"},
		"replicated memory": {"loaded", "load failed", "updated", "update failed"},
		"sharding": {
			"second coordinator", "halted", "begun again", "stopped by force when it leaves", "dismissed", "region has stopped", "lower term refused",
			"entity twice after a pause", "drained", "undrained", "settings differ", "ways to who leaves are slow",
		},
		"sharding time-out": {
			"host again", "begin hand-off again", "hand-off again", "get homes again", "register again", "register proxy again", "graceful shutdown again", "flush again",
		},
		"command lost": {"node has ended", "receiver has ended", "link gap"},
		"checked": {
			"every-asker-is-answered", "every-shard-has-a-home", "undrained-hosts-again", "commands are accounted for", "acknowledged commands are stored once", "planned moves only",
		},
	} {
		for _, row := range rows {
			d.c.coverage.hit(table, row, 0)
		}
	}
}
