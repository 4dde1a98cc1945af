// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/sharding/passivation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entities(tb testing.TB, s passivation.Settings, limit int) *passivation.Entities {
	tb.Helper()
	e, err := passivation.New(s, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// play touches entities, each named by a letter, and returns who was passivated. After the touch of an
// entity that made others go, these stand in brackets. -x removes x, and a number sets the limit.
func play(e *passivation.Entities, script string) string {
	var out strings.Builder
	note := func(ids []string) {
		if len(ids) > 0 {
			out.WriteString("(" + strings.Join(ids, "") + ")")
		}
	}
	for i := 0; i < len(script); i++ {
		c := script[i]
		switch {
		case c == '-':
			i++
			e.Remove(script[i : i+1])
			out.WriteString(script[i-1 : i+1])
		case c >= '0' && c <= '9':
			out.WriteByte(c)
			note(e.SetLimit(int(c - '0')))
		case c == ' ':
			out.WriteByte(' ')
		default:
			out.WriteByte(c)
			note(e.Touch(time.Duration(i), script[i:i+1]))
		}
	}
	return out.String()
}
