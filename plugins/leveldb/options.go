// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

// Options returns the options under which a database of this package is opened:
// what a benchmark needs to compare with the engine alone. The caller owns it.
func Options() *opt.Options {
	return &opt.Options{
		Comparer:                     order{},
		Filter:                       filter.NewBloomFilter(10),
		WriteBuffer:                  16 << 20,
		BlockCacheCapacity:           32 << 20,
		CompactionTableSize:          8 << 20,
		DisableLargeBatchTransaction: true,              // a batch is one record of the log, whatever its size
		Strict:                       opt.DefaultStrict, // and the rest is checked before opening
	}
}

// The name of the key order stands in the first record of every manifest, where
// it can be read before the engine changes anything. So it carries the version
// of the format, and the directory of another program is told apart too.
const (
	orderPrefix   = "refold.leveldb/"
	formatVersion = 1
)

// order is the bytewise order of keys.
type order struct{}

var _ comparer.Comparer = order{}

// Compare implements comparer.Comparer.
func (order) Compare(a, b []byte) int { return bytes.Compare(a, b) }

// Separator implements comparer.Comparer.
func (order) Separator(dst, a, b []byte) []byte {
	return comparer.DefaultComparer.Separator(dst, a, b)
}

// Successor implements comparer.Comparer.
func (order) Successor(dst, b []byte) []byte { return comparer.DefaultComparer.Successor(dst, b) }

// Name implements comparer.Comparer.
func (order) Name() string { return orderPrefix + strconv.Itoa(formatVersion) }

// checkOrder returns an error unless this version wrote a database whose keys
// are ordered by the comparer of that name.
func checkOrder(name string) error {
	version, ours := strings.CutPrefix(name, orderPrefix)
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case !ours || err != nil || n == 0:
		return fmt.Errorf("%w: its keys are ordered by %q", ErrForeign, name)
	case n > formatVersion:
		return errNewerFormat(n)
	}
	return nil
}
