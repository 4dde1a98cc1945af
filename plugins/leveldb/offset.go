// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/refold-io/refold/journal"
)

// position is a place in the order of events: behind the first events of a
// group. The zero value is the one before all.
type position struct {
	group uint64 // from 1
	index uint64 // how many events of it lie before the position
}

// offsetPrefix tells the offsets of this journal, version 1, from those of
// others.
const offsetPrefix = "ldb1-"

// offset returns the printable form: the group and the index. The index has four
// digits, so that of two offsets the longer or else the larger one lies behind.
func (p position) offset() journal.Offset {
	if p == (position{}) {
		return ""
	}
	b := append(make([]byte, 0, 32), offsetPrefix...)
	b = append(strconv.AppendUint(b, p.group, 10), '-')
	for limit := uint64(1000); limit > p.index; limit /= 10 {
		b = append(b, '0')
	}
	return journal.Offset(strconv.AppendUint(b, p.index, 10))
}

func (p position) before(other position) bool {
	return p.group < other.group || p.group == other.group && p.index < other.index
}

// parseOffset returns the position that an offset stands for.
func parseOffset(o journal.Offset) (position, error) {
	if o == "" {
		return position{}, nil
	}
	numbers, _ := strings.CutPrefix(string(o), offsetPrefix)
	group, index, _ := strings.Cut(numbers, "-")
	var p position
	var err1, err2 error
	p.group, err1 = strconv.ParseUint(group, 10, 56)
	p.index, err2 = strconv.ParseUint(index, 10, 56)
	if err1 != nil || err2 != nil || p.group == 0 || p.index == 0 || p.index > maxGroup || p.offset() != o { // one form only
		return position{}, fmt.Errorf("%w: %.64q", journal.ErrOffset, string(o))
	}
	return p, nil
}
