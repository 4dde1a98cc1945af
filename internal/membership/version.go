// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is the version of the application that a member runs. It is kept as
// its text and taken apart when it is compared: there are thousands of members, and
// few comparisons.
type Version struct{ text string }

// maxVersion bounds the text of a version in bytes.
const maxVersion = 128

// parsed is a version as it is compared: up to three numbers, a count of
// commits, and a qualifier.
type parsed struct {
	numbers   [3]uint64
	commits   uint64
	qualifier string
}

// ParseVersion reads a version such as "1.2", "1.2.3-M1" or "1.2.3+17-9f2c1ab". A
// text without dots that is no number is all qualifier.
func ParseVersion(s string) (Version, error) {
	if _, err := parseVersion(s); err != nil {
		return Version{}, err
	}
	return Version{s}, nil
}

func parseVersion(s string) (parsed, error) {
	var v parsed
	fail := func(why string) (parsed, error) {
		return parsed{}, fmt.Errorf("membership: application version %.160q: %s", s, why)
	}
	switch {
	case s == "":
		return fail("it is empty")
	case len(s) > maxVersion:
		return fail(fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), maxVersion))
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
			return fail(fmt.Sprintf("%q is no number", part))
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

// Compare orders versions: by the numbers, then by the count of commits, then no
// qualifier after any, then by the text of the qualifier.
func (v Version) Compare(other Version) int {
	if v.text == other.text {
		return 0
	}
	// Both were parsed before.
	a, _ := parseVersion(v.String())
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

// String returns the text that was parsed; "0.0.0" for the zero value.
func (v Version) String() string {
	if v.text == "" {
		return "0.0.0"
	}
	return v.text
}
