// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/refold-io/refold/identity"
)

// Digest stands for a clock or a seen set in messages. Equal digests mean equal
// things. The zero value stands for nothing in particular.
type Digest [16]byte

// String returns the first bytes in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:4]) }

// Digest returns what stands for the clock.
func (c Clock) Digest() (d Digest) {
	h := sha256.New()
	b := make([]byte, 0, digested)
	for _, t := range c {
		if len(b) > digested-identity.MaxNameLength-3*binary.MaxVarintLen64 {
			h.Write(b)
			b = b[:0]
		}
		b = binary.AppendUvarint(b, uint64(len(t.Node.Name)))
		b = append(b, t.Node.Name...)
		b = binary.LittleEndian.AppendUint64(b, t.Node.UID)
		b = binary.AppendUvarint(b, t.Count)
	}
	h.Write(b)
	copy(d[:], h.Sum(b[:0]))
	return d
}

// digested is how many bytes are digested at a time.
const digested = 2048

// SeenDigest returns what stands for the set of members that have seen this. It
// says which ones only together with the clock.
func (g Gossip) SeenDigest() Digest { return digest(encodeBitmap(g.seen)) }

func digest(b []byte) (d Digest) {
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}
