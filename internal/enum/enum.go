// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package enum has the names of enumerations, and counters by these names.
package enum

import "fmt"

// Name returns the name at the index v. A value without a name is returned as the kind of the
// enumeration and the number, such as "status(12)".
func Name[T ~uint8](v T, kind string, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// Counts returns the counters above 0 by the names of their indices.
func Counts[T interface {
	~uint8
	fmt.Stringer
}](counters []uint64) map[string]uint64 {
	named := map[string]uint64{}
	for i, n := range counters {
		if n > 0 {
			named[T(i).String()] = n
		}
	}
	return named
}
