// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/refold-io/refold/eventsourcing"
)

// Remembered is the number of stored requests, not counting lines of files.
const Remembered = 1000

// MaxLength bounds a request ID, in bytes.
const MaxLength = 200

var (
	// ErrReused refuses a request whose ID was used for a different one.
	ErrReused = eventsourcing.NewRefusal("bank/request_reused", "the request ID was used for another request")
	// ErrPassed refuses a line of a file if a later line was executed.
	ErrPassed = eventsourcing.NewRefusal("bank/line_passed", "a later line of the file was executed, so this line was handled before")
	// ErrTooLong refuses a request whose ID is too long.
	ErrTooLong = eventsourcing.NewRefusal("bank/request_too_long", "the request ID is too long")
)

// Memory stores executed requests with their replies. It is part of the state of an aggregate. The
// zero value is empty.
type Memory[A any] struct {
	// Recent are the last requests, oldest first.
	Recent []Done[A]
	// Files contains the highest line of each file, by the hash of the file.
	Files map[string]Line[A]
}

// Done is an executed request.
type Done[A any] struct {
	ID      string
	Content uint64 // fingerprint of the request
	Answer  A
}

// Line is the highest executed line of a file.
type Line[A any] struct {
	Number  uint64
	Content uint64
	Answer  A
}

// Check looks up a request. If it was executed, Check returns its reply. A request without an ID is
// always new. The error is ErrReused, ErrPassed or ErrTooLong.
func (m *Memory[A]) Check(id, content string) (answer A, done bool, err error) {
	if id == "" {
		return answer, false, nil
	}
	if len(id) > MaxLength {
		return answer, false, ErrTooLong
	}
	print := fingerprint(content)
	if file, line, ok := ParseFileLine(id); ok {
		last, known := m.Files[file]
		switch {
		case !known || line > last.Number:
			return answer, false, nil
		case line < last.Number:
			return answer, false, ErrPassed
		case print != last.Content:
			return answer, false, ErrReused
		}
		return last.Answer, true, nil
	}
	for i := range m.Recent {
		if d := &m.Recent[i]; d.ID == id {
			if d.Content != print {
				return answer, false, ErrReused
			}
			return d.Answer, true, nil
		}
	}
	return answer, false, nil
}

// Record stores an executed request, with the ID and content that were passed to Check.
func (m *Memory[A]) Record(id, content string, answer A) {
	if id == "" {
		return
	}
	print := fingerprint(content)
	if file, line, ok := ParseFileLine(id); ok {
		if m.Files == nil {
			m.Files = make(map[string]Line[A])
		}
		m.Files[file] = Line[A]{Number: line, Content: print, Answer: answer}
		return
	}
	if len(m.Recent) == Remembered {
		m.Recent = append(m.Recent[:0], m.Recent[1:]...)
	}
	m.Recent = append(m.Recent, Done[A]{ID: id, Content: print, Answer: answer})
}

// fingerprint returns a 64-bit hash of a request.
func fingerprint(content string) uint64 {
	sum := sha256.Sum256([]byte(content))
	return binary.BigEndian.Uint64(sum[:])
}

// hashLength is the length of the hash in an ID: 16 bytes in hexadecimal.
const hashLength = 32

// Hash returns the hash of a file, as used in the IDs of its lines.
func Hash(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", fmt.Errorf("requests: hash: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}

// FileLine returns the ID of a line of a file, "<hash>:<line>". Lines count from 1.
func FileLine(hash string, line uint64) string {
	return hash + ":" + strconv.FormatUint(line, 10)
}

// ParseFileLine splits an ID of FileLine, and reports whether it is one.
func ParseFileLine(id string) (hash string, line uint64, ok bool) {
	hash, number, found := strings.Cut(id, ":")
	if !found || len(hash) != hashLength || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", 0, false
	}
	line, err := strconv.ParseUint(number, 10, 63)
	if err != nil || line == 0 || number[0] == '0' || number[0] == '+' {
		return "", 0, false
	}
	return hash, line, true
}
