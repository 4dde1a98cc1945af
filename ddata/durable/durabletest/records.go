// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/refold-io/refold/ddata/durable"
)

func recordChecks() []check {
	return []check{
		{name: "Empty", rule: "a store that was never opened is empty", run: func(f *fixture) {
			s := f.open(carts())
			f.want(s, "never opened")
			f.write(s)
			f.want(s, "a call without records")
			f.want(f.reopen(s), "opened again")
		}},
		{name: "Order", rule: "all records are loaded, once, in the bytewise order of their keys", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("b", "1"), put("a", "2"), put("ab", "3"))
			f.write(s, put("\xff", "4"), put("B", "5"), put("a\x00", "6"))
			f.want(s, "two calls", put("B", "5"), put("a", "2"), put("a\x00", "6"), put("ab", "3"), put("b", "1"), put("\xff", "4"))
			all := content{}
			var batch []durable.Record
			for i := range 3000 {
				key := fmt.Sprintf("key-%d", i*7919%3000)
				all[key] = strings.Repeat("x", i%100+1)
				batch = append(batch, put(key, all[key]))
			}
			other := f.open(durable.ID{Node: "a:1", Replicator: "many"})
			f.write(other, batch...)
			f.want(other, "many", all.records()...)
		}},
		{name: "Replace", rule: "a later record of a key replaces the previous one", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "long data"), put("b", "b"))
			f.write(s, put("a", "2"))
			f.want(s, "replaced", put("a", "2"), put("b", "b"))
			f.want(f.reopen(s), "opened again", put("a", "2"), put("b", "b"))
		}},
		{name: "LastOfKey", rule: "the last of several records of a key in a call is stored", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"), put("b", "1"), put("a", "2"), put("b", ""), put("c", ""), put("c", "3"), put("a", "0"))
			f.want(s, "several records of one key", put("a", "0"), put("c", "3"))
		}},
		{name: "Delete", rule: "a record without data deletes the key, whether or not it exists", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"), put("b", "2"), put("c", "3"))
			f.write(s, durable.Record{Key: "a"}, durable.Record{Key: "c", Data: []byte{}})
			f.want(s, "deleted", put("b", "2"))
			f.write(s, durable.Record{Key: "a"}, durable.Record{Key: "missing"})
			f.want(f.reopen(s), "opened again", put("b", "2"))
		}},
		{name: "Keys", rule: "keys may contain any bytes and stay distinct", run: func(f *fixture) {
			s := f.open(carts())
			all := content{}
			for i, key := range []string{
				"a", "A", "a ", "a\x00", "a\x00\x00", "aa", "\x00", "\xff", "\xff\xff", "/", "..", "a/b", "a\\b", "a:b", "é", "e\u0301", "\n", "%41", "=61",
				strings.Repeat("k", durable.MaxKey), strings.Repeat("k", durable.MaxKey-1),
			} {
				all[key] = fmt.Sprint(i)
				f.write(s, put(key, all[key]))
			}
			f.want(s, "keys of all kinds", all.records()...)
			delete(all, "a")
			f.write(s, put("a", ""))
			f.want(f.reopen(s), "after a deletion", all.records()...)
		}},
		{name: "Data", rule: "data is loaded as it was written, up to MaxData", run: func(f *fixture) {
			s := f.open(carts())
			large := random(1)(durable.MaxData)
			all := content{"0": "\x00", "1": "\xff", "2": strings.Repeat("\x00", 1<<20), "3": "\x00\x01\x02\n\r", "4": string(large)}
			f.write(s, all.records()...)
			f.want(s, "data of all kinds", all.records()...)
			f.want(f.reopen(s), "opened again", all.records()...)
		}},
		{name: "Invalid", rule: "a call with an invalid record stores nothing", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"))
			for subject, r := range map[string]durable.Record{
				"no key":     put("", "1"),
				"long key":   put(strings.Repeat("k", durable.MaxKey+1), "1"),
				"large data": {Key: "b", Data: make([]byte, durable.MaxData+1)},
			} {
				if err := s.Write(f.ctx, []durable.Record{put("a", "2"), r, put("c", "3")}); !errors.Is(err, durable.ErrInvalid) {
					f.Errorf("%s: Write: %v, want ErrInvalid", subject, err)
				}
				f.want(s, subject, put("a", "1"))
			}
			f.write(s, put("a", "3"))
			f.want(s, "afterwards", put("a", "3"))
		}},
		{name: "NotKept", rule: "the store and its caller do not share slices", run: func(f *fixture) {
			s := f.open(carts())
			b := []byte("as it was")
			records := []durable.Record{{Key: "a", Data: b}, put("b", "2")}
			f.write(s, records...)
			copy(b, "something")
			records[1] = put("c", "3")
			f.want(s, "after the caller changed the written slice", put("a", "as it was"), put("b", "2"))
			for _, r := range f.load(s) {
				clear(r.Data)
				_ = append(r.Data, "after it"...)
			}
			f.want(s, "after the caller changed a loaded slice", put("a", "as it was"), put("b", "2"))
			f.want(f.reopen(s), "opened again", put("a", "as it was"), put("b", "2"))
		}},
	}
}
