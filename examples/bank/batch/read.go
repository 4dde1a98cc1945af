// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// MaxLine is the length of the longest line that is read, in bytes.
const MaxLine = 64 << 10

var errTooLong = fmt.Errorf("it is longer than %d bytes", MaxLine)

// Read yields the lines of a file. A bad line is yielded as a *LineError, and
// the next one follows; any other error is that of r, and the last.
func Read(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		b := bufio.NewReaderSize(r, MaxLine+2)
		for number := uint64(1); ; number++ {
			text, err := readLine(b)
			if errors.Is(err, io.EOF) && text == "" {
				return
			}
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errTooLong) {
				yield(Line{}, fmt.Errorf("line %d: %w", number, err))
				return
			}
			switch {
			case errors.Is(err, errTooLong):
				if !yield(Line{}, &LineError{Line: number, Text: shorten(text), Err: err}) {
					return
				}
			case strings.TrimSpace(text) == "" || number == 1 && isHeader(text):
			default:
				if !yield(Parse(number, text)) {
					return
				}
			}
		}
	}
}

// isHeader also forgives what editors put before the first line.
func isHeader(text string) bool {
	return strings.TrimPrefix(text, "\ufeff") == Header
}

// readLine returns the next line without its end. Of a line that is too long it
// returns the beginning.
func readLine(b *bufio.Reader) (string, error) {
	line, err := b.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		beginning := string(line[:1<<10])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = b.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return beginning, errTooLong
	}
	return string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})), err
}
