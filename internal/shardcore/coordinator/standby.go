// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hash"
	"github.com/refold-io/refold/sharding/allocation"
)

// MaxStandbys is the maximum of Config.Standbys.
const MaxStandbys = 9

// IsStandby reports whether a node is a standby of a shard, or its home. The standbys of a shard are
// the count+1 nodes with the highest weights (rendezvous hashing), apart from the home: so a shard has
// count standbys, or count+1 if its home is another node. Each node computes this from the members
// that may host the type, without a message. When a node leaves, the standbys that remain stay the
// same.
func IsStandby(shard Shard, n identity.Node, nodes []identity.Node, count int) bool {
	before, own := 0, weight(shard, n)
	for _, other := range nodes {
		if other != n && heavier(weight(shard, other), own, other, n) {
			if before++; before > count {
				return false
			}
		}
	}
	return true
}

func heavier(a, b uint64, na, nb identity.Node) bool {
	return a > b || a == b && na.Compare(nb) < 0
}

// weight hashes a shard and the name of a node, which a restarted node keeps.
func weight(shard Shard, n identity.Node) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.Name)) // it never returns an error
	return hash.Mix(h.Sum64() + uint64(shard)*hash.Golden)
}

// promoted returns the standby that becomes the home of a shard after the removal of another home: the
// one that has applied most of the journal, and of several the one with the highest weight. It returns
// false if no standby may host.
func (m *Machine) promoted(shard Shard, removed identity.Node, view *allocation.View) (identity.Node, bool) {
	before := make([]identity.Node, 1, len(view.Regions)+1)
	before[0] = removed
	for _, r := range view.Regions {
		before = append(before, r.Node)
	}
	fit := slices.DeleteFunc(slices.Clone(before[1:]), func(n identity.Node) bool {
		return !IsStandby(shard, n, before, m.cfg.Standbys) || !view.MayHost(n) || has(view.Unreachable, n)
	})
	if len(fit) == 0 {
		return identity.Node{}, false
	}
	return slices.MaxFunc(fit, func(a, b identity.Node) int {
		return cmp.Or(compareFollowed(m.followed[a], m.followed[b]), cmp.Compare(weight(shard, a), weight(shard, b)), b.Compare(a))
	}), true
}

// compareFollowed compares positions in the journal, as journal.Offset.Compare does.
func compareFollowed(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
