// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// AppendList appends numbers.
func AppendList[T ~uint32](dst []byte, list []T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// List reads what AppendList has written: numbers below the limit, and no more than that many. None is
// nil.
func List[T ~uint32](r *Reader, limit T, what string) []T {
	n := r.Count(int(limit), 1, what)
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = T(r.Uint(uint64(limit)-1, what))
	}
	return list
}
