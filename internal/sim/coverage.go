// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// Coverage counts events by table and row.
type Coverage map[string]map[string]uint64

func (c Coverage) hit(table, row string, n uint64) {
	rows := c[table]
	if rows == nil {
		rows = map[string]uint64{}
		c[table] = rows
	}
	rows[row] += n
}

// Add adds the counts of other.
func (c Coverage) Add(other Coverage) {
	for table, rows := range other {
		for row, n := range rows {
			c.hit(table, row, n)
		}
	}
}

// add adds the counters of a node.
func (c Coverage) add(n node.Counters) {
	for k := membership.Kind(1); k < membership.Kinds; k++ {
		c.hit("message", k.String(), n.Membership.Received[k])
	}
	for s := identity.Joining; s <= identity.ReadyForShutdown; s++ {
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
	c.hit("lease", "loss reported", n.LeasesLost)
	c.hit("node", "exit timed out", n.ExitTimeouts)
}

// optional reports whether an event need not occur.
func optional(table, row string) bool {
	switch table {
	case "dropped", "downing":
		// Some messages are dropped only after protocol violations. The experimental strategy is
		// not simulated, static quorums are not exceeded, and an owner usually decides before
		// others have to wait.
		return table == "dropped" || row == splitbrain.Automatic.String() || row == splitbrain.Outgrown.String() || row == splitbrain.LeftToOwner.String()
	case "coordinator":
		return row == coordinator.Repaired.String() // no node writes impossible events
	case "coordinator ended":
		return row == coordinator.Diverged.String() // no other node writes in its term
	case "refused":
		// Senders respect the number of shards, buffers are large, and a command rarely meets two
		// regions that are not the home.
		return row == shardcore.NoShard.String() || row == shardcore.BufferFull.String() || row == shardcore.NotHome.String()
	case "data dropped":
		return true // no node sends unreadable messages, and few arrive too late
	case "node":
		return row == "exit timed out"
	}
	return false
}

// enough is the number of seeds in which each event must occur that is not rare.
const enough = 200

// from returns the number of seeds in which an event must occur.
func from(table, row string) uint64 {
	switch table + ": " + row {
	case "singleton: stuck", "downing: left to the owner":
		return 20 * enough // the two oldest nodes leave at the same time, one of them slowly; or a second cut follows in time
	case "memory: fenced", "downing: orphaned":
		return 5 * enough
	}
	return enough
}

// Missing returns the events that must occur in this number of seeds and did not.
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
