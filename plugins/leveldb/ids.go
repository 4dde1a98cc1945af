// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/journal"
)

// The small values, version 1:
//
//	of an ID        version, number as a varint
//	of a deletion   version, two sequence numbers as varints
//	of a name       version, the persistence ID
//	of an upgrade   version, its step as a varint
const valueVersion = 1

func appendNumber(b []byte, number uint64) []byte {
	return binary.AppendUvarint(append(b, valueVersion), number)
}

func decodeNumber(b []byte) (uint64, error) {
	n, rest, err := cutVersioned(b)
	if err != nil {
		return 0, err
	}
	if len(rest) > 0 || n == 0 || n > maxNumber {
		return 0, errMalformed
	}
	return n, nil
}

// deletion is what was deleted of an ID.
type deletion struct {
	// to is the number of the last event that counts as deleted, done that of
	// the last one whose record is gone: it is lower after a deletion was cut
	// short.
	to, done uint64
}

func (d deletion) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, valueVersion), d.to), d.done)
}

func decodeDeletion(b []byte) (deletion, error) {
	to, rest, err := cutVersioned(b)
	if err != nil {
		return deletion{}, err
	}
	done, n := binary.Uvarint(rest)
	if n <= 0 || n != len(rest) || to > journal.MaxSequenceNr || done > to {
		return deletion{}, errMalformed
	}
	return deletion{to: to, done: done}, nil
}

// cutVersioned cuts the version and a varint off b.
func cutVersioned(b []byte) (n uint64, rest []byte, err error) {
	if b, err = cutVersion(b); err != nil {
		return 0, nil, err
	}
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, errMalformed
	}
	return n, b[size:], nil
}

// cutVersion cuts the version off b.
func cutVersion(b []byte) (rest []byte, err error) {
	switch {
	case len(b) == 0:
		return nil, errShort
	case b[0] > valueVersion:
		return nil, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0])
	case b[0] != valueVersion:
		return nil, errMalformed
	}
	return b[1:], nil
}

func appendName(b []byte, id string) []byte { return append(append(b, valueVersion), id...) }

func decodeName(b []byte) (string, error) {
	b, err := cutVersion(b)
	if err != nil {
		return "", err
	}
	id := string(b)
	if journal.CheckID(id) != nil {
		return "", errMalformed
	}
	return id, nil
}
