// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
)

// Limits of the description of a member.
const (
	maxRoles     = 64
	maxRole      = 128
	reservedRole = "dc-"
)

// CheckRoles returns the roles sorted and without duplicates. It returns an error if there are more
// than 64, or if one is empty, longer than 128 bytes or reserved.
func CheckRoles(roles []string) ([]string, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(roles)))
	if len(sorted) > maxRoles {
		return nil, fmt.Errorf("membership: %d roles, the maximum is %d", len(sorted), maxRoles)
	}
	for _, role := range sorted {
		switch {
		case role == "":
			return nil, fmt.Errorf("membership: a role is empty")
		case len(role) > maxRole:
			return nil, fmt.Errorf("membership: role %.32q has %d bytes, the maximum is %d", role, len(role), maxRole)
		case strings.HasPrefix(role, reservedRole):
			return nil, fmt.Errorf("membership: role %q: roles that begin with %q are reserved for data centres", role, reservedRole)
		}
	}
	return sorted, nil
}

// CompareAge orders members by age, the oldest first.
func CompareAge(a, b *identity.Member) int {
	return cmp.Or(cmp.Compare(a.UpNumber, b.UpNumber), a.Node.Compare(b.Node))
}

func withStatus(m *identity.Member, s identity.Status) *identity.Member {
	changed := *m
	changed.Status = s
	return &changed
}

func sameMember(m, other *identity.Member) bool {
	return m == other || m.Node == other.Node && m.Status == other.Status && m.UpNumber == other.UpNumber &&
		m.Version == other.Version && sameRoles(m.Roles, other.Roles)
}

// sameRoles reports whether roles are equal. Roles of one origin share their memory.
func sameRoles(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// laterMember returns the newer of two descriptions of one node: the one with the higher rank, then
// the one with the smaller UpNumber. The remaining comparisons make the order total; nodes that
// follow the protocol never need them.
func laterMember(a, b *identity.Member) *identity.Member {
	if a == b {
		return a
	}
	c := cmp.Or(cmp.Compare(rank(b.Status), rank(a.Status)), cmp.Compare(a.UpNumber, b.UpNumber))
	if c == 0 && !sameMember(a, b) {
		c = cmp.Or(strings.Compare(versionText(a.Version), versionText(b.Version)), slices.Compare(a.Roles, b.Roles))
	}
	if c <= 0 {
		return a
	}
	return b
}

// rank orders the statuses for merges: the higher rank is the later status. CanBecome allows only
// changes to a higher rank, because a merge would undo a change to a lower rank.
func rank(s identity.Status) int {
	order := []identity.Status{
		identity.Joining, identity.WeaklyUp, identity.Up, identity.PreparingForShutdown, identity.ReadyForShutdown,
		identity.Leaving, identity.Exiting, identity.Down, identity.Removed,
	}
	return slices.Index(order, s) + 1
}

// countsForConvergence reports whether the members agree on a gossip only if members with this
// status have seen it.
func countsForConvergence(s identity.Status) bool {
	return s == identity.Up || s == identity.Leaving || s == identity.PreparingForShutdown || s == identity.ReadyForShutdown
}

// isGone reports whether a member with this status no longer takes part in decisions.
func isGone(s identity.Status) bool { return s == identity.Down || s == identity.Exiting }

// versionText returns the wire format of a version, which is empty for the zero value.
func versionText(v identity.Version) string {
	if v == (identity.Version{}) {
		return ""
	}
	return v.String()
}

// findMember returns the index of a node in members, which are sorted by node, and whether the node
// is a member.
func findMember(members []*identity.Member, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(members, n, func(m *identity.Member, n identity.Node) int { return m.Node.Compare(n) })
}

// Find returns the index of a node in a list of members that is sorted by node, or the index at
// which it would be inserted. It also reports whether the node is in the list.
func Find(members []identity.Member, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(members, n, func(m identity.Member, n identity.Node) int { return m.Node.Compare(n) })
}

// Lookup returns the member for a node in a list that is sorted by node, or nil.
func Lookup(members []identity.Member, n identity.Node) *identity.Member {
	if i, found := Find(members, n); found {
		return &members[i]
	}
	return nil
}

// Gone returns the nodes of before that are not in now. Both lists are sorted by node, and so is
// the result. It takes one pass, and allocates only for a result.
func Gone(before, now []identity.Member) (gone []identity.Node) {
	for was, is := range Pairs(before, now, CompareNodes) {
		if is == nil {
			gone = append(gone, was.Node)
		}
	}
	return gone
}

// CompareNodes orders members by node.
func CompareNodes(a, b *identity.Member) int { return a.Node.Compare(b.Node) }

// The numbers of a gossip only grow. A forged number near the end of its range would leave no number
// for the next change, and the membership could never change again. Therefore a node accepts only
// numbers that its clock has reached, and this bound grows faster than the numbers of any cluster:
// a change takes longer than a microsecond, and on average a node starts less often than once a
// second. A forged number below the bound has no effect on the next change.
const (
	// leastCount and leastUpNumber are accepted at any time, in case the clock of the node is wrong.
	leastCount    = 1 << 32
	leastUpNumber = 1 << 20
	// upNumbersSince is the time from which the bound of up-numbers counts the seconds: 2020, in
	// seconds of Unix time. The bound stays below lastUpNumber until the year 2088.
	upNumbersSince = 1_577_836_800
	// lastUpNumber is the greatest number of a member that has been Up.
	lastUpNumber = identity.NeverUp - 1
)

// tooFarAhead returns the name of the first number in a received gossip that is above its bound, or
// the empty string.
func (m *Machine) tooFarAhead(g Gossip) string {
	wall := m.cfg.Started.Add(m.now)
	count := uint64(max(leastCount, wall.UnixMicro()))
	up := min(max(leastUpNumber, wall.Unix()-upNumbersSince), lastUpNumber)
	for _, o := range g.Members() {
		if o.UpNumber != identity.NeverUp && int64(o.UpNumber) > up {
			return "up-number of " + o.Node.String()
		}
	}
	for _, t := range g.Clock() {
		if t.Count > count {
			return "tick of " + t.Node.String()
		}
	}
	for _, o := range g.Reachability().Observers {
		if o.Version > count {
			return "observations of " + o.Node.String()
		}
		for _, rec := range o.Records {
			if rec.Version > o.Version {
				return "observation of " + rec.Subject.String() + " by " + o.Node.String()
			}
		}
	}
	for _, t := range g.Tombstones() {
		if t.Count > count {
			return "tombstone of " + t.Node.String()
		}
	}
	return ""
}
