// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// Follows reports whether the delta of the value tells all by which it differs from an older one: it was made of that by changes
// alone. A value that was merged with something before it was changed does not follow, and others need the whole of it. A
// type of one's own follows if the older value with the delta is encoded to the same bytes.
func (v Value) Follows(older Value) bool {
	if older.c == nil {
		return false
	}
	switch c := v.c.(type) {
	case *gcounter:
		return c.base == older.c
	case *pncounter:
		return c.base == older.c
	case *gset:
		return c.base == older.c
	case *orset:
		return c.base == older.c
	case *ormap:
		return c.base == older.c
	case *own:
		return c.follows(older.c)
	}
	return false
}

func (o *own) follows(older core) bool {
	d := o.changes()
	if d == nil {
		return false
	}
	next, err := older.applyDelta(d)
	return err == nil && Equal(Value{next}, Value{o.resetDelta()})
}

// HoldsOwn reports whether the value is of a type of one's own, or is a map of such values. How much larger a delta makes it is
// not known then.
func (v Value) HoldsOwn() bool {
	s := v.c.shape()
	for s.of != nil {
		s = *s.of
	}
	return s.kind == kindOwn
}
