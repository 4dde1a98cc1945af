// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "encoding/binary"

// deltaHead is the most that a Delta takes beyond its items, if it names no nodes.
const deltaHead = 3 + 2*binary.MaxVarintLen64

// itemSize is the most that an item takes that names no nodes.
func itemSize(key string, delta []byte) int {
	return len(key) + len(delta) + 4*binary.MaxVarintLen64 + 1
}

// appendItem appends an item that names no nodes, so that it has the same bytes in each message.
func appendItem(dst []byte, key string, from, to uint64, delta []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.AppendUvarint(dst, from)
	dst = binary.AppendUvarint(dst, to)
	dst = binary.AppendUvarint(dst, uint64(len(delta)))
	dst = append(dst, delta...)
	return append(dst, 0)
}

// maxAck is the most that an Ack takes.
const maxAck = 4 + binary.MaxVarintLen64

// appendAck appends an Ack as AppendMessage does.
func appendAck(dst []byte, nr uint64, verdict Verdict) []byte {
	dst = append(dst, wireMajor|wireMinor, byte(KindAck), 0)
	return append(binary.AppendUvarint(dst, nr), byte(verdict))
}

// appendDeltaHead appends what comes before the items of a Delta that names no nodes.
func appendDeltaHead(dst []byte, nr uint64, items int) []byte {
	dst = append(dst, wireMajor|wireMinor, byte(KindDelta), 0)
	dst = binary.AppendUvarint(dst, nr)
	return binary.AppendUvarint(dst, uint64(items)) //nolint:gosec // not negative
}
