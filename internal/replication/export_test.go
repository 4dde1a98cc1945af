// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "github.com/refold-io/refold/internal/wire"

// DecodeMessage decodes the output of AppendMessage. The message shares memory with b, which must
// not be modified afterwards. The error matches ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{Reader: *wire.NewReader(b, wireMajor|wireMinor, MaxMessage, ErrMalformed)}
	kind := r.head()
	var m Message
	if r.Err() == nil {
		m = readMessage(&r, kind)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return m, nil
}
