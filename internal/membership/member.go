// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
)

// NeverUp is the UpNumber of a member that was not Up yet.
const NeverUp = math.MaxInt32

// Limits of what a member says about itself.
const (
	maxRoles = 64
	maxRole  = 128
)

// Reserved begins the roles that say in which data centre a member is. There is
// one data centre for now, so that every member has the role DefaultDataCentre.
const (
	Reserved          = "dc-"
	DefaultDataCentre = Reserved + "default"
)

// Member is what is known of a node of the cluster. Members are shared and never
// change; another status is another Member.
type Member struct {
	Node   identity.Node
	Status Status
	// UpNumber counts the members in the order in which they became Up; the
	// smaller, the older. It is NeverUp until then.
	UpNumber int32
	// Roles are what it is for, sorted and without duplicates.
	Roles []string
	// Version is that of its application.
	Version Version
}

// CheckRoles returns the roles sorted and without duplicates, or an error if
// there are more than 64, or one of them is empty, longer than 128 bytes or reserved.
func CheckRoles(roles []string) ([]string, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(roles)))
	if len(sorted) > maxRoles {
		return nil, fmt.Errorf("membership: %d roles, at most %d are allowed", len(sorted), maxRoles)
	}
	for _, role := range sorted {
		switch {
		case role == "":
			return nil, fmt.Errorf("membership: a role is empty")
		case len(role) > maxRole:
			return nil, fmt.Errorf("membership: role %.32q has %d bytes, at most %d are allowed", role, len(role), maxRole)
		case strings.HasPrefix(role, Reserved):
			return nil, fmt.Errorf("membership: role %q: roles that begin with %q are reserved for data centres", role, Reserved)
		}
	}
	return sorted, nil
}

// HasRole reports whether the member has a role. Every member has the role "",
// and the one of its data centre.
func (m *Member) HasRole(role string) bool {
	if role == "" || role == DefaultDataCentre {
		return true
	}
	_, found := slices.BinarySearch(m.Roles, role)
	return found
}

// OlderThan reports whether the member became Up before another.
func (m *Member) OlderThan(other *Member) bool { return m.age(other) < 0 }

// age orders members by age, the oldest first.
func (m *Member) age(other *Member) int {
	if c := cmp.Compare(m.UpNumber, other.UpNumber); c != 0 { // mostly
		return c
	}
	return m.Node.Compare(other.Node)
}

// with returns the member with another status.
func (m *Member) with(s Status) *Member {
	changed := *m
	changed.Status = s
	return &changed
}

// same reports whether two descriptions of one node say the same.
func (m *Member) same(other *Member) bool {
	return m == other || m.Node == other.Node && m.Status == other.Status && m.UpNumber == other.UpNumber &&
		m.Version == other.Version && sameRoles(m.Roles, other.Roles)
}

// sameRoles compares roles; those of one origin share their memory.
func sameRoles(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// later returns that of two descriptions of one node that holds: the one that is
// further in its life, then the older one. The rest makes a total order of it, which
// two nodes that follow the protocol never need.
func later(a, b *Member) *Member {
	if a == b {
		return a
	}
	c := cmp.Or(cmp.Compare(b.Status.rank(), a.Status.rank()), cmp.Compare(a.UpNumber, b.UpNumber))
	if c == 0 && !a.same(b) {
		c = cmp.Or(strings.Compare(a.Version.text, b.Version.text), slices.Compare(a.Roles, b.Roles))
	}
	if c <= 0 {
		return a
	}
	return b
}

func findMember(members []*Member, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(members, n, func(m *Member, n identity.Node) int { return m.Node.Compare(n) })
}
