// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

// Wrapper is implemented by a journal that stands before another, such as
// Guarded.
type Wrapper interface {
	// Unwrap returns the journal behind it.
	Unwrap() Journal
}

// As returns the first journal that implements T, looking at j and then at what
// it wraps. It is how to ask for an optional interface such as IDLister.
func As[T any](j Journal) (T, bool) {
	for j != nil {
		if t, ok := j.(T); ok {
			return t, true
		}
		wrapper, ok := j.(Wrapper)
		if !ok {
			break
		}
		j = wrapper.Unwrap()
	}
	var none T
	return none, false
}
