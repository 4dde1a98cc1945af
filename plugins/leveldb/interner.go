// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

// maxNames bounds what an interner keeps.
const maxNames = 256

// interner gives equal bytes the same string, as long as there are few
// different ones. It is not safe for concurrent use.
type interner struct {
	names map[string]string
	// writer and manifest are those of the last event, which are most often
	// those of the next.
	writer, manifest string
}

// again is get for what was in *last the last time.
func (in *interner) again(last *string, b []byte) string {
	if string(b) != *last { // does not allocate
		*last = in.get(b)
	}
	return *last
}

func (in *interner) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in.names[string(b)]; ok { // does not allocate
		return s
	}
	s := string(b)
	switch {
	case in.names == nil:
		in.names = make(map[string]string)
	case len(in.names) >= maxNames:
		clear(in.names)
	}
	in.names[s] = s
	return s
}
