// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/refold-io/refold/journal"
)

var errRow = errors.New("row is not as it should be")

// rowColumns are the columns that decodeRow takes, of a table or its alias.
func rowColumns(alias string) string {
	return alias + ".seq_nr, " + alias + ".at, " + alias + ".writer, " + alias + ".manifest, " + alias + ".payload, " + alias + ".tags, " + alias + ".metadata"
}

// decodeRow makes an event of the values of a row, which it copies.
func decodeRow(values [][]byte) (journal.Event, error) {
	if len(values) != 7 || len(values[0]) != 8 || len(values[1]) != 8 {
		return journal.Event{}, errRow
	}
	tags, err := decodeTexts(values[5])
	if err != nil {
		return journal.Event{}, err
	}
	micros := int64(binary.BigEndian.Uint64(values[1])) //nolint:gosec // its bits
	return journal.Event{
		SequenceNr: binary.BigEndian.Uint64(values[0]),
		Time:       time.UnixMicro(micros + epoch).UTC(),
		Writer:     string(values[2]),
		Manifest:   string(values[3]),
		Payload:    append([]byte{}, values[4]...),
		Tags:       tags,
		Metadata:   append([]byte(nil), values[6]...),
	}, nil
}

// decodeTexts reads an array of texts; see array about its form.
func decodeTexts(b []byte) ([]string, error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b) == 0 {
		return nil, nil
	}
	if len(b) < arrayHeader || binary.BigEndian.Uint32(b) != 1 {
		return nil, errRow
	}
	count := int(binary.BigEndian.Uint32(b[12:]))
	b = b[arrayHeader:]
	if count > len(b)/4 {
		return nil, errRow
	}
	texts := make([]string, count)
	for i := range texts {
		if len(b) < 4 {
			return nil, errRow
		}
		length := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // its bits
		b = b[4:]
		if length < 0 || length > int64(len(b)) {
			return nil, errRow
		}
		texts[i], b = string(b[:length]), b[length:]
	}
	return texts, nil
}
