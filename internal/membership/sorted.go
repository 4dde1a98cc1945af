// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "iter"

// pairs goes through two lists that are sorted alike, in their common order, and
// yields the elements that belong together: of a, of b, or of both. Who is missing is nil.
func pairs[T any](a, b []T, compare func(a, b *T) int) iter.Seq2[*T, *T] {
	return func(yield func(a, b *T) bool) {
		for i, j := 0, 0; i < len(a) || j < len(b); {
			by := 0
			switch {
			case i == len(a):
				by = 1
			case j == len(b):
				by = -1
			default:
				by = compare(&a[i], &b[j])
			}
			var ofA, ofB *T
			if by <= 0 {
				ofA = &a[i]
				i++
			}
			if by >= 0 {
				ofB = &b[j]
				j++
			}
			if !yield(ofA, ofB) {
				return
			}
		}
	}
}

func compareTicks(a, b *Tick) int { return a.Node.Compare(b.Node) }

// compareMembers is quick about members that are shared.
func compareMembers(a, b **Member) int {
	if *a == *b {
		return 0
	}
	return (*a).Node.Compare((*b).Node)
}
