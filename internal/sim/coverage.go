// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// Coverage counts what has happened, by a table and a row.
type Coverage map[string]map[string]uint64

func (c Coverage) hit(table, row string, n uint64) {
	rows := c[table]
	if rows == nil {
		rows = map[string]uint64{}
		c[table] = rows
	}
	rows[row] += n
}

// Add adds what happened elsewhere.
func (c Coverage) Add(other Coverage) {
	for table, rows := range other {
		for row, n := range rows {
			c.hit(table, row, n)
		}
	}
}

// add adds what a node has counted.
func (c Coverage) add(n node.Counters) {
	for k := membership.Kind(1); k < membership.Kinds; k++ {
		c.hit("message", k.String(), n.Membership.Received[k])
	}
	for s := membership.Joining; s <= membership.ReadyForShutdown; s++ {
		c.hit("member", s.String(), n.Membership.Became[s])
	}
	for t := range membership.Timeouts {
		c.hit("time-out", t.String(), n.Membership.TimedOut[t])
	}
	for d := range membership.Drops {
		c.hit("dropped", d.String(), n.Membership.Dropped[d])
	}
	for o := membership.Same; o <= membership.Concurrent; o++ {
		c.hit("gossip", o.String(), n.Membership.Gossip[o])
	}
	for k := splitbrain.Decided; k <= splitbrain.LeftToOwner; k++ {
		c.hit("downing", k.String(), n.Downing[k])
	}
	for s := singleton.Younger; s <= singleton.End; s++ {
		c.hit("singleton", s.String(), n.Became[s])
	}
	for k := singleton.HandOverToMe; k <= singleton.InstanceGone; k++ {
		c.hit("singleton message", k.String(), n.SingletonReceived[k])
	}
	c.hit("singleton", "stuck", n.Stuck)
	c.hit("singleton message", "ignored", n.Ignored)
	c.hit("lease", "told lost", n.LeasesLost)
	c.hit("node", "exit timed out", n.ExitTimeouts)
}

// optional is what need not happen, by table and row.
func optional(table, row string) bool {
	switch table {
	case "dropped", "downing":
		// Not all that is dropped can come from nodes that follow the protocol; the experimental
		// strategy is not simulated, static quorums are never outgrown, and an owner mostly decides before it has to be waited for.
		return table == "dropped" || row == splitbrain.Automatic.String() || row == splitbrain.Outgrown.String() || row == splitbrain.LeftToOwner.String()
	case "coordinator":
		return row == coordinator.Repaired.String() // nobody writes what can't be
	case "coordinator ended":
		return row == coordinator.Diverged.String() // nobody else writes in its term
	case "refused":
		// Senders know how many there are, buffers are large, and that a command meets two that are not the home takes many chances.
		return row == shardcore.NoShard.String() || row == shardcore.BufferFull.String() || row == shardcore.NotHome.String()
	case "data dropped":
		return true // nobody sends what can't be read, and little comes too late
	case "node":
		return row == "exit timed out"
	}
	return false
}

// enough is how many seeds have to meet all that is not rare.
const enough = 200

// from is how many seeds have to meet something.
func from(table, row string) uint64 {
	switch table + ": " + row {
	case "singleton: stuck", "downing: left to the owner":
		return 20 * enough // the oldest two have to leave at the same time, one of them slowly; a second cut has to follow in time
	case "memory: fenced", "downing: orphaned":
		return 5 * enough
	}
	return enough
}

// Missing returns what never happened, and should have in so many seeds.
func (c Coverage) Missing(seeds uint64) []string {
	var all []string
	for _, table := range slices.Sorted(maps.Keys(c)) {
		for _, row := range slices.Sorted(maps.Keys(c[table])) {
			if c[table][row] == 0 && seeds >= from(table, row) && !optional(table, row) {
				all = append(all, table+": "+row)
			}
		}
	}
	return all
}

// WriteTo writes the tables.
func (c Coverage) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for _, table := range slices.Sorted(maps.Keys(c)) {
		n, err := fmt.Fprintf(w, "%s\n", table)
		written += int64(n)
		if err != nil {
			return written, err
		}
		for _, row := range slices.Sorted(maps.Keys(c[table])) {
			n, err := fmt.Fprintf(w, "  %-34s %12d\n", row, c[table][row])
			written += int64(n)
			if err != nil {
				return written, err
			}
		}
	}
	return written, nil
}
