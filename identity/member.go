// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// NeverUp is the UpNumber of a member that has not become Up yet.
const NeverUp = math.MaxInt32

// defaultDataCentre is the role of the data centre of all members. There is one data centre for now.
const defaultDataCentre = "dc-default"

// Member describes a node of the cluster. Members are shared and immutable: a change of status
// makes a new Member.
type Member struct {
	Node   Node
	Status Status
	// UpNumber counts the members in the order in which they became Up. An older member has a
	// smaller number. It is NeverUp until the member is Up.
	UpNumber int32
	// Roles are sorted and without duplicates.
	Roles []string
	// Version is the version of the application.
	Version Version
}

// HasRole reports whether the member has a role. Every member has the role "" and the role of its
// data centre.
func (m *Member) HasRole(role string) bool {
	if role == "" || role == defaultDataCentre {
		return true
	}
	_, found := slices.BinarySearch(m.Roles, role)
	return found
}

// OlderThan reports whether the member became Up before another. Members that are not Up yet are
// ordered by node.
func (m *Member) OlderThan(other *Member) bool {
	if m.UpNumber != other.UpNumber {
		return m.UpNumber < other.UpNumber
	}
	return m.Node.Compare(other.Node) < 0
}

// Version is the version of the application that a member runs. The zero value is "0.0.0". A
// Version holds only its text, because a cluster has thousands of members. Compare parses the text,
// because versions are compared rarely.
type Version struct{ text string }

// MaxVersionLength is the largest number of bytes of a version.
const MaxVersionLength = 128

// parsed is a version in the form in which it is compared: up to three numbers, a count of commits,
// and a qualifier.
type parsed struct {
	numbers   [3]uint64
	commits   uint64
	qualifier string
}

// ParseVersion parses a version such as "1.2", "1.2.3-M1" or "1.2.3+17-9f2c1ab". A text that has no
// dots and is not a number becomes the qualifier. The error matches ErrInvalid.
func ParseVersion(s string) (Version, error) {
	if _, err := parseVersion(s); err != nil {
		return Version{}, err
	}
	return Version{s}, nil
}

func parseVersion(s string) (parsed, error) {
	var v parsed
	fail := func(why string) (parsed, error) {
		return parsed{}, fmt.Errorf("%w: application version %.160q: %s", ErrInvalid, s, why)
	}
	switch {
	case s == "":
		return fail("it is empty")
	case len(s) > MaxVersionLength:
		return fail(fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), MaxVersionLength))
	}
	if !strings.Contains(s, ".") {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			v.numbers[0] = n
		} else {
			v.qualifier = s
		}
		return v, nil
	}
	numbers, rest := s, ""
	if i := strings.IndexAny(s, "+-"); i >= 0 {
		numbers, rest = s[:i], s[i:]
	}
	parts := strings.Split(numbers, ".")
	if len(parts) > len(v.numbers) {
		return fail("more than three numbers")
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return fail(fmt.Sprintf("%q is not a number", part))
		}
		v.numbers[i] = n
	}
	if rest == "" {
		return v, nil
	}
	if count, after, found := strings.Cut(rest[1:], "-"); found {
		if n, err := strconv.ParseUint(count, 10, 64); err == nil {
			v.commits, rest = n, "-"+after
		}
	}
	v.qualifier = rest[1:]
	return v, nil
}

// Compare orders versions by their numbers and the count of commits. If these are equal, a version
// without a qualifier is greater than a version with a qualifier. Qualifiers are ordered bytewise.
func (v Version) Compare(other Version) int {
	if v.text == other.text {
		return 0
	}
	a, _ := parseVersion(v.String()) // ParseVersion has checked both
	b, _ := parseVersion(other.String())
	for i := range a.numbers {
		if c := cmp.Compare(a.numbers[i], b.numbers[i]); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(a.commits, b.commits); c != 0 {
		return c
	}
	switch {
	case a.qualifier == b.qualifier:
		return 0
	case a.qualifier == "":
		return 1
	case b.qualifier == "":
		return -1
	}
	return strings.Compare(a.qualifier, b.qualifier)
}

// String returns the text that was parsed, "0.0.0" for the zero value.
func (v Version) String() string {
	if v.text == "" {
		return "0.0.0"
	}
	return v.text
}
