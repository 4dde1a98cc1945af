// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
)

func TestPasswordRedaction(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`no persistence ID "postgres://ada:secret@h/d"`: `no persistence ID "postgres://ada:xxxxx@h/d"`,
		"postgresql://ada:se@cr:et@h:5432/d x":          "postgresql://ada:xxxxx@h:5432/d x",
		"host=h password=secret dbname=d":               "host=h password=xxxxx dbname=d",
		"host=h PASSWORD='se cr\\'et' dbname=d":         "host=h PASSWORD=xxxxx dbname=d",
		"postgres://h/d?password=secret&user=ada":       "postgres://h/d?password=xxxxx&user=ada",
		"postgres://ada@h:5432/d":                       "postgres://ada@h:5432/d",
		"a: b@c":                                        "a: b@c",
	} {
		if got := operator.Redact(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, args := range []string{
		"events postgres://ada:secret@h/d",
		"verify --journal postgre://ada:secret@h/d",
		"verify --journal postgres:password=secret",
		"verify --journal postgres://ada:secret@127.0.0.1:1/d",
		"verify --journal postgres://ada:sec/ret@127.0.0.1:1/d",
		"verify --journal postgres://ada:secret@127.0.0.1:x/d",
		"copy postgres://ada:secret@127.0.0.1:1/d leveldb:/nonexistent",
		"tail x postgres://ada:secret@h/d",
		"frobnicate postgres://ada:secret@h/d",
	} {
		o := start(t, operator.Program{}, strings.Fields(args)...)
		if o.status != operator.ExitFailed || strings.Contains(o.stdout+o.err, "secret") || strings.Contains(o.err, "ret@") || o.err == "" {
			t.Errorf("%s: got %+v, want an error without the password", args, o)
		}
	}
}
