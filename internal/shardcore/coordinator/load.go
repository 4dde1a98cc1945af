// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
)

// Load is the load that a region has measured in a window of time.
type Load struct {
	// Window is the length of the window. All other fields are totals of the window, or values at
	// its end. Times have microseconds.
	Window time.Duration
	// CPU is the time of processors that the process has used. Cores is the number of processors.
	CPU   time.Duration
	Cores int
	// Memory is the memory of the process in bytes.
	Memory uint64
	// Busy is the time of turns, and Commands the number of handled messages, of all shards.
	Busy     time.Duration
	Commands uint64
	// Shards are the busiest shards, sorted, at most MaxLoadShards. The other shards of the region
	// share the rest of Busy and Commands.
	Shards []ShardLoad
}

// ShardLoad is the load of a shard, see Load and allocation.ShardLoad.
type ShardLoad struct {
	Shard             Shard
	Busy              time.Duration
	Commands          uint64
	Waiting, Entities int
}

// MaxLoadShards is the maximum number of shards in a report.
const MaxLoadShards = 500

// Limits of received numbers. Their sums and rates do not overflow.
const (
	maxLoadTime  = uint64(1 << 40) // microseconds, twelve days
	maxLoadCount = uint64(1 << 40)
	maxMemory    = uint64(1 << 60)
	maxCores     = 1 << 16
)

func appendLoad(dst []byte, l *Load) []byte {
	if l == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	time := func(t time.Duration) {
		dst = binary.AppendUvarint(dst, min(uint64(max(0, t.Microseconds())), maxLoadTime))
	}
	count := func(n uint64) { dst = binary.AppendUvarint(dst, min(n, maxLoadCount)) }
	time(l.Window)
	time(l.CPU)
	dst = binary.AppendUvarint(dst, uint64(min(max(0, l.Cores), maxCores)))
	dst = binary.AppendUvarint(dst, min(l.Memory, maxMemory))
	time(l.Busy)
	count(l.Commands)
	dst = binary.AppendUvarint(dst, uint64(len(l.Shards)))
	last := Shard(0)
	for _, s := range l.Shards {
		dst = binary.AppendUvarint(dst, uint64(s.Shard-last))
		last = s.Shard
		time(s.Busy)
		count(s.Commands)
		count(uint64(max(0, s.Waiting)))
		count(uint64(max(0, s.Entities)))
	}
	return dst
}

func readLoad(r *wire.Reader) *Load {
	if present := r.Byte("load"); present == 0 {
		return nil
	} else if present != 1 {
		r.Fail("load has form %d", present)
	}
	interval := func(subject string) time.Duration {
		return time.Duration(r.Uint(maxLoadTime, subject)) * time.Microsecond //nolint:gosec // at most maxLoadTime
	}
	count := func(subject string) int { return int(r.Uint(maxLoadCount, subject)) } //nolint:gosec // at most maxLoadCount
	l := &Load{Window: interval("window"), CPU: interval("time of processors")}
	l.Cores = int(r.Uint(maxCores, "processors")) //nolint:gosec // at most maxCores
	l.Memory = r.Uint(maxMemory, "memory")
	l.Busy, l.Commands = interval("busy time"), r.Uint(maxLoadCount, "commands")
	last := uint64(0)
	for i := range r.Count(MaxLoadShards, 5, "loads") {
		n := last + r.Uint(MaxShards-1, "shard")
		if r.Err() == nil && (n >= MaxShards || i > 0 && n == last) {
			r.Fail("the load of shard %d follows that of shard %d", n, last)
		}
		last = n
		s := ShardLoad{Shard: Shard(n), Busy: interval("busy time"), Commands: r.Uint(maxLoadCount, "commands"), Waiting: count("waiting"), Entities: count("entities")} //nolint:gosec // below MaxShards
		if r.Err() != nil {
			return nil
		}
		l.Shards = append(l.Shards, s)
	}
	return l
}

// loadTable has the smoothed load of shards and nodes. The coordinator does not store it: after a
// change of the coordinator, it is measured again.
type loadTable struct {
	shards map[Shard]*shardRecord
	nodes  map[identity.Node]*nodeRecord
}

type shardRecord struct {
	allocation.ShardLoad

	measured bool          // there was a report
	movedAt  time.Duration // Never if the coordinator has not seen a move
}

type nodeRecord struct {
	allocation.NodeLoad

	reports int
	at      time.Duration // of the last report
}

const (
	// smoothing is the time after which a report has lost two thirds of its weight.
	smoothing = 30 * time.Second
	// minReports is the number of reports after which the load of a node counts.
	minReports = 2
	// staleAfter is the time without a report after which the load of a node does not count, if it
	// is more than four RebalanceIntervals.
	staleAfter = 40 * time.Second
)

// loadReported records a report of a registered region. It trusts a region only with the load of the
// region's own shards.
func (m *Machine) loadReported(from identity.Node, l *Load) {
	shards, registered := m.state.Region(from)
	if !m.cfg.ReadsLoad || l == nil || l.Window <= 0 || !registered {
		return
	}
	if m.loads.nodes == nil {
		m.loads = loadTable{map[Shard]*shardRecord{}, map[identity.Node]*nodeRecord{}}
	}
	seconds := l.Window.Seconds()
	node := m.loads.nodes[from]
	if node == nil {
		node = &nodeRecord{}
		m.loads.nodes[from] = node
	}
	weight := 1 - math.Exp(-seconds/smoothing.Seconds())
	if node.reports == 0 {
		weight = 1
	}
	node.reports, node.at = min(node.reports+1, minReports), m.now
	node.CPU += weight * (l.CPU.Seconds()/seconds - node.CPU)
	node.Cores, node.Memory = l.Cores, l.Memory

	reported := make(map[Shard]ShardLoad, len(l.Shards))
	rest := ShardLoad{Busy: l.Busy, Commands: l.Commands}
	for _, s := range l.Shards {
		if home, _ := m.state.Home(s.Shard); home != from || int(s.Shard) >= m.cfg.Shards {
			continue
		}
		reported[s.Shard] = s
		rest.Busy -= min(rest.Busy, s.Busy)
		rest.Commands -= min(rest.Commands, s.Commands)
	}
	others := float64(max(1, len(shards)-len(reported)))
	for _, s := range shards {
		if m.moving[s] != nil { // it is being stopped
			continue
		}
		at, known := reported[s]
		if known {
			m.shardMeasured(s, at.Busy.Seconds()/seconds, float64(at.Commands)/seconds, weight, at.Waiting, at.Entities)
		} else {
			m.shardMeasured(s, rest.Busy.Seconds()/seconds/others, float64(rest.Commands)/seconds/others, weight, 0, 0)
		}
	}
}

func (m *Machine) shardMeasured(s Shard, busy, commands, weight float64, waiting, entities int) {
	at := m.loads.shards[s]
	if at == nil {
		at = &shardRecord{movedAt: Never}
		m.loads.shards[s] = at
	}
	if !at.measured {
		weight, at.measured = 1, true
	}
	at.Busy += weight * (busy - at.Busy)
	at.Commands += weight * (commands - at.Commands)
	at.Waiting, at.Entities = waiting, entities
}

// loadMoved records that shards have left their homes by a hand-off.
func (m *Machine) loadMoved(shards []Shard) {
	for _, s := range shards {
		if at := m.loads.shards[s]; at != nil {
			at.movedAt = m.now
		}
	}
}

// loadForgotten drops the load of a terminated region.
func (m *Machine) loadForgotten(n identity.Node) { delete(m.loads.nodes, n) }

// addLoad adds the load to a view.
func (m *Machine) addLoad(view *allocation.View) {
	if !m.cfg.ReadsLoad {
		return
	}
	view.Load, view.Nodes = make(map[Shard]allocation.ShardLoad, len(m.loads.shards)), make(map[identity.Node]allocation.NodeLoad, len(m.loads.nodes))
	for s, at := range m.loads.shards {
		load := at.ShardLoad
		if load.Settled = math.MaxInt64; at.movedAt != Never {
			load.Settled = m.now - at.movedAt
		}
		view.Load[s] = load
	}
	for n, at := range m.loads.nodes {
		if at.reports == minReports && m.now-at.at <= max(staleAfter, 4*m.cfg.RebalanceInterval) {
			view.Nodes[n] = at.NodeLoad
		}
	}
}
