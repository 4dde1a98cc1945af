// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"

	"github.com/refold-io/refold/internal/wire"
)

// AppendEvent appends the encoding of an event.
func AppendEvent(dst []byte, e Event) []byte {
	dst = append(dst, version, byte(e.Kind))
	if e.Kind == Started {
		dst = binary.AppendUvarint(dst, e.Term)
	}
	if e.Kind != HomesDeallocated {
		dst = wire.AppendNode(dst, e.Node)
	}
	if e.Kind == HomesAllocated || e.Kind == HomesDeallocated {
		dst = appendShards(dst, e.Shards)
	}
	return dst
}

// DecodeEvent decodes what AppendEvent has written. The error matches
// ErrMalformed.
func DecodeEvent(b []byte) (Event, error) {
	r := newReader(b)
	e := Event{Kind: EventKind(r.Byte("kind"))}
	if r.Err() == nil && (e.Kind < Started || e.Kind > HomesDeallocated) {
		r.Fail("%v is not known", e.Kind)
	}
	if e.Kind == Started {
		e.Term = r.Uint(1<<63, "term")
	}
	if e.Kind != HomesDeallocated {
		e.Node = r.Node()
	}
	if e.Kind == HomesAllocated || e.Kind == HomesDeallocated {
		e.Shards = readShards(r)
	}
	if err := r.End(); err != nil {
		return Event{}, err
	}
	return e, nil
}
